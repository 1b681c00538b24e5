"""Whether this process may use the tiles of AMX that a processor has."""

from __future__ import annotations

import ctypes
import sys

from nmpsim.kernels.flavours import FLAVOURS

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""Number of the call on x86-64, and what Linux wants of a process before it uses tiles."""


def without_refused(features: frozenset[str]) -> frozenset[str]:
    """The features of a processor, without AMX unless the system lets this process use it.

    Only Linux is asked, which then lets all threads; elsewhere AMX is not used.
    """
    needed = FLAVOURS["amx"]
    if not features.issuperset(needed) or _is_permitted():
        return features
    return features.difference(needed)


def _is_permitted() -> bool:
    if sys.platform != "linux":
        return False
    request = (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    answer: int = ctypes.CDLL(None).syscall(*map(ctypes.c_long, request))
    return answer == 0
