"""Epochs of a recording: tensor instructions between which cores need no synchronization."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.core.state import Int64s, Machine

if TYPE_CHECKING:
    from nmpsim.core.layer_kernels.tasks import HostMemory

EPOCHS_PER_CALL = 16
"""Epochs that are replayed before Python can handle Ctrl-C."""

BEGIN, END, PART_CORE = range(3)
PART_WORDS = 3
"""Entries of a part of an epoch: range of its instructions in ``items``, and their core."""


@attrs.frozen(eq=False)
class Epochs:
    """Epochs of a recording: groups of tensor instructions in execution order."""

    items: Int64s
    """NUMBER, LAYER, ACCOUNT and the descriptor of each instruction, one after the other."""
    parts: Int64s
    """[parts, PART_WORDS] instructions that one thread executes, epoch after epoch."""
    firsts: Int64s
    """[epochs + 1] first part of each epoch, and the end of the last one."""
    reached: Int64s
    """[epochs] layers below this index are complete after each epoch."""
    is_whole: npt.NDArray[np.bool_]
    """[epochs] whether an epoch consists of layer kernels, which work on host memory."""
    host: HostMemory | None = None
    """Host memory of the layer kernels."""

    @property
    def arrays(self) -> tuple[Int64s, Int64s, Int64s]:
        """Arrays ``items``, ``parts`` and ``firsts``, as arguments of compiled functions."""
        return self.items, self.parts, self.firsts

    @cached_property
    def call_ranges(self) -> tuple[tuple[int, int, bool], ...]:
        """Range of epochs for each replay call, as (begin, end, is_whole)."""
        return self._split(self.is_whole[1:] != self.is_whole[:-1])

    @cached_property
    def layer_ranges(self) -> tuple[tuple[int, int, bool], ...]:
        """Ranges like ``call_ranges`` that also end with each layer."""
        completes_layer = np.diff(self.reached, prepend=0) != 0
        return self._split((self.is_whole[1:] != self.is_whole[:-1]) | completes_layer[:-1])

    def _split(self, is_end: npt.NDArray[np.bool_]) -> tuple[tuple[int, int, bool], ...]:
        """Return ranges of a few epochs; ``is_end`` [epochs - 1] marks the last ones of ranges."""
        ends = [*(np.flatnonzero(is_end) + 1).tolist(), self.is_whole.size]
        return tuple(
            (first, min(first + EPOCHS_PER_CALL, end), bool(self.is_whole[first]))
            for begin, end in zip([0, *ends], ends, strict=False)
            for first in range(begin, end, EPOCHS_PER_CALL)
        )


def find_lowest_layers(lowest: Int64s, machine: Machine) -> Int64s:
    """Return for each epoch the lowest layer of later epochs, or the layer count for the last."""
    later = np.append(lowest, machine.layers.size)
    return np.minimum.accumulate(later[::-1])[::-1][1:]
