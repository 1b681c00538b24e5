"""What the threads of a replay have in common; see :mod:`~nmpsim.core.compiled.replay`.

Separate from the compiled functions, so that cached kernels run without importing Numba.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from nmpsim.core.state import Int64s

LINE = 8
"""64-bit words of a cache line of the host: what threads share is on lines of its own."""
MAIN_THREAD: Any = np.int64(0)
"""The thread that runs the device."""


class Shared(IntEnum):
    """What the threads share, each entry on a cache line of its own."""

    IS_ACTIVE = 0
    """1 while a replay lasts."""
    EPOCH = 1
    PARTS = 2
    """Address of the epoch's parts, [parts, PART_WORDS]."""
    ITEMS = 3
    """Address of the recording's instructions."""
    HAS_DIVERGED = 4
    """1 if data decide what happens: a table of scales was impossible, or (where IS_STRICT)
    weights break the contract."""
    IS_STRICT = 5
    """1 if weights must keep to the contract."""


class ReplayContext(NamedTuple):
    """What threads need to replay a recording."""

    addresses: Int64s
    """[instructions] of compiled kernels."""
    kernel_contexts: Int64s
    """[threads, CONTEXT_WORDS] see :class:`~nmpsim.core.compiled.context_row.ContextWord`."""
    shares: Int64s
    """[threads, LINE] what nobody has claimed of each thread's share; first word of each line."""
    done: Int64s
    """[threads, LINE] parts that each thread is done with, from the start; first word of each."""
    shared: Int64s
    """[Shared, LINE] first word of each line."""
