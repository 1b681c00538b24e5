"""Comparison of two runs, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Annotated, Any

import attrs
import numpy as np

from nmpsim.analysis.diff.printed import convert_to_type
from nmpsim.analysis.difference import (
    EXACT,
    OutputDifference,
    Tolerance,
    compare_outputs,
    dequantize_values,
    rank_sqnr,
)
from nmpsim.analysis.matching import (
    KnownValues,
    StoredTensor,
    TensorPair,
    convert_unsigned,
    find_axis_order,
    match_tensors,
    permute_shape,
    suggest_mapping,
)
from nmpsim.arrays import Array, Shape
from nmpsim.diagnostics import fail
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.report.fields import FLAT, OR_NULL, WrittenBefore, get_path_value


@attrs.frozen
class QuantizationParameters:
    """Scale and zero point of a quantized result."""

    scale: float
    offset: int


@attrs.frozen
class TensorDifference:
    """Difference of one tensor between two runs; it may be zero."""

    name: str
    name_in_first: Annotated[str, OR_NULL, "its name in the first run, if different"]
    matched_by: Annotated[str, "map, name, spelling, ending, number, order or values"]
    is_out_of_order: Annotated[bool, "the names match, but contradict the order of the others"]
    operand: Annotated[str | None, "which of the instruction's; null for its result"]
    number: int | None
    elem: str
    shape: Shape
    compared_elements: Annotated[int, "elements that both runs have"]
    problem: Annotated[str, OR_NULL, "why they cannot be compared"]
    """Empty if they can."""
    layout_of_first: Annotated[str, OR_NULL, "if it is another than the second's"]
    compared_as_real: Annotated[bool, "one of the two is not quantized: real values are compared"]
    difference: Annotated[OutputDifference | None, FLAT]
    """Measures of the difference; None if the tensors cannot be compared."""

    @property
    def worst_ulp(self) -> int:
        """Largest difference in units of the last place, or 0 if unknown."""
        return 0 if self.difference is None else self.difference.worst_ulp

    @property
    def differs(self) -> Annotated[bool, WrittenBefore("problem")]:
        """Whether the tensors differ by more than the tolerance or cannot be compared."""
        return self.difference is None or self.difference.beyond > 0


@attrs.frozen
class RunDifference:
    """Difference between two runs: comparisons of tensors in the order of the second run."""

    tensors: tuple[TensorDifference, ...]
    only_first: tuple[str, ...]
    """Names of results that only the first run has."""
    only_second: tuple[str, ...]
    tolerance: Tolerance
    """Differences up to which elements count as equal."""
    layout_of_first: Annotated[str, "of its 4-D tensors: same, nchw or nhwc"] = "same"
    coverage: str = ""
    """Description of the results that were compared and of those that were not."""
    float_unknown: str | None = None
    """Last float32 result before the first difference, if the first run lacks it."""
    first_wrong: str | None = None
    """First layer that differs with the first run's values as inputs; None if unknown."""
    causes: tuple[str, ...] = ()
    """Likely causes of this layer's errors, most likely first."""

    @property
    def differing(self) -> tuple[TensorDifference, ...]:
        """Tensors that differ or cannot be compared."""
        return tuple(one for one in self.tensors if one.differs)

    @property
    def float_before(self) -> TensorDifference | None:
        """First differing tensor if it is float32 and quantized tensors differ, otherwise None."""
        first = next(iter(self.differing), None)
        quantized = any(one.elem != "float" for one in self.differing)
        return first if first is not None and first.elem == "float" and quantized else None

    @property
    def worst_tensor(self) -> TensorDifference | None:
        """Differing tensor with the lowest SQNR (largest ulp if unscaled), or None if all agree."""
        measured = [one for one in self.differing if one.difference is not None]
        if all(get_path_value(one.difference, "sqnr_db") is not None for one in measured):
            return min(measured, key=lambda one: rank_sqnr(one.difference), default=None)
        return max(measured, key=lambda one: one.worst_ulp, default=None)


