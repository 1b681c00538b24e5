"""Changes to a run. A session is defined by its bundle, its inputs and an ordered list of edits.

Everything else derives from the list, so another list is another run, and results cached for the
previous one are dropped. See ``docs/decisions/0021-debugger-edits.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from attrs.validators import ge

from nmpsim.bundle.metadata import Tensor
from nmpsim.bundle.patch import ByteChange
from nmpsim.bundle.read import Bundle
from nmpsim.diagnostics import fail

Piece = tuple[int, bytes]
"""Address and new bytes."""
ScaleChanges = tuple[tuple[tuple[str, float], ...], ...]
"""For each change of scales, in order, pairs of buffer name and scale."""


@attrs.frozen
class Edit:
    """Edit by one debugger command: changes of memory and of tensor scales."""

    position: int = attrs.field(validator=ge(0))
    """Position at which the change is made, each time the run reaches it. Changes of the program
    are made at position 0."""
    pieces: tuple[Piece, ...]
    """New bytes in order; a later piece may overwrite an earlier one."""
    what: str
    """Description for the user."""
    scales: Mapping[str, float] = attrs.field(factory=dict)
    """Buffers of the LIR whose values have another scale."""

    @scales.validator
    def _check_scales(self, _: object, scales: Mapping[str, float]) -> None:
        for name, scale in scales.items():
            if not (isinstance(scale, float) and 0 < scale < math.inf):
                raise ValueError(f"scale {scale!r} of {name} is not a positive finite number")


def check_edit(bundle: Bundle, edit: Edit) -> None:
    """Raise UserError (DEBUG002) if an edit lies in memory that cannot be changed."""
    for address, now in edit.pieces:
        in_program = find_image_slice(bundle, address, len(now)) is not None and edit.position == 0
        if not in_program and find_ram_slice(bundle, address, len(now)) is None:
            raise fail(
                "DEBUG002",
                "the address is not in memory that can be changed",
                found=f"{len(now)} bytes at {address:#x}",
                expected="an address in the code, the descriptors, the constants or the tensors",
            )


def find_image_slice(bundle: Bundle, address: int, count: int) -> slice | None:
    """Return the slice of the read-only image for an address range, or None if not inside."""
    return _inside(address - bundle.image_base, count, bundle.image.size)


def find_ram_slice(bundle: Bundle, address: int, count: int) -> slice | None:
    """Return the slice of writable DRAM for an address range, or None if not inside."""
    return _inside(address - bundle.rw_base, count, bundle.rw_bytes)


def _inside(start: int, count: int, size: int) -> slice | None:
    return slice(start, start + count) if count > 0 and 0 <= start <= size - count else None


def list_image_changes(bundle: Bundle, edits: Sequence[Edit]) -> list[tuple[slice, bytes, str]]:
    """Return the slice, new bytes and description of each change of the program image."""
    pieces = [(address, now, edit.what) for edit in edits for address, now in edit.pieces]
    found = [(find_image_slice(bundle, at, len(now)), now, what) for at, now, what in pieces]
    return [(where, now, what) for where, now, what in found if where is not None]


def build_patch(bundle: Bundle, edits: Sequence[Edit]) -> tuple[ByteChange, ...]:
    """Build a patch without overlaps from the edits of the program's image."""
    pieces = list_image_changes(bundle, edits)
    now, last = bundle.image.copy(), np.full(bundle.image.size, -1, np.int32)
    for number, (where, data, _) in enumerate(pieces):
        now[where], last[where] = np.frombuffer(data, np.uint8), number
    touched = np.flatnonzero(last >= 0)
    is_next = (np.diff(touched) > 1) | (np.diff(last[touched]) != 0)
    return tuple(
        ByteChange(bundle.image_base + int(run[0]), was, new, pieces[last[run[0]]][2])
        for run in np.split(touched, np.flatnonzero(is_next) + 1)
        if (was := bundle.image[run].tobytes()) != (new := now[run].tobytes())
    )


def list_scale_changes(edits: Sequence[Edit]) -> ScaleChanges:
    """Return the scale changes of all edits in order."""
    return tuple(tuple(edit.scales.items()) for edit in edits if edit.scales)


def apply_scale(tensor: Tensor, edits: Sequence[Edit]) -> Tensor:
    """Apply the last edit of a tensor's scale; return an unedited tensor unchanged."""
    scale = next((e.scales[tensor.name] for e in reversed(edits) if tensor.name in e.scales), None)
    return tensor if scale is None else attrs.evolve(tensor, scale=scale)
