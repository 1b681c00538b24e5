"""Two runs tensor by tensor, matched by the names of LIR instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.diff.printed import stored
from nmpsim.analysis.diff.tensors import Tensor, Values
from nmpsim.analysis.difference import Difference, Element, compare
from nmpsim.diagnostics import fail
from nmpsim.lir.nodes import ELEM_DTYPES

Array = npt.NDArray[Any]

LAYOUTS = ("auto", "same", "nchw", "nhwc")
"""What the first run's tensors of four dimensions are, where the second's are the other."""
_TO_NHWC, _TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
_ORDERS = {"nchw": (_TO_NHWC, "NCHW"), "nhwc": (_TO_NCHW, "NHWC")}


@attrs.frozen
class Parameters:
    """Scale and offset of a quantized result."""

    scale: float
    offset: int


@attrs.frozen
class TensorDifference:
    """What became of one tensor that both runs have."""

    name: str
    operand: str | None
    """Which of the instruction's; None for its result."""
    number: int | None
    elem: str
    shape: tuple[int, ...]
    compared: int
    """Elements that both runs tell."""
    difference: Difference | None
    """None if they cannot be compared."""
    problem: str = ""
    """Why not."""
    renamed: str = ""
    """What the first run calls it, if it is matched by its number."""
    turned: str = ""
    """Layout of the first run's tensor, if it is another than the second's."""
    has_scale: bool = False
    """False if real values, and so their SQNR, are not known."""

    @property
    def worst_ulp(self) -> int:
        """The largest distance in units of the last place, 0 if there is none to tell."""
        return 0 if self.difference is None else self.difference.worst_ulp

    def differs(self, within: int) -> bool:
        """True unless all that is known is the same, up to ``within`` units of the last place."""
        return self.difference is None or self.worst_ulp > within


@attrs.frozen
class RunDifference:
    """Two runs; tensors are in the order of the second, the run in question."""

    tensors: tuple[TensorDifference, ...]
    only_first: tuple[str, ...]
    """Instructions whose result only the first run has."""
    only_second: tuple[str, ...]
    within: int
    """Units of the last place that do not count."""

    @property
    def differing(self) -> tuple[TensorDifference, ...]:
        """Those that differ."""
        return tuple(one for one in self.tensors if one.differs(self.within))

    @property
    def worst(self) -> TensorDifference | None:
        """Of those with a number, the one that is furthest off in units of the last place."""
        told = [one for one in self.differing if one.difference is not None]
        return max(
            told, key=lambda one: one.difference.worst_ulp if one.difference else 0, default=None
        )


