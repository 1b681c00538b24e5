"""Regions of wrong elements: a core or a store, rows, columns, channels or the border.

A region is significant if describing it and the wrong elements within it takes at least
``MIN_BITS`` fewer bits than describing the wrong elements among all (minimum description length).
A few elements that lie together by accident have no such region.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import lgamma, log, log2

import attrs
import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.int64]

MIN_BITS = 20.0
"""Bits that a region must save: an accident in a million runs."""
MAX_REGIONS = 3
"""Maximum number of regions besides that of an owner."""
MAX_NAMED = 4
"""Maximum number of indices that are listed."""
MAX_SHARE = 0.25
"""Largest share of all indices that counts as a few."""
MARGINS = (1, 2)
"""Widths of a border in rows and columns."""
MIN_SIDES = 2
"""Minimum number of sides of a border; one side is described as rows or columns."""
PERIODS = (2, 3, 4)
AXES = ("image", "row", "column", "channel")
"""Axis names of a tensor of four dimensions."""


@attrs.frozen(eq=False)
class ErrorRegion:
    """Region of a tensor that contains all wrong elements."""

    kind: str
    """Kind of the owners, ``border``, or the name of an axis."""
    text: str
    mask: Mask
    bits: float
    """Bits to say which region of its kind it is."""
    places: tuple[str, ...] = ()
    """Commands that show what wrote it."""


@attrs.frozen(eq=False)
class ElementOwners:
    """Owners of elements: the core or the store that wrote each element."""

    kind: str
    labels: Labels
    """Number of the owner of each element; -1 for none."""
    names: Sequence[str]
    """Name of each owner."""
    places: Sequence[str]
    """Command that shows each owner."""


def find_error_regions(
    wrong: Mask, visible: Mask, owners: Sequence[ElementOwners]
) -> tuple[ErrorRegion, ...]:
    """Find nested regions that contain all wrong elements; return () if no region is significant.

    Parameters
    ----------
    wrong : array of bool
        Elements that differ.
    visible : array of bool
        Elements where an error would be visible: not where a right element is at a limit anyway.
    owners : sequence of ElementOwners
        What wrote the elements, the most likely cause first.
    """
    found: list[ErrorRegion] = []
    within = visible | wrong
    places = [
        *_border(wrong),
        *(one for axis in range(wrong.ndim) for one in _list_slabs(wrong, axis)),
    ]
    for candidates in (
        [region for one in owners for region in _owned(wrong, one)],
        *([places] * MAX_REGIONS),
    ):
        best = _best(wrong, within, candidates)
        if best is not None:
            found.append(best)
            within = within & best.mask
    return tuple(found)


def _best(wrong: Mask, within: Mask, candidates: Sequence[ErrorRegion]) -> ErrorRegion | None:
    """Return the region that saves most bits, if it saves enough."""
    best, gain = None, MIN_BITS
    whole = _bits(wrong, within)
    for one in candidates:
        saved = whole - one.bits - _bits(wrong, within & one.mask)
        if saved > gain and (best is None or (best.mask & within != one.mask & within).any()):
            best, gain = one, saved
    return best


def _bits(wrong: Mask, within: Mask) -> float:
    """Return the bits to say which elements of a part are wrong."""
    return _choices(int(np.count_nonzero(within)), int(np.count_nonzero(wrong)))


def _choices(n: int, k: int) -> float:
    """Return log2 of the number of ways to choose k of n."""
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2)


def _owned(wrong: Mask, owners: ElementOwners) -> Iterator[ErrorRegion]:
    known, hit = np.unique(owners.labels), np.unique(owners.labels[wrong])
    if hit.size > max(1, known.size * MAX_SHARE) or hit.size == known.size or -1 in hit:
        return
    mask = np.isin(owners.labels, hit)
    bits = log2(known.size) + _choices(known.size, hit.size)
    text = _listed([owners.names[label] for label in hit])
    places = tuple(owners.places[label] for label in hit[:1])
    yield ErrorRegion(owners.kind, text, mask, bits, places)


def _list_slabs(wrong: Mask, axis: int) -> Iterator[ErrorRegion]:
    """Yield regions of indices of an axis: a range, a regular pattern, or a few."""
    size = wrong.shape[axis]
    hit = _list_indices(wrong, axis)
    if not 0 < hit.size < size:
        return
    low, high = int(hit[0]), int(hit[-1])
    yield _slab(wrong, axis, range(low, high + 1), log2(size * (size + 1) / 2))
    for period in PERIODS:
        if size >= 2 * period and high - low >= period and len(set(hit % period)) == 1:
            phase = low % period
            yield _slab(wrong, axis, range(phase, size, period), log2(sum(PERIODS)))
    if hit.size <= size * MAX_SHARE:
        yield _slab(wrong, axis, hit.tolist(), log2(size) + _choices(size, hit.size))


def _list_indices(mask: Mask, axis: int) -> Labels:
    """Return the indices along an axis at which a mask has elements."""
    return np.flatnonzero(mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis)))


def _slab(wrong: Mask, axis: int, chosen: Sequence[int], bits: float) -> ErrorRegion:
    mask = np.zeros(wrong.shape, np.bool_)
    mask[(slice(None),) * axis + (list(chosen),)] = True
    name = get_axis_name(axis, wrong.ndim)
    return ErrorRegion(name, format_indices(chosen, name, wrong.shape[axis]), mask, bits)


def get_axis_name(axis: int, ndim: int) -> str:
    """Return the name of a tensor's axis, such as ``channel``."""
    if ndim == len(AXES):
        return AXES[axis]
    return AXES[-1] if axis == ndim - 1 else f"dimension-{axis} index"


