"""Patterns in wrong elements of a result, and the causes that they suggest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from nmpsim.arrays import Array, Shape
from nmpsim.debugger.error_regions import (
    ElementOwners,
    ErrorRegion,
    Mask,
    describe_extent,
    find_error_regions,
)

MIN_VALUES = 8
"""Minimum number of values that a factor or an amount is derived from."""
MIN_OFF_BY_ONE = 64
"""Minimum number of wrong elements for a frequent error of one to be significant."""
FREQUENT_SHARE = 0.05
"""Share of all elements from which an error is frequent."""

_OF_CHANNELS = " (possible causes: weights, bias, factor)"
_OF_CONSTANT = ", where the result is constant (possible causes: zero weights, clip)"


@attrs.frozen
class ErrorPattern:
    """Pattern that all wrong elements share, and commands for further investigation."""

    text: str
    next: tuple[str, ...]
    """Commands to continue with; ``L`` stands for the layer."""


@attrs.frozen
class LayerTraits:
    """Traits of a layer that determine the possible causes of an error."""

    has_weights: bool = True
    has_window: bool = True


def find_error_patterns(
    actual: Array,
    expected: Array,
    offset: int = 0,
    owners: Sequence[ElementOwners] = (),
    traits: LayerTraits = LayerTraits(),
    explained: Mask | None = None,
) -> tuple[ErrorPattern, ...]:
    """Find patterns in the positions and values of wrong elements; return () if there are none.

    Parameters
    ----------
    actual, expected : array of int
        The wrong and the right result, of one shape, channels last.
    offset : int
        Zero point, relative to which a factor is searched.
    owners : sequence of ElementOwners
        What wrote the elements.
    traits : LayerTraits
        Properties of the layer that may cause an error.
    explained : array of bool, optional
        Elements whose cause is explained already.
    """
    if actual.dtype.kind != "i" or actual.ndim < 2 or actual.shape != expected.shape:
        return ()
    others = np.ones(actual.shape, np.bool_) if explained is None else ~explained
    wrong = (actual != expected) & others
    if not wrong.any():
        return ()
    inner = _inner(actual, expected) & others
    limit = _limit(actual, expected, wrong)
    visible, traits = (inner, traits) if limit is None else (limit[1], LayerTraits(False, False))
    found = find_error_regions(wrong, visible, owners)
    patterns = list(_describe_regions(found, traits, actual))
    if limit is not None:
        return (*patterns, limit[0])
    within = found[-1].mask if found else np.ones(wrong.shape, np.bool_)
    labels = owners[-1].labels if owners else np.zeros(wrong.shape, np.int64)
    moved = find_displacement(actual, expected, wrong, labels)
    if moved is not None:
        patterns.append(_moved(moved, actual.shape, traits))
    elif not any(
        one.text.endswith((_OF_CHANNELS, _OF_CONSTANT)) for one in patterns
    ):  # it is said already
        own, other = (np.where(within, side, 0).astype(np.float64) for side in (actual, expected))
        sides = _Sides(own - offset, other - offset, wrong, within & inner)
        looks = (look(sides) for look in (_offset, _factor, _amounts, _rounding))
        patterns += filter(None, [next(filter(None, looks), None)])
    return tuple(patterns)


def _inner(actual: Array, expected: Array) -> Mask:
    """Return the elements that neither side may have clipped."""
    inner = np.ones(actual.shape, np.bool_)
    for side in (actual, expected):
        inner &= (side > side.min()) & (side < side.max())
    return inner


def _describe_regions(
    found: Sequence[ErrorRegion], traits: LayerTraits, actual: Array
) -> Iterator[ErrorPattern]:
    """Yield where the result is wrong; only the first region along the axes suggests a cause."""
    for one in found:
        own = np.unique(actual[one.mask])
        limits = np.iinfo(actual.dtype)
        is_saturated = own[0] in (limits.min, limits.max)
        if one.kind == "channel" and traits.has_weights and own.size == 1 and not is_saturated:
            hints = "constants FILE.npz", "integers L"
            yield ErrorPattern(f"only in {one.text}{_OF_CONSTANT}", hints)
        else:
            yield _describe_region(one, traits)
        if not one.places:
            traits = LayerTraits(False, False)


def _describe_region(one: ErrorRegion, traits: LayerTraits) -> ErrorPattern:
    if one.kind == "border":
        cause = " (possible causes: pads, padding value)" if traits.has_window else ""
        return ErrorPattern(f"only at the border{cause}", ("source L",))
    if one.kind == "channel":
        cause = _OF_CHANNELS if traits.has_weights else ""
        return ErrorPattern(f"only in {one.text}{cause}", ("constants FILE.npz", "integers L"))
    if one.places:
        region = describe_extent(one.mask)
        return ErrorPattern(
            f"only in elements that {one.text} stored{f' ({region})' if region else ''}", one.places
        )
    return ErrorPattern(f"only in {one.text}", ("layer L",))


@attrs.frozen(eq=False)
class _Sides:
    """Both results minus the zero point, and masks of the wrong and the measured elements."""

    own: Array
    other: Array
    wrong: Mask
    inner: Mask
    """Elements to measure by."""

    @property
    def errors(self) -> Array:
        """Error of each element."""
        return np.asarray(self.own - self.other)


def _moved(moved: Displacement, shape: Shape, traits: LayerTraits) -> ErrorPattern:
    """Describe right values in wrong places."""
    causes = "pads, strides, address" if traits.has_window else "address, stride"
    if moved.by_row or moved.by_column:
        _, _, width, channels = shape
        steps = (
            _step("row", moved.by_row, width * channels, channels),
            _step("column", moved.by_column, channels, channels),
        )
        return ErrorPattern(f"correct values, but {' and '.join(filter(None, steps))} (possible"
        " cause: stride)",
                       ("source L", "layer L"))  # fmt: skip
    return ErrorPattern(
        f"correct values moved by {_distance(moved, shape)} (possible causes: {causes})",
        ("source L",),
    )


def _step(name: str, step: float, distance: int, pixel: int) -> str:
    """Describe elements that are displaced further with each row or column."""
    if not step:
        return ""
    if 2 * step % distance == 0:
        return f"the distance of {name}s is {1 + step / distance:g} times the expected one"
    more = f"{step / pixel:g} columns" if step % pixel == 0 else f"{step:g} elements"
    return f"each {name} moved by {more} more than the one before"


def _distance(moved: Displacement, shape: Shape) -> str:
    distance = int(moved.distance)
    if len(shape) != 4:
        return f"{distance} elements"
    _, _, width, channels = shape
    rest, channel = divmod(distance + channels // 2, channels)
    row, column = divmod(rest + width // 2, width)
    channel, column = channel - channels // 2, column - width // 2
    if channel and not row and not column:
        return f"{channel} channels"
    if channel:
        return f"{row} rows, {column} columns and {channel} channels"
    return f"{row} rows and {column} columns"


def _factor(side: _Sides) -> ErrorPattern | None:
    """Detect a constant factor."""
    a, e = side.own[side.inner], side.other[side.inner]
    if a.size < MIN_VALUES or (a == e).mean() > 0.5 or not (e * e).sum():
        return None
    factor = float((a * e).sum() / (e * e).sum())
    if abs(factor - 1) * np.abs(e).max() < 3 or abs(factor - 1) <= 0.02:
        return None
    if np.abs(a - factor * e).max() > 1 + abs(factor) / 2:
        return None
    return ErrorPattern(
        f"{factor:.3g} times the expected values (possible cause: factor)", ("integers L",)
    )


def _offset(side: _Sides) -> ErrorPattern | None:
    """Detect a constant difference."""
    errors = side.errors[side.inner]
    if errors.size < MIN_VALUES:
        return None
    values, counts = np.unique(errors, return_counts=True)
    amount = int(values[counts.argmax()])
    if not amount or counts.max() < 0.9 * errors.size:
        return None
    much = f"{abs(amount)} too {'large' if amount > 0 else 'small'}"
    if abs(amount) == 1:
        return ErrorPattern(
            f"all values are {much} (possible causes: zero point, rounding)", ("integers L",)
        )
    return ErrorPattern(
        f"all values are {much} (possible causes: zero point, offset)", ("layer L", "integers L")
    )


def _amounts(side: _Sides) -> ErrorPattern | None:
    """Detect a constant difference for each channel or for each pixel."""
    if np.count_nonzero(side.errors[side.inner]) < 0.5 * np.count_nonzero(side.inner) + 1:
        return None
    errors = np.where(side.inner, side.errors, np.nan).reshape(-1, side.own.shape[-1])
    if _has_constant_lines(errors):
        text = "each channel has a constant error (possible causes: bias, zero point)"
        return ErrorPattern(text, ("layer L", "constants FILE.npz"))
    if _has_constant_lines(errors.T):
        text = (
            "each pixel has the same error in all channels (possible cause: zero point of weights)"
        )
        return ErrorPattern(text, ("layer L", "integers L"))
    return None


def _has_constant_lines(errors: Array) -> bool:
    """Return whether each line of [elements, lines] has one difference, and not all the same."""
    known = errors[:, (~np.isnan(errors)).sum(axis=0) > 1]
    if np.count_nonzero(~np.isnan(known)) < max(MIN_VALUES, 3 * known.shape[1]):
        return False
    middle = np.nanmedian(known, axis=0)
    near = np.abs(known - middle)[~np.isnan(known)] <= 1
    return bool(near.mean() >= 0.95 and np.ptp(middle) > 2)


def _limit(actual: Array, expected: Array, wrong: Mask) -> tuple[ErrorPattern, Mask] | None:
    """Detect a limit that is too narrow or missing, and the elements that it makes wrong.

    The wrong elements all have one value and should be beyond it, or the reverse.
    """
    if np.count_nonzero(wrong) < MIN_VALUES:
        return None
    sign = 1 if expected[wrong][0] > actual[wrong][0] else -1  # the wrong ones become too small
    low, high = (sign * side.astype(np.int64) for side in (actual, expected))
    own, other = low[wrong], high[wrong]
    if (own == own[0]).all() and (other > own[0]).all() and own[0] > low.min():
        text, visible = (
            f"are {sign * own[0]}, but should exceed it (possible cause: clip)",
            high > own[0],
        )
    elif (other == other[0]).all() and (own < other[0]).all() and other[0] == high.min():
        text = f"exceed the expected {sign * other[0]} (possible causes: clip, activation)"
        visible = high == other[0]
    else:
        return None
    pattern = ErrorPattern(f"all of the wrong elements {text}", ("layer L", "source L"))
    return pattern, np.asarray(visible)


def _rounding(side: _Sides) -> ErrorPattern | None:
    """Detect frequent differences of at most one."""
    errors = side.errors[side.wrong]
    is_frequent = errors.size >= max(
        MIN_OFF_BY_ONE, FREQUENT_SHARE * np.count_nonzero(side.inner | side.wrong)
    )
    if not is_frequent or np.abs(errors).max() > 1:
        return None
    return ErrorPattern("all differences are 1", ("integers L",))


# --- right values in wrong places -------------------------------------------------------------

WINDOW = 8
"""Number of consecutive elements by which a place is recognized."""
MIN_FOUND = 8
"""Minimum number of recognized places."""
MIN_SHARE = 0.25
"""Minimum share of recognized places; strides also lead to places that occur nowhere else."""
MAX_PARTS = 4
"""Number of parts that are examined, those with most recognized places first."""
_FACTORS = np.array([0x9E3779B97F4A7C15 * (2 * n + 1) % 2**64 | 1 for n in range(WINDOW)],
                    np.uint64)  # fmt: skip


@attrs.frozen
class Displacement:
    """Displacement of values in elements, from the expected to the actual positions."""

    distance: float
    by_row: float = 0.0
    """Additional distance for each row."""
    by_column: float = 0.0


def find_displacement(
    own: Array, expected: Array, wrong: Mask, parts: Array
) -> Displacement | None:
    """Return the displacement of correct but misplaced values, or None if there is none.

    A place is recognized by ``WINDOW`` consecutive elements that occur only once. ``parts`` numbers
    the part of each element: strides start again in each part.
    """
    here, there, asked = _recognize(own, expected, wrong)
    if here.size < max(MIN_FOUND, MIN_SHARE * asked.size):
        return None
    distance = here - there
    values, counts = np.unique(distance, return_counts=True)
    if counts.max() >= 0.6 * here.size:
        return Displacement(float(values[counts.argmax()]))
    if own.ndim != 4:
        return None
    labels = parts.reshape(-1)
    names, sizes = np.unique(labels[here], return_counts=True)
    for name in names[np.argsort(-sizes, kind="stable")][:MAX_PARTS]:
        count = np.count_nonzero(labels[asked] == name)
        for same in _candidate_masks(here, there, own.shape):
            chosen = (labels[here] == name) & same
            if np.count_nonzero(chosen) >= max(MIN_FOUND, MIN_SHARE * count):
                found = _fit_stretch(there[chosen], distance[chosen], own.shape)
                if found is not None:
                    return found
    return None


def _candidate_masks(here: Array, there: Array, shape: Shape) -> Iterator[Mask]:
    """Yield all places; those that stay in their row; those that stay in their column."""
    yield np.ones(here.size, np.bool_)
    own, right = np.unravel_index(here, shape), np.unravel_index(there, shape)
    for axis in (1, 2):
        yield np.asarray(own[axis] == right[axis])


def _recognize(own: Array, expected: Array, wrong: Mask) -> tuple[Array, Array, Array]:
    """Return recognized places, where their values belong, and all places that were searched."""
    if own.size < WINDOW:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing
    (ours, at), (right, there) = map(_list_unique_windows, (own, expected))
    channels = own.shape[-1]
    # What is next to a pixel may be another one than where it belongs.
    is_whole = at % channels <= channels - WINDOW if channels >= WINDOW else True
    chosen = wrong.reshape(-1)[at] & is_whole
    ours, at = ours[chosen], at[chosen]
    _, found, known = np.intersect1d(ours, right, assume_unique=True, return_indices=True)
    return at[found], there[known], at


def _list_unique_windows(values: Array) -> tuple[Array, Array]:
    """Return the sorted hashes of the windows that occur once, and the places of the windows."""
    hashes = _hash_windows(values.reshape(-1))
    found, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    return found[counts == 1], first[counts == 1]


def _hash_windows(values: Array) -> Array:
    """Return a hash of each window; values of one byte have no collisions."""
    windows = np.lib.stride_tricks.sliding_window_view(values, WINDOW)
    words = np.ascontiguousarray(windows).view(np.uint64)
    return np.asarray((words * _FACTORS[: words.shape[1]]).sum(axis=1))


def _fit_stretch(there: Array, distance: Array, shape: Shape) -> Displacement | None:
    """Return a displacement that grows from row to row or from column to column, or None."""
    _, rows, columns, _ = np.unravel_index(there, shape)
    terms = np.stack([np.ones(there.size), rows, columns], axis=1)
    kept = np.ones(there.size, np.bool_)
    for _ in range(6):  # without what was recognized by accident
        solution = np.linalg.lstsq(terms[kept], distance[kept], rcond=None)[0]
        errors = np.abs(terms @ solution - distance)
        kept = errors <= max(float(np.median(errors[kept])), 0.25)
    if (errors < 0.5).mean() < 0.8 or np.abs(solution[1:]).max() < 0.4:
        return None
    distance_, by_row, by_column = (float(np.round(one * 2) / 2) for one in solution)
    return Displacement(distance_, by_row, by_column)
