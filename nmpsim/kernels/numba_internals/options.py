"""Options of ``numba.njit`` that Numba does not document."""

from __future__ import annotations

from numba.core.cpu import CPUTargetOptions

_NEEDED = (
    CPUTargetOptions.no_cpython_wrapper,
    CPUTargetOptions.no_cfunc_wrapper,
    CPUTargetOptions._nrt,
)

NO_ENTRY = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Omit the entry from Python, which would unpack the whole machine and dominate compilation."""
NOT_COUNTING, COUNTING = {"_nrt": False}, {"_nrt": True}
"""Whether references are counted; counting those of the machine's arrays at every call would take
longer than most calls. A function with neither option does as its caller."""
