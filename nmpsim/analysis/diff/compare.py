"""Two runs tensor by tensor, matched by the names of LIR instructions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.diff.pairs import order_of, pair, permuted
from nmpsim.analysis.diff.printed import stored
from nmpsim.analysis.diff.tensors import Tensor, Values
from nmpsim.analysis.difference import (
    EXACT,
    Difference,
    Element,
    Tolerance,
    compare,
    real_values,
)
from nmpsim.diagnostics import fail
from nmpsim.lir.nodes import ELEM_DTYPES

Array = npt.NDArray[Any]


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
    is_real: bool = False
    """True if real values are compared, for one of the two is not quantized."""

    @property
    def worst_ulp(self) -> int:
        """The largest distance in units of the last place, 0 if there is none to tell."""
        return 0 if self.difference is None else self.difference.worst_ulp

    @property
    def differs(self) -> bool:
        """True unless all that is known is the same, or near enough."""
        return self.difference is None or self.difference.beyond > 0


@attrs.frozen
class RunDifference:
    """Two runs; tensors are in the order of the second, the run in question."""

    tensors: tuple[TensorDifference, ...]
    only_first: tuple[str, ...]
    """Instructions whose result only the first run has."""
    only_second: tuple[str, ...]
    tolerance: Tolerance
    """What does not count."""
    float_unknown: str | None = None
    """The last float32 result before the first difference, if only the second run has it."""

    @property
    def differing(self) -> tuple[TensorDifference, ...]:
        """Those that differ."""
        return tuple(one for one in self.tensors if one.differs)

    @property
    def float_before(self) -> TensorDifference | None:
        """A float32 result that differs before any quantized one does; None if there is none."""
        first = next(iter(self.differing), None)
        quantized = any(one.elem != "float" for one in self.differing)
        return first if first is not None and first.elem == "float" and quantized else None

    @property
    def worst(self) -> TensorDifference | None:
        """Of those with a number the one with the least SQNR, if all have one.

        Else the one that is furthest off in units of the last place.
        """
        told = [one for one in self.differing if one.difference is not None]
        if all(one.has_scale for one in told):
            return min(told, key=_sqnr, default=None)
        return max(told, key=lambda one: one.worst_ulp, default=None)


def compare_runs(
    first: Iterable[Tensor],
    second: Iterable[Tensor],
    *,
    layout: str = "auto",
    tolerance: Tolerance = EXACT,
    parameters: Mapping[str, Parameters] | None = None,
    names: Mapping[str, str] | None = None,
    origins: Mapping[str, str] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> RunDifference:
    """Compare what two runs have in common.

    Args:
        first: tensors of the run before, or of the one that is taken for right.
        second: tensors of the run in question.
        layout: one of LAYOUTS; auto turns a tensor whose shape says so.
        tolerance: up to which elements count as equal.
        parameters: scale and offset of results by instruction.
        names: what the first run calls a result of the second, first name -> second name.
        origins: the operation of a model's file that an instruction of the second run comes from.
        progress: called after every tensor with its number, their count and its name.

    Raises:
        UserError: DIFF001 if they have nothing in common, or not what ``names`` says; what reading
            a tensor raises.
    """
    mine, theirs = list(second), list(first)
    pairs = pair(mine, theirs, names or {}, origins or {})
    if not pairs:
        raise fail(
            "DIFF001",
            "the two have no tensor in common",
            found=f"{_names(theirs)} and {_names(mine)}",
            hint="tensors are matched by the names of LIR instructions; --map says other names",
        )
    differences = []
    for number, (one, other) in enumerate(pairs, 1):
        found = compare_tensors(one, other, layout, parameters or {}, tolerance)
        differences.append(found)
        if progress is not None:
            progress(number, len(pairs), one.name)
    known, known_first = ({pair[side].name for pair in pairs} for side in (0, 1))
    only = _rest(theirs, known_first), _rest(mine, known)
    differing = next((one.name for one in differences if one.differs), None)
    before = list(takewhile(lambda one: one.name != differing, mine)) if differing else []
    unknown = next((one.name for one in reversed(before) if _is_float_result(one)), None)
    return RunDifference(
        tuple(differences), *only, tolerance, unknown if unknown in only[1] else None
    )


def _is_float_result(one: Tensor) -> bool:
    return one.is_result and one.load().array.dtype.kind == "f"


def compare_tensors(
    one: Tensor,
    other: Tensor,
    layout: str,
    parameters: Mapping[str, Parameters],
    tolerance: Tolerance = EXACT,
) -> TensorDifference:
    """How far ``one``, of the run in question, is from ``other``."""
    values, turned, problem = _alike(one.load(), other.load(), layout)
    type = one.type or other.type
    known = _parameters(one, other, parameters)
    elem = type.elem if type is not None else _elem_of(values[0].array.dtype, known)
    kinds = [each.array.dtype.kind for each in values]
    is_real = not problem and known is not None and sorted(kinds) in (["f", "i"], ["f", "u"])
    if is_real and known is not None and kinds[0] == "f":
        stored_elem = _elem_of(values[1].array.dtype, known)
        real = real_values(values[1].array, stored_elem, known.scale, known.offset)
        values = values[0], attrs.evolve(values[1], array=real.astype(values[0].array.dtype))
    if not (problem or is_real) and values[0].array.dtype != values[1].array.dtype:
        problem = f"types differ: {values[1].array.dtype} in the first, "
        problem += f"{values[0].array.dtype} in the second"
        if "f" in kinds:
            problem += "; --bundle tells what the integers stand for"
    difference = None
    if not problem:
        difference = _difference(values, elem, known if kinds[0] != "f" else None, tolerance)
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
        has_scale=known is not None or kinds[0] not in "iu",
        is_real=is_real,
    )


def _alike(mine: Values, theirs: Values, layout: str) -> tuple[tuple[Values, Values], str, str]:
    """Both in one shape; the layout of theirs, if turned; why they are not alike."""
    order = order_of(mine.shape, theirs.shape, layout)
    if order is None:
        found = f"{_shape(theirs.shape)} in the first, {_shape(mine.shape)} in the second"
        return (mine, theirs), "", f"shapes differ: {found}"
    mine, theirs = _typed(mine, theirs), _typed(theirs, mine)
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


def _turned(values: Values, axes: tuple[int, ...]) -> Values:
    def turn(flat: Array) -> Array:
        return flat.reshape(values.shape).transpose(axes).reshape(-1)

    tolerance = values.tolerance
    return attrs.evolve(
        values,
        shape=permuted(values.shape, axes),
        array=turn(values.array),
        tolerance=turn(tolerance) if isinstance(tolerance, np.ndarray) else tolerance,
    )


def _difference(
    values: tuple[Values, Values],
    elem: str,
    parameters: Parameters | None,
    tolerance: Tolerance,
) -> Difference:
    """Of the elements that both tell; what a printed number may stand for is equal to it."""
    mine, theirs = values
    count = min(mine.array.size, theirs.array.size)
    actual, expected = mine.array[:count], theirs.array[:count]
    printed = _first(mine.tolerance, count) + _first(theirs.tolerance, count)
    if not np.array_equal(printed, 0):
        with np.errstate(invalid="ignore"):
            near = np.abs(actual.astype(np.float64) - expected.astype(np.float64)) <= printed
        expected = np.where(near, actual, expected)
    scale, offset = (parameters.scale, parameters.offset) if parameters else (None, None)
    found = compare(actual, expected, elem, scale, offset, tolerance)
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


def _elem_of(dtype: np.dtype[Any], known: Parameters | None) -> str:
    """uint16 is what NumPy has for bfloat16, which has no scale, too."""
    if dtype == np.uint16 and known is not None:
        return "ui16"
    return next((name for name, known in ELEM_DTYPES.items() if known == dtype), dtype.name)


def _sqnr(one: TensorDifference) -> float:
    """A NaN is worse than any number."""
    sqnr = math.inf if one.difference is None else one.difference.sqnr_db
    return -math.inf if math.isnan(sqnr) else sqnr


def _rest(tensors: Sequence[Tensor], known: set[str]) -> tuple[str, ...]:
    return tuple(one.name for one in tensors if one.is_result and one.name not in known)


def _names(tensors: Sequence[Tensor]) -> str:
    some = ", ".join(one.name for one in tensors[:3])
    return f"{some}, ..." if len(tensors) > 3 else some or "nothing"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