def compare_runs(
    first: Iterable[Tensor],
    second: Iterable[Tensor],
    *,
    layout: str = "auto",
    within: int = 0,
    parameters: Mapping[str, Parameters] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> RunDifference:
    """Compare what two runs have in common.

    Args:
        first: tensors of the run before, or of the one that is taken for right.
        second: tensors of the run in question.
        layout: one of LAYOUTS; auto turns a tensor whose shape says so.
        within: units of the last place up to which tensors count as equal.
        parameters: scale and offset of results by instruction.
        progress: called after every tensor with its number, their count and its name.

    Raises:
        UserError: DIFF001 if they have nothing in common; what reading a tensor raises.
    """
    mine, theirs = list(second), list(first)
    pairs = _with_renamed(list(_pairs(mine, theirs)), mine, theirs)
    if not pairs:
        raise fail(
            "DIFF001",
            "the two have no tensor in common",
            found=f"{_names(theirs)} and {_names(mine)}",
            hint="tensors are matched by the names of LIR instructions",
        )
    differences = []
    for number, (one, other) in enumerate(pairs, 1):
        differences.append(compare_tensors(one, other, layout, parameters or {}))
        if progress is not None:
            progress(number, len(pairs), one.name)
    known, known_first = ({pair[side].name for pair in pairs} for side in (0, 1))
    only = _rest(theirs, known_first), _rest(mine, known)
    return RunDifference(tuple(differences), *only, within)


def compare_tensors(
    one: Tensor, other: Tensor, layout: str, parameters: Mapping[str, Parameters]
) -> TensorDifference:
    """How far ``one``, of the run in question, is from ``other``."""
    values, turned, problem = _alike(one.load(), other.load(), layout)
    type = one.type or other.type
    elem = type.elem if type is not None else _elem_of(values[0].array.dtype)
    known = _parameters(one, other, parameters)
    difference = None
    if not problem:
        difference = _difference(values, elem, known)
    return TensorDifference(
        name=one.name,
        operand=None if one.is_result else one.operand,
        number=one.number if one.number is not None else other.number,
        elem=elem,
        shape=values[0].shape,
        compared=0 if difference is None else difference.elements,
        difference=difference,
        problem=problem,
        renamed=other.name if other.name != one.name else "",
        turned=turned,
        has_scale=known is not None or values[0].array.dtype.kind not in "iu",
    )


def _pairs(mine: Sequence[Tensor], theirs: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """By name and operand; a result also where operands are called by other names."""
    by_operand = {(one.name, one.operand): one for one in theirs}
    results = {one.name: one for one in theirs if one.is_result}
    for one in mine:
        other = by_operand.get((one.name, one.operand))
        if other is None and one.is_result:
            other = results.get(one.name)
        if other is not None:
            yield one, other


def _with_renamed(
    pairs: list[tuple[Tensor, Tensor]], mine: Sequence[Tensor], theirs: Sequence[Tensor]
) -> list[tuple[Tensor, Tensor]]:
    """Also results that only one run has by name, of the same number, shape and type; in order."""
    known = [{pair[side].name for pair in pairs} for side in (0, 1)]
    left = [
        {one.number: one for one in run if one.is_result and one.name not in names}
        for run, names in zip((mine, theirs), known, strict=True)
    ]
    numbers = (left[0].keys() & left[1].keys()) - {None}
    renamed = [(left[0][n], left[1][n]) for n in numbers if _same_form(left[0][n], left[1][n])]
    place = {id(one): index for index, one in enumerate(mine)}
    return sorted([*pairs, *renamed], key=lambda pair: place[id(pair[0])])


def _same_form(one: Tensor, other: Tensor) -> bool:
    values = one.load(), other.load()
    return values[0].shape == values[1].shape and values[0].array.dtype == values[1].array.dtype


def _alike(mine: Values, theirs: Values, layout: str) -> tuple[tuple[Values, Values], str, str]:
    """Both in one shape and type; the layout of theirs, if turned; why they are not alike."""
    order = _order(mine.shape, theirs.shape, layout)
    if order is None:
        found = f"{_shape(theirs.shape)} in the first, {_shape(mine.shape)} in the second"
        return (mine, theirs), "", f"shapes differ: {found}"
    mine, theirs = _typed(mine, theirs), _typed(theirs, mine)
    if mine.array.dtype != theirs.array.dtype:
        found = f"{theirs.array.dtype} in the first, {mine.array.dtype} in the second"
        return (mine, theirs), "", f"types differ: {found}"
    axes, name = order
    if axes == ():
        return (mine, attrs.evolve(theirs, shape=mine.shape)), "", ""
    if theirs.is_whole:
        return (mine, _turned(theirs, axes)), name, ""
    if mine.is_whole:
        return (_turned(mine, tuple(int(axis) for axis in np.argsort(axes))), theirs), name, ""
    return (mine, theirs), "", "neither is there as a whole, and their layouts differ"


def _typed(values: Values, by: Values) -> Values:
    """Printed numbers as elements of the other's type, if that is known."""
    if values.is_typed or not by.is_typed:
        return values
    return attrs.evolve(values, array=stored(values.array, by.array.dtype), is_typed=True)


def _order(
    mine: tuple[int, ...], theirs: tuple[int, ...], layout: str
) -> tuple[tuple[int, ...], str] | None:
    """How to turn the axes of theirs into those of mine, () for not at all, and their layout."""
    if layout in _ORDERS and len(mine) == len(theirs) == 4:
        axes, name = _ORDERS[layout]
        return (axes, name) if _permuted(theirs, axes) == mine else None
    if [n for n in mine if n != 1] == [n for n in theirs if n != 1]:
        return (), ""
    if layout == "auto" and len(mine) == len(theirs) == 4:
        for axes, name in _ORDERS.values():
            if _permuted(theirs, axes) == mine:
                return axes, name
    return None


def _permuted(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape[axis] for axis in axes)


def _turned(values: Values, axes: tuple[int, ...]) -> Values:
    def turn(flat: Array) -> Array:
        return flat.reshape(values.shape).transpose(axes).reshape(-1)

    tolerance = values.tolerance
    return attrs.evolve(
        values,
        shape=_permuted(values.shape, axes),
        array=turn(values.array),
        tolerance=turn(tolerance) if isinstance(tolerance, np.ndarray) else tolerance,
    )


def _difference(
    values: tuple[Values, Values], elem: str, parameters: Parameters | None
) -> Difference:
    """Of the elements that both tell; what a printed number may stand for is equal to it."""
    mine, theirs = values
    count = min(mine.array.size, theirs.array.size)
    actual, expected = mine.array[:count], theirs.array[:count]
    tolerance = _first(mine.tolerance, count) + _first(theirs.tolerance, count)
    if not np.array_equal(tolerance, 0):
        with np.errstate(invalid="ignore"):
            near = np.abs(actual.astype(np.float64) - expected.astype(np.float64)) <= tolerance
        expected = np.where(near, actual, expected)
    scale, offset = (parameters.scale, parameters.offset) if parameters else (None, None)
    found = compare(actual, expected, elem, scale, offset)
    return attrs.evolve(
        found,
        shape=mine.shape,
        first=_placed(found.first, mine.shape),
        worst=_placed(found.worst, mine.shape),
    )


def _first(tolerance: float | Array, count: int) -> Any:
    return tolerance[:count] if isinstance(tolerance, np.ndarray) else tolerance


def _placed(element: Element | None, shape: tuple[int, ...]) -> Element | None:
    if element is None:
        return None
    at = tuple(int(index) for index in np.unravel_index(element.at[0], shape))
    return attrs.evolve(element, at=at)


def _parameters(one: Tensor, other: Tensor, known: Mapping[str, Parameters]) -> Parameters | None:
    if one.is_result and one.name in known:
        return known[one.name]
    quant = next((t.type.quant for t in (one, other) if t.type is not None and t.type.quant), None)
    return None if quant is None else Parameters(quant.scale, quant.offset)


def _elem_of(dtype: np.dtype[Any]) -> str:
    return next((name for name, known in ELEM_DTYPES.items() if known == dtype), dtype.name)


def _rest(tensors: Sequence[Tensor], known: set[str]) -> tuple[str, ...]:
    return tuple(one.name for one in tensors if one.is_result and one.name not in known)


def _names(tensors: Sequence[Tensor]) -> str:
    some = ", ".join(one.name for one in tensors[:3])
    return f"{some}, ..." if len(tensors) > 3 else some or "nothing"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
