"""Where a core's cycles go."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.state import Count
from nmpsim.kernels.jit import jit

CONTROL = np.int64(Count.CONTROL)
WAIT_LOAD = np.int64(Count.WAIT_LOAD)
ACTIVITIES = int(Count.IDLE) + 1


@jit
def spend(m: Any, core: Any, activity: Any, cycles: Any) -> None:
    """``cycles`` of a core pass with one activity."""
    m.cores[core].clock += cycles
    m.cores[core].pending[activity] += cycles


@jit
def give_to_layer(m: Any, core: Any, layer: Any) -> None:
    """Book what a core has spent since the last time on a layer."""
    for activity in range(ACTIVITIES):
        m.layers[layer].counts[activity] += m.cores[core].pending[activity]
        m.cores[core].pending[activity] = 0


@jit
def works_on(m: Any, core: Any, layer: Any) -> None:
    """The core's next work is for ``layer``; what it did since a barrier was for it already."""
    if m.cores[core].layer >= 0 and m.cores[core].layer != layer:
        give_to_layer(m, core, m.cores[core].layer)
    m.cores[core].layer = layer


@jit
def leave_layer(m: Any, core: Any, ended: Any) -> None:
    """A barrier is passed or the core halts; ``ended`` is used if the core named no layer."""
    layer = m.cores[core].layer if m.cores[core].layer >= 0 else ended
    give_to_layer(m, core, layer)
    m.cores[core].layer = -1
    m.cores[core].previous_layer = layer
