"""Changes to a run: a session is its bundle, its inputs and an ordered list of these.

All else that a session knows derives from the list, so another list is another run: what was known
of the one before is gone with it. See ``docs/decisions/0021-debugger-edits.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from nmpsim.bundle.metadata import Tensor
from nmpsim.bundle.patch import Change
from nmpsim.bundle.read import Bundle
from nmpsim.diagnostics import fail

Piece = tuple[int, bytes]
"""Address and new bytes."""
ScaleChanges = tuple[tuple[tuple[str, float], ...], ...]
"""Of each change of scales, in order, the buffers with their scales."""


@attrs.frozen
class Edit:
    """What one command changes."""

    position: int
    """State of the run that it is made in, and made again whenever the run comes by. Bytes of the
    program are changed at 0."""
    pieces: tuple[Piece, ...]
    """In order; a later one may lie on an earlier one."""
    what: str
    """For readers: what it means."""
    scales: Mapping[str, float] = attrs.field(factory=dict)
    """Buffers of the LIR whose values have another scale with it."""


def check_edit(bundle: Bundle, edit: Edit) -> None:
    """Raise UserError DEBUG002 unless all of an edit lies in memory that it can change."""
    for address, now in edit.pieces:
        in_program = find_image_slice(bundle, address, len(now)) is not None and edit.position == 0
        if not in_program and find_ram_slice(bundle, address, len(now)) is None:
            raise fail(
                "DEBUG002",
                "there is no memory there that can be changed",
                found=f"{len(now)} bytes at {address:#x}",
                expected="code, descriptors, constants or tensors",
            )


def find_image_slice(bundle: Bundle, address: int, count: int) -> slice | None:
    """Where bytes of the read-only memory are in its image; None if they are not all there."""
    return _inside(address - bundle.image_base, count, bundle.image.size)


def find_ram_slice(bundle: Bundle, address: int, count: int) -> slice | None:
    """Where bytes of the writable DRAM are in it; None if they are not all there."""
    return _inside(address - bundle.rw_base, count, bundle.rw_bytes)


def _inside(start: int, count: int, size: int) -> slice | None:
    return slice(start, start + count) if count > 0 and 0 <= start <= size - count else None


def list_program_pieces(bundle: Bundle, edits: Sequence[Edit]) -> list[tuple[slice, bytes, str]]:
    """What edits change of the program: where in its image, new bytes, meaning; in order."""
    pieces = [(address, now, edit.what) for edit in edits for address, now in edit.pieces]
    found = [(find_image_slice(bundle, at, len(now)), now, what) for at, now, what in pieces]
    return [(where, now, what) for where, now, what in found if where is not None]


def build_patch(bundle: Bundle, edits: Sequence[Edit]) -> tuple[Change, ...]:
    """What the program has become, each byte once, with the meaning of the last edit there."""
    pieces = list_program_pieces(bundle, edits)
    now, last = bundle.image.copy(), np.full(bundle.image.size, -1, np.int32)
    for number, (where, data, _) in enumerate(pieces):
        now[where], last[where] = np.frombuffer(data, np.uint8), number
    touched = np.flatnonzero(last >= 0)
    is_next = (np.diff(touched) > 1) | (np.diff(last[touched]) != 0)
    return tuple(
        Change(bundle.image_base + int(run[0]), was, new, pieces[last[run[0]]][2])
        for run in np.split(touched, np.flatnonzero(is_next) + 1)
        if (was := bundle.image[run].tobytes()) != (new := now[run].tobytes())
    )


def list_scale_changes(edits: Sequence[Edit]) -> ScaleChanges:
    """The changes of scales among edits."""
    return tuple(tuple(edit.scales.items()) for edit in edits if edit.scales)


def apply_scale(tensor: Tensor, edits: Sequence[Edit]) -> Tensor:
    """A tensor with the scale that its values have with these edits."""
    scale = next((e.scales[tensor.name] for e in reversed(edits) if tensor.name in e.scales), None)
    return tensor if scale is None else attrs.evolve(tensor, scale=scale)
