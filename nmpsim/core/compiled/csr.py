"""Control and status registers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.ending import WORD
from nmpsim.core.decode import OP, decides_instructions
from nmpsim.core.state import CSR_COLUMN, CSRS
from nmpsim.isa.csrs import CSR_ROWS, Counter, is_read_only
from nmpsim.isa.table import Kind
from nmpsim.isa.total import total
from nmpsim.kernels.jit import jit

ILLEGAL_ACCESS: Any = np.int64(-1)
"""In place of the old value of a CSR."""
COLUMN_OF_CSR = np.full(4096, -1, np.int64)
for _csr, _column in CSR_COLUMN.items():
    COLUMN_OF_CSR[_csr] = _column
_ROWS = [CSR_ROWS[csr] for csr in CSRS]
NO_COUNTER, CYCLES, INSTRUCTIONS = range(3)
_COUNTERS = total(
    f"{__name__}._COUNTERS",
    {None: NO_COUNTER, Counter.CYCLES: CYCLES, Counter.INSTRUCTIONS: INSTRUCTIONS},
    (None, *Counter),
)
COUNTER = np.array([_COUNTERS[row.counter] for row in _ROWS], np.int64)
OFFSET = np.array([-1 if row.offset is None else CSR_COLUMN[row.offset] for row in _ROWS], np.int64)
IS_HIGH = np.array([row.is_high for row in _ROWS])
WRITABLE = np.array([row.writable for row in _ROWS], np.int64)
READ_ONLY = np.array([is_read_only(csr) for csr in CSRS])


@jit
def counted(m: Any, core: Any, column: Any) -> Any:
    """What a counter has counted of its own accord."""
    return m.cores[core].clock if COUNTER[column] == CYCLES else m.cores[core].retired


@jit
def read_csr(m: Any, core: Any, column: Any) -> Any:
    """Value of a CSR; the counters are the clock plus what a program set them off by."""
    if COUNTER[column] == NO_COUNTER:
        return m.cores[core].csr[column]
    whole = counted(m, core, column)
    if OFFSET[column] >= 0:
        whole += m.cores[core].csr[OFFSET[column]]
    return (whole >> 32 if IS_HIGH[column] else whole) & WORD


@jit
def set_counter(m: Any, core: Any, column: Any, value: Any) -> None:
    """Make one half of a 64-bit counter read as ``value`` from the next instruction on."""
    now, offset = counted(m, core, column), OFFSET[column]
    whole = now + m.cores[core].csr[offset]
    if IS_HIGH[column]:
        whole = (whole & WORD) | (value << 32)
    else:
        whole = (whole & ~np.int64(WORD)) | value
    m.cores[core].csr[offset] = whole - (now + 1)


@jit
def write_csr(m: Any, core: Any, column: Any, value: Any) -> None:
    """Set a CSR; bits that cannot change stay as they are."""
    if COUNTER[column] != NO_COUNTER:
        set_counter(m, core, column, value)
        return
    kept = m.cores[core].csr[column] & ~WRITABLE[column]
    m.cores[core].csr[column] = kept | (value & WRITABLE[column])


@jit
@decides_instructions(Kind.CSR)
def csr_access(m: Any, core: Any, number: Any, word: Any) -> Any:
    """``csrr*``: the old value, or ILLEGAL_ACCESS."""
    column = COLUMN_OF_CSR[(word >> 20) & 4095]
    if column < 0:
        return ILLEGAL_ACCESS
    field = (word >> 15) & 31
    register = np.int64(m.cores[core].registers[field]) & WORD
    writes = field != 0
    old = read_csr(m, core, column)
    if number == OP.csrrw:
        writes, new = True, register
    elif number == OP.csrrs:
        new = old | register
    elif number == OP.csrrc:
        new = old & ~register
    elif number == OP.csrrwi:
        writes, new = True, field
    elif number == OP.csrrsi:
        new = old | field
    elif number == OP.csrrci:
        new = old & ~field
    else:
        return ILLEGAL_ACCESS
    if writes and READ_ONLY[column]:
        return ILLEGAL_ACCESS
    if writes:
        write_csr(m, core, column, new)
    return old
