"""Is a descriptor possible, and does all that it names lie in the scratchpad?

Each ``check_*`` function takes the record's words (int64) and the scratchpad's size in bytes and
gives -1 if all is well, else the index of the first word that is wrong. What an instruction
writes may not meet what it reads (elementwise ones may write exactly onto an operand), so that
"read everything first" and "read as it goes" are the same.
"""

from nmpsim.memory import bounds, mac_checks, transfer_checks, vector_checks
from nmpsim.memory.bounds import OK, span
from nmpsim.memory.mac_checks import bad_scale_table, check_conv, check_dwconv, check_gemm
from nmpsim.memory.transfer_checks import check_load, check_store
from nmpsim.memory.vector_checks import (
    check_avgpool,
    check_eltwise,
    check_fill,
    check_lut,
    check_maxpool,
    check_rescale,
    check_transpose,
)

__all__ = [
    "FUNCTIONS",
    "OK",
    "bad_scale_table",
    "check_avgpool",
    "check_conv",
    "check_dwconv",
    "check_eltwise",
    "check_fill",
    "check_gemm",
    "check_load",
    "check_lut",
    "check_maxpool",
    "check_rescale",
    "check_store",
    "check_transpose",
    "span",
]

FUNCTIONS = (
    *bounds.FUNCTIONS,
    *transfer_checks.FUNCTIONS,
    *mac_checks.FUNCTIONS,
    *vector_checks.FUNCTIONS,
)
"""What the compiled engine compiles, callees first."""
