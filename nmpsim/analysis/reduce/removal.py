"""A program without the tensor instructions that a violation of the contract does not need.

Which accesses are ordered is a matter of the code as it is, so this one stays where it is: what is
removed becomes an instruction that does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.reduce.failures import Violates
from nmpsim.bundle import Bundle, bundle_from_bytes
from nmpsim.bundle.patch import Change, apply_patch
from nmpsim.core.device import Device
from nmpsim.diagnostics import UserError
from nmpsim.isa.codec import encode

MAX_TRIES = 400
"""Programs that are run at most."""
_NOTHING = encode("addi", {"rd": 0, "rs1": 0, "imm": 0}).to_bytes(4, "little")

Inputs = Mapping[str, npt.NDArray[Any]]


@attrs.frozen(eq=False)
class Rest:
    """What is left of a program."""

    image: bytes
    kept: int
    """Tensor instructions at different addresses that are left."""
    of: int


def without_the_rest(bundle: Bundle, inputs: Inputs, device: Device, failure: Violates) -> Rest:
    """The program with few tensor instructions, that still has the violation."""
    notes: list[Any] = []
    device.run(bundle, inputs, work=notes.append, strict=False)
    work = np.concatenate(notes)
    issued = work[work["is_grant"] == 0]
    order = np.lexsort((issued["begin"], issued["core"], issued["layer"]))
    all_of_them = [pc for pc in dict.fromkeys(issued["pc"][order].tolist()) if _is_code(bundle, pc)]
    tries = 0

    def fails(kept: Sequence[int]) -> bool:
        nonlocal tries
        tries += 1
        if tries > MAX_TRIES:
            return False
        image = _without(bundle, set(all_of_them) - set(kept))
        try:
            report = device.run(bundle_from_bytes(image, "repro.bin"), inputs)
        except UserError:  # it is no program without them
            return False
        return failure.happens(report)

    needed = smallest(all_of_them, fails)
    return Rest(_without(bundle, set(all_of_them) - set(needed)), len(needed), len(all_of_them))


def smallest(items: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """A part of ``items`` of which nothing can be left out, if ``fails`` says so of all of them.

    Zeller's and Hildebrandt's ddmin, which leaves out larger parts first.
    """
    kept, pieces = list(items), 2
    while len(kept) > 1:
        size = -(-len(kept) // pieces)
        rests = (kept[:n] + kept[n + size :] for n in range(0, len(kept), size))
        smaller = next((rest for rest in rests if fails(rest)), None)
        if smaller is not None:
            kept, pieces = smaller, max(pieces - 1, 2)
        elif size == 1:
            break
        else:
            pieces = min(2 * pieces, len(kept))
    return kept


def _is_code(bundle: Bundle, pc: int) -> bool:
    return 0 <= pc - bundle.image_base <= bundle.image.size - 4


def _without(bundle: Bundle, removed: set[int]) -> bytes:
    changes = tuple(
        Change(pc, _word(bundle, pc), _NOTHING, "left out")
        for pc in sorted(removed)
        if _word(bundle, pc) != _NOTHING
    )
    return apply_patch(bytes(bundle.file), changes, bundle.path) if changes else bytes(bundle.file)


def _word(bundle: Bundle, pc: int) -> bytes:
    start = pc - bundle.image_base
    return bundle.image[start : start + 4].tobytes()
