"""Control and status registers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.ending import MIE_BIT, MPIE_BIT, MPP_BITS, WORD
from nmpsim.core.decode import OP
from nmpsim.core.state import CSR_COLUMN, CSRS
from nmpsim.isa.table import Csr
from nmpsim.kernels.jit import jit

MCYCLE = CSR_COLUMN[Csr.MCYCLE]
MINSTRET = CSR_COLUMN[Csr.MINSTRET]
COLUMN_OF_CSR = np.full(4096, -1, np.int64)
for _csr, _column in CSR_COLUMN.items():
    COLUMN_OF_CSR[_csr] = _column
CSR_ADDRESS = np.array([int(c) for c in CSRS], np.int64)


@jit
def read_csr(m: Any, core: Any, column: Any) -> Any:
    """Value of a CSR; the counters are the clock plus what a program set them off by."""
    address = CSR_ADDRESS[column]
    if address == 0xB00:
        return (m.cores[core].clock + m.cores[core].csr[MCYCLE]) & WORD
    if address == 0xB80:
        return ((m.cores[core].clock + m.cores[core].csr[MCYCLE]) >> 32) & WORD
    if address == 0xB02:
        return (m.cores[core].retired + m.cores[core].csr[MINSTRET]) & WORD
    if address == 0xB82:
        return ((m.cores[core].retired + m.cores[core].csr[MINSTRET]) >> 32) & WORD
    return m.cores[core].csr[column]


@jit
def set_counter(m: Any, core: Any, column: Any, now: Any, high: Any, value: Any) -> None:
    """Make one half of a 64-bit counter read as ``value`` from the next instruction on."""
    whole = now + m.cores[core].csr[column]
    if high:
        whole = (whole & WORD) | (value << 32)
    else:
        whole = (whole & ~np.int64(WORD)) | value
    m.cores[core].csr[column] = whole - (now + 1)


@jit
def write_csr(m: Any, core: Any, column: Any, value: Any) -> None:
    """Set a CSR; bits that cannot change stay as they are."""
    address = CSR_ADDRESS[column]
    if address == 0xB00 or address == 0xB80:
        set_counter(m, core, MCYCLE, m.cores[core].clock, address == 0xB80, value)
    elif address == 0xB02 or address == 0xB82:
        set_counter(m, core, MINSTRET, m.cores[core].retired, address == 0xB82, value)
    elif address == 0x300:
        m.cores[core].csr[column] = MPP_BITS | (value & (MIE_BIT | MPIE_BIT))
    elif address == 0x305 or address == 0x341:
        m.cores[core].csr[column] = value & ~np.int64(3)
    elif address != 0x301 and address != 0x344:
        m.cores[core].csr[column] = value


@jit
def csr_access(m: Any, core: Any, number: Any, word: Any) -> Any:
    """``csrr*``: the old value, or -1 if the access is illegal."""
    column = COLUMN_OF_CSR[(word >> 20) & 4095]
    if column < 0:
        return -1
    field = (word >> 15) & 31
    by_register = number == OP.csrrw or number == OP.csrrs or number == OP.csrrc
    operand = np.int64(m.cores[core].registers[field]) & WORD if by_register else field
    swaps = number == OP.csrrw or number == OP.csrrwi
    writes = swaps or field != 0
    if writes and CSR_ADDRESS[column] >= 0xC00:
        return -1
    old = read_csr(m, core, column)
    if writes:
        if swaps:
            new = operand
        elif number == OP.csrrs or number == OP.csrrsi:
            new = old | operand
        else:
            new = old & ~operand
        write_csr(m, core, column, new)
    return old
