"""What is known of a run as far as it has come once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import Layer
from nmpsim.debugger.edits import Edit
from nmpsim.debugger.events import Hazards
from nmpsim.debugger.hazards import Hazard
from nmpsim.debugger.pathlog import PathLog
from nmpsim.debugger.worklog import WorkLog

Outputs = Mapping[int, npt.NDArray[Any]]


@attrs.define(eq=False)
class Known:
    """All that was noted of the run that ``edits`` make; another list is another run."""

    edits: tuple[Edit, ...]
    paths: PathLog
    ends: dict[int, int] = attrs.field(factory=dict)
    """Position at which each layer was done."""
    outputs: dict[int, npt.NDArray[Any]] = attrs.field(factory=dict)
    """Output of each layer when it was done last."""
    hazards: Hazards | None = None
    """None until somebody asks."""
    work: WorkLog | None = None
    """None unless somebody wants it."""

    @property
    def found_hazards(self) -> Sequence[Hazard]:
        """All hazards so far, if they are looked for."""
        return self.hazards.found if self.hazards else ()


def outputs_at(known: Known, layers: Sequence[Layer], position: int) -> Outputs:
    """Output of each layer as it was left, with what was set there after that, up to a position.

    Layers may share memory: a byte is of the layer that was done last there.
    """
    found = dict(known.outputs)
    order = sorted(known.ends, key=lambda index: -known.ends[index])
    for edit in known.edits:
        for address, now in edit.pieces if edit.position <= position else ():
            owner = next(
                (
                    index
                    for index in order
                    if known.ends[index] < edit.position
                    and 0 <= address - layers[index].output.address < found[index].nbytes
                ),
                None,
            )
            if owner is not None:
                found[owner] = _with_bytes(
                    found[owner], address - layers[owner].output.address, now
                )
    return found


def _with_bytes(values: npt.NDArray[Any], start: int, now: bytes) -> npt.NDArray[Any]:
    changed = values.copy()
    room = changed.reshape(-1).view(np.uint8)[start:]
    room[: len(now)] = np.frombuffer(now, np.uint8)[: len(room)]
    return changed
