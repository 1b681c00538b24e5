"""Options of ``numba.njit`` that Numba does not document."""

from __future__ import annotations

from numba.core.cpu import CPUTargetOptions

_NEEDED = (
    CPUTargetOptions.no_cpython_wrapper,
    CPUTargetOptions.no_cfunc_wrapper,
    CPUTargetOptions._nrt,
)

NO_ENTRY = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""An entry from Python would unpack the whole machine: most of compiling would be that."""
NOT_COUNTING, COUNTING = {"_nrt": False}, {"_nrt": True}
"""Counting references to the machine's arrays at every call would take longer than most calls.
What is said of neither does as its caller."""