def compare_runs(
    first: Iterable[StoredTensor],
    second: Iterable[StoredTensor],
    *,
    layout: str = "auto",
    tolerance: Tolerance = EXACT,
    parameters: Mapping[str, QuantizationParameters] | None = None,
    names: Mapping[str, str] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> RunDifference:
    """Compare all tensors that two runs share.

    Parameters
    ----------
    first
        Tensors of the reference run.
    second
        Tensors of the run to check.
    layout
        One of LAYOUTS; auto transposes a tensor if its shape requires it.
    tolerance
        Limits within which elements count as equal.
    parameters
        Scale and offset of results by instruction.
    names
        Name in the first run -> name in the second run.
    progress
        Called after each tensor with its number, the count and its name.

    Raises
    ------
    UserError
        DIFF001 if the runs have no common tensor, or lack one in ``names``; errors of
        reading a tensor.
    """
    mine, theirs = list(second), list(first)
    matching = match_tensors(mine, theirs, names, layout)
    if not matching.pairs:
        raise fail(
            "DIFF001",
            "the runs have no tensor in common",
            found=f"{_list_names(theirs)} in the first run, {_list_names(mine)} in the second",
            expected="at least one name in both runs",
            hint=suggest_mapping(mine, theirs),
        )
    differences = []
    for number, pair in enumerate(matching.pairs, 1):
        found = compare_tensors(pair, matching.layout, parameters or {}, tolerance)
        differences.append(found)
        if progress is not None:
            progress(number, len(matching.pairs), pair.tensor.name)
    only_first = tuple(one.name for one in matching.unmatched_references)
    only_second = tuple(one.name for one in matching.unmatched)
    differing = next((one.name for one in differences if one.differs), None)
    before = list(takewhile(lambda one: one.name != differing, mine)) if differing else []
    unknown = next((one.name for one in reversed(before) if _is_float_result(one)), None)
    return RunDifference(
        tuple(differences),
        only_first,
        only_second,
        tolerance,
        matching.layout,
        matching.describe_coverage("results"),
        unknown if unknown in only_second else None,
    )


def _is_float_result(one: StoredTensor) -> bool:
    return one.is_result and one.load().array.dtype.kind == "f"


def compare_tensors(
    pair: TensorPair,
    layout: str,
    parameters: Mapping[str, QuantizationParameters],
    tolerance: Tolerance = EXACT,
) -> TensorDifference:
    """Compare a tensor with the matching tensor of a reference run.

    Parameters
    ----------
    pair
        Tensor of the run to check and of the reference run.
    layout
        Layout of the reference: same, nchw or nhwc.
    parameters
        Scale and zero point of results by instruction.
    tolerance
        Differences up to which elements count as equal.
    """
    tensor, reference = pair.tensor, pair.reference
    values, source_layout, problem = _with_equal_shapes(tensor.load(), reference.load(), layout)
    type = tensor.type or reference.type
    known = _parameters(tensor, reference, parameters)
    elem = type.elem if type is not None else _element_kind(values[0].array.dtype, known)
    kinds = [each.array.dtype.kind for each in values]
    is_real = not problem and known is not None and sorted(kinds) in (["f", "i"], ["f", "u"])
    if is_real and known is not None and kinds[0] == "f":
        stored_elem = _element_kind(values[1].array.dtype, known)
        real = dequantize_values(values[1].array, stored_elem, known.scale, known.offset)
        values = values[0], attrs.evolve(values[1], array=real.astype(values[0].array.dtype))
    if not (problem or is_real) and values[0].array.dtype != values[1].array.dtype:
        problem = f"types differ: {values[1].array.dtype} in the first, "
        problem += f"{values[0].array.dtype} in the second"
        if "f" in kinds:
            problem += "; pass --bundle to compare real values"
    difference = None
    if not problem:
        difference = _difference(values, elem, known if kinds[0] != "f" else None, tolerance)
    return TensorDifference(
        name=tensor.name,
        name_in_first=reference.name if reference.name != tensor.name else "",
        matched_by=pair.how,
        is_out_of_order=pair.is_out_of_order,
        operand=None if tensor.is_result else tensor.operand,
        number=tensor.number if tensor.number is not None else reference.number,
        elem=elem,
        shape=values[0].shape,
        compared_elements=0 if difference is None else difference.elements,
        problem=problem,
        layout_of_first=source_layout,
        compared_as_real=is_real,
        difference=difference,
    )


def _with_equal_shapes(
    mine: KnownValues, theirs: KnownValues, layout: str
) -> tuple[tuple[KnownValues, KnownValues], str, str]:
    """Return both in one shape, the layout of the second if transposed, and why not comparable."""
    order = find_axis_order(mine.shape, theirs.shape, layout)
    if order is None:
        found = (
            f"{_format_shape(theirs.shape)} in the first, {_format_shape(mine.shape)} in the second"
        )
        return (mine, theirs), "", f"shapes differ: {found}"
    mine, theirs = _convert_printed(mine, theirs), _convert_printed(theirs, mine)
    mine, theirs = (
        attrs.evolve(one, array=convert_unsigned(one.array, other.array.dtype))
        for one, other in ((mine, theirs), (theirs, mine))
    )
    axes, name = order, layout.upper()
    if axes == ():
        return (mine, attrs.evolve(theirs, shape=mine.shape)), "", ""
    if theirs.is_complete:
        return (mine, _transpose(theirs, axes)), name, ""
    if mine.is_complete:
        return (_transpose(mine, tuple(int(axis) for axis in np.argsort(axes))), theirs), name, ""
    return (mine, theirs), "", "both tensors are incomplete, and their layouts differ"


def _convert_printed(values: KnownValues, by: KnownValues) -> KnownValues:
    """Convert printed numbers to the other tensor's element type, if that is known."""
    if values.is_typed or not by.is_typed:
        return values
    return attrs.evolve(values, array=convert_to_type(values.array, by.array.dtype), is_typed=True)


def _transpose(values: KnownValues, axes: tuple[int, ...]) -> KnownValues:
    def turn(flat: Array) -> Array:
        return flat.reshape(values.shape).transpose(axes).reshape(-1)

    tolerance = values.tolerance
    return attrs.evolve(
        values,
        shape=permute_shape(values.shape, axes),
        array=turn(values.array),
        tolerance=turn(tolerance) if isinstance(tolerance, np.ndarray) else tolerance,
    )


def _difference(
    values: tuple[KnownValues, KnownValues],
    elem: str,
    parameters: QuantizationParameters | None,
    tolerance: Tolerance,
) -> OutputDifference:
    """Compare the elements known in both; equal within the precision of printed numbers."""
    mine, theirs = values
    count = min(mine.array.size, theirs.array.size)
    actual, expected = mine.array[:count], theirs.array[:count]
    printed = _first_elements(mine.tolerance, count) + _first_elements(theirs.tolerance, count)
    if not np.array_equal(printed, 0):
        with np.errstate(invalid="ignore"):
            near = np.abs(actual.astype(np.float64) - expected.astype(np.float64)) <= printed
        expected = np.where(near, actual, expected)
    scale, offset = (parameters.scale, parameters.offset) if parameters else (None, None)
    found = compare_outputs(actual, expected, elem, scale, offset, tolerance, mine.shape)
    if scale is None and actual.dtype.kind in "iu":
        return attrs.evolve(found, max_error=None, sqnr_db=None, cosine=None)
    return found


def _first_elements(tolerance: float | Array, count: int) -> Any:
    return tolerance[:count] if isinstance(tolerance, np.ndarray) else tolerance


def _parameters(
    one: StoredTensor, other: StoredTensor, known: Mapping[str, QuantizationParameters]
) -> QuantizationParameters | None:
    if one.is_result and one.name in known:
        return known[one.name]
    quant = next((t.type.quant for t in (one, other) if t.type is not None and t.type.quant), None)
    return None if quant is None else QuantizationParameters(quant.scale, quant.offset)


def _element_kind(dtype: np.dtype[Any], known: QuantizationParameters | None) -> str:
    """Return the element kind of a dtype; uint16 without a scale is bfloat16."""
    if dtype == np.uint16 and known is not None:
        return "ui16"
    return next((name for name, known in ELEM_DTYPES.items() if known == dtype), dtype.name)


def _list_names(tensors: Sequence[StoredTensor]) -> str:
    some = ", ".join(one.name for one in tensors[:3])
    return f"{some}, ..." if len(tensors) > 3 else some or "nothing"


def _format_shape(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "scalar"