def format_indices(chosen: Sequence[int], name: str, size: int) -> str:
    """Format indices along an axis, such as ``rows 4 to 7 of 16``."""
    step = chosen[1] - chosen[0] if len(chosen) > 1 else 1
    plural = f"{name}s" if not name.endswith("index") else name[: -len("index")] + "indices"
    if len(chosen) == 1:
        return f"{name} {chosen[0]} of {size}"
    if len(chosen) > 2 and all(b - a == step for a, b in pairwise(chosen)):
        if step > 1:
            return f"every {_ordinal(step)} {name} from {chosen[0]} on"
        return f"{plural} {chosen[0]} to {chosen[-1]} of {size}"
    return f"{plural} {_listed(chosen)} of {size}"


def _ordinal(number: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(number, f"{number}th")


def _listed(numbers: Sequence[int | str]) -> str:
    more = f" and {len(numbers) - MAX_NAMED} more" if len(numbers) > MAX_NAMED else ""
    return ", ".join(map(str, numbers[:MAX_NAMED])) + more


def _border(wrong: Mask) -> Iterator[ErrorRegion]:
    for margin in MARGINS if wrong.ndim == 4 else ():
        mask = np.ones(wrong.shape, np.bool_)
        mask[:, margin:-margin, margin:-margin] = False
        if not mask.all() and not (wrong & ~mask).any() and _sides(wrong, margin) >= MIN_SIDES:
            yield ErrorRegion("border", "the border", mask, log2(len(MARGINS)))
            return


def _sides(wrong: Mask, margin: int) -> int:
    """Return the number of sides of which at least half is wrong, without corners."""
    flat: Mask = np.asarray(wrong.any(axis=(0, 3)))
    rows, columns = flat[margin:-margin], flat[:, margin:-margin]
    lines = (columns[:margin].any(axis=0), columns[-margin:].any(axis=0),
             rows[:, :margin].any(axis=1), rows[:, -margin:].any(axis=1))  # fmt: skip
    return sum(line.size > 0 and bool(line.mean() >= 0.5) for line in lines)


def describe_extent(mask: Mask) -> str:
    """Describe the bounding box of a region, omitting axes that it covers completely."""
    parts = []
    for axis, size in enumerate(mask.shape):
        hit = _list_indices(mask, axis)
        if 0 < hit.size < size:
            chosen = range(int(hit[0]), int(hit[-1]) + 1)
            parts.append(format_indices(chosen, get_axis_name(axis, mask.ndim), size))
    return ", ".join(parts)
