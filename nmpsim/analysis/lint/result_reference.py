"""The rule ``result-differs``: scales and zero points that contradict the float model."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np

from nmpsim.analysis.lint.bias_payload import compare_with_float, find_float_bias
from nmpsim.analysis.lint.findings import LintFinding
from nmpsim.analysis.lint.fixed_values import DequantizedWeights, read_quantized_weights
from nmpsim.analysis.lint.scales import HALF_PRINTED_DIGIT
from nmpsim.analysis.lint.subject import SAME_SCALE, LintSubject, QuantizedBias
from nmpsim.analysis.shadow.constants import map_biases_to_filters, read_quantized_constants
from nmpsim.analysis.shadow.matching import match_constants
from nmpsim.arrays import Array, Arrays, Shape
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.diagnostics import UserError
from nmpsim.interpreter import execute_real
from nmpsim.lir.nodes import TensorType
from nmpsim.lir.opcode import OpcodeKind
from nmpsim.quantization import ValueRange

MAX_ADDED_BITS = 2.75
"""Largest change of surplus bits between a result and its sources."""
MAX_OPPOSED_BITS = 1.75
"""Largest change that is opposite to the change of all consumers of the result."""
SCALE_TOLERANCE = 0.01
"""Relative error of a scale that is reported."""
NEGATIVE_SHARE_TOLERANCE = 0.4
"""Largest difference between a type's negative share and the estimated one."""


def check_results(subject: LintSubject) -> Iterator[LintFinding]:
    """Report results whose scale or zero point contradicts the float model."""
    if subject.float_weights is None:
        return
    proved = dict(_compare_bias_scales(subject))
    yield from proved.values()
    try:
        found = estimate_ranges(subject)
    except UserError as error:
        (first, *_) = error.diagnostics
        text = (
            f"results are not compared with the float model, which cannot be run: {first.message}"
        )
        yield LintFinding("note", text, facts={"by": "run"})
        return
    if not proved:  # a scale that is off makes those after it look off
        yield from _check_scales(found)
    yield from _check_zero_points(found)


def _compare_bias_scales(subject: LintSubject) -> Iterator[tuple[str, LintFinding]]:
    """Compare an input's scale with the ratio of the scales of bias and weights.

    Glow and TFLite put Int32 biases on the scale of input times weights. So if the values of bias
    and weights match the float model, the bias's scale implies the input's. Applied only if most
    biases of the program are on that scale.
    """
    wide = [bias for bias in subject.biases if bias.view.type.elem == "i32" and bias.integers.any()]
    others = [
        bias for bias in wide if not bias.is_on_result_scale and _has_wrong_scale(bias, subject)
    ]
    if 2 * len(others) >= len(wide):
        return
    weights = read_quantized_weights(subject)
    for bias in others:
        one = weights.get(bias.op.operands[2].buffer.name)
        factors = bias.product_scales / bias.scales
        alike = np.allclose(factors, factors[0], rtol=100 * SAME_SCALE, atol=0.0)
        if one is not None and alike and _matches_float_model(bias, one, subject):
            source = bias.op.operands[1]
            yield source.buffer.name, _describe_scale(bias, source, float(factors[0]), subject)


def _has_wrong_scale(bias: QuantizedBias, subject: LintSubject) -> bool:
    """Return whether a bias's scale differs from the products' by more than rounding and print."""
    rounded = HALF_PRINTED_DIGIT / float(bias.scales.min()) if subject.printed_only else 0.0
    factors = bias.product_scales / bias.scales
    return bool((np.abs(factors - 1.0) > SCALE_TOLERANCE + 3 * rounded).all())


def _matches_float_model(
    bias: QuantizedBias, weights: DequantizedWeights, subject: LintSubject
) -> bool:
    """Return whether weights and bias of a layer match the float model."""
    arrays = subject.float_weights or {}
    name = weights.view.buffer.name
    floats = match_constants({name: weights.reals}, arrays).floats
    found = find_float_bias(bias, arrays)
    return (
        name in floats
        and weights.matches(floats[name])
        and found is not None
        and compare_with_float(bias, found) is None
    )


def _describe_scale(
    bias: QuantizedBias, source: BufferView, factor: float, subject: LintSubject
) -> LintFinding:
    earlier = subject.operations[: subject.operations.index(bias.op)]
    writers = [op for op in earlier if op.operands[0].buffer.name == source.buffer.name]
    op = writers[-1] if writers else bias.op
    return LintFinding(
        "error",
        f"the scale of %{source.name} is {factor:.4g} times the scale for which the constants of"
        f" %{bias.op.instruction.name} were quantized",
        op,
        found=f"scale {source.scale:.9g}",
        expected=f"scale {source.scale / factor:.9g}, the scale of bias %{bias.view.name} divided"
        " by the scale of the weights, which both match the float model",
        hint=f"Change the scale of %{source.name}, or quantize the constants again.",
        facts={"by": "bias", "factor": factor},
    )


def _check_scales(found: list[RangeEstimate]) -> Iterator[LintFinding]:
    opposed = [one for one in found if _is_opposed(one)]
    explained = [after for one in opposed for after in one.consumers]
    for one in found:
        bits = one.added_surplus_bits
        if one.is_moved or (
            one not in opposed and (abs(bits) < MAX_ADDED_BITS or one in explained)
        ):
            continue
        low, high = one.view.real_limits
        yield LintFinding(
            "warning",
            f"the type of the result of %{one.op.instruction.name} covers a range about"
            f" {2.0**bits:.2g} times as large as the float model suggests",
            one.op,
            found=f"a range from {low:.6g} to {high:.6g}",
            expected=f"about {low / 2.0**bits:.2g} to {high / 2.0**bits:.2g}, estimated from the"
            " previous results and a run on generated inputs",
            hint="Check the scale; pass a profile with --ranges to be certain.",
            facts={"by": "run", "factor": 2.0**bits},
        )


def _is_opposed(one: RangeEstimate) -> bool:
    """Return whether a result differs from its sources, and its consumers differ the other way."""
    steps = [
        abs(one.added_surplus_bits),
        *(-after.added_surplus_bits * np.sign(one.added_surplus_bits) for after in one.consumers),
    ]
    return len(steps) > 1 and min(steps) >= MAX_OPPOSED_BITS


def _check_zero_points(found: list[RangeEstimate]) -> Iterator[LintFinding]:
    """Check the zero points of results against their estimated negative shares.

    The zero point of a result without negative values is the lowest integer, or all results
    have the zero point 0.
    """
    offsets = [one.view.offset for one in found if one.range.low >= 0]
    is_symmetric = 2 * offsets.count(0) > len(offsets)
    for one in found:
        likely = _negative_share(one.range.low, one.range.high)
        if one.is_moved or not _contradicts(one, likely, is_symmetric):
            continue
        low, high = one.view.real_limits
        part = (
            f"{100 * likely:.0f} % of the integers for negative values, estimated from a run on"
            " generated inputs"
        )
        yield LintFinding(
            "warning",
            f"the zero point of the result of %{one.op.instruction.name} does not fit the"
            " values of the float model",
            one.op,
            found=f"zero point {one.view.offset}, for values from {low:.6g} to {high:.6g}",
            expected="zero point 0, as in the other results"
            if is_symmetric
            else f"a zero point that leaves about {part}",
            hint="Check the zero point; pass a profile with --ranges to be certain.",
            facts={"by": "zero point", "offset": one.view.offset},
        )


def _contradicts(one: RangeEstimate, likely: float, is_symmetric: bool) -> bool:
    """Return whether a zero point contradicts the estimated share of negative values."""
    offset, lowest = one.view.offset, one.view.limits[0]
    if is_symmetric:
        return offset != 0
    if one.range.low >= 0:
        return offset != lowest
    return (
        offset not in (0, lowest)
        and abs(_negative_share(*one.view.real_limits) - likely) > NEGATIVE_SHARE_TOLERANCE
    )


def _negative_share(low: float, high: float) -> float:
    """Return the negative share of a range."""
    low, high = min(low, 0.0), max(high, 0.0)
    return -low / (high - low)


SAMPLE_COUNT = 2
_GRID_CELLS = (2, 4, 8, 1 << 20)
"""Cells along each side of a random image; real images have most energy in coarse cells."""
_PROPORTIONAL = {
    OpcodeKind.CONVOLUTION,
    OpcodeKind.FULLY_CONNECTED,
    OpcodeKind.PRODUCT,
    OpcodeKind.BATCHED_ADD,
    OpcodeKind.MAX_POOL,
    OpcodeKind.PAIR,
    OpcodeKind.CLIP,
    OpcodeKind.RESCALE,
    OpcodeKind.MOVE,
    OpcodeKind.CONVERSION,
}
"""Kinds whose results are proportional to their sources."""


@attrs.define(eq=False)
class RangeEstimate:
    """Estimate of the value range of a quantized buffer."""

    op: Operation
    """First operation that writes the buffer."""
    view: BufferView
    range: ValueRange
    """Range of the last result in the buffer."""
    source_surplus: float | None
    """Largest surplus of its sources; None without sources."""
    consumers: list[RangeEstimate] = attrs.field(factory=list)
    """Results computed from this one and from no source with a larger surplus."""
    is_moved: bool = False
    """Whether a move copies it into another buffer, whose type it may share."""

    @property
    def surplus_bits(self) -> float:
        """Bits by which the type's range exceeds the estimated range."""
        low, high = self.view.real_limits
        return float(np.log2(max(high, -low) / max(self.range.high, -self.range.low)))

    @property
    def added_surplus_bits(self) -> float:
        """Surplus bits minus the largest surplus of the sources, or 0 without sources."""
        return 0.0 if self.source_surplus is None else self.surplus_bits - self.source_surplus


def estimate_ranges(subject: LintSubject) -> list[RangeEstimate]:
    """Estimate the range of each quantized result by float runs on random inputs.

    Raises
    ------
    UserError
        If the float model cannot be run.
    """
    ranges = _float_ranges(subject)
    holding: dict[str, RangeEstimate] = {}
    found: list[RangeEstimate] = []
    for op in subject.operations:
        target, sources = op.operands[0].buffer.name, [v.buffer.name for v in op.operands[1:]]
        view, range_ = op.operands[0], ranges.get(op.instruction.name)
        known = [holding[name] for name in sources if name in holding]
        parent = max(known, key=lambda one: one.surplus_bits, default=None)
        for one in known if op.kind is OpcodeKind.MOVE else ():
            one.is_moved = True
        if view.type.quant is None or range_ is None or not (range_.high > 0 or range_.low < 0):
            holding.pop(target, None)
        elif op.kind is OpcodeKind.AVERAGE_POOL and parent is not None:
            holding[target] = parent
        elif op.kind not in _PROPORTIONAL or op.instruction.opcode in ("elementmul", "elementdiv"):
            holding.pop(target, None)
        elif target in holding and (target in sources or op.kind is OpcodeKind.MOVE):
            holding[target].range = range_
        else:
            new = RangeEstimate(op, view, range_, None if parent is None else parent.surplus_bits)
            holding[target] = new
            found.append(new)
            if parent is not None:
                parent.consumers.append(new)
    return found


def _float_ranges(subject: LintSubject) -> dict[str, ValueRange]:
    """Return the range of each instruction's result over all samples."""
    constants = _float_constants(subject)
    ranges: dict[str, ValueRange] = {}
    for inputs in _random_inputs(subject):
        for instruction, name, values in execute_real(subject.module, inputs, constants):
            if name == instruction.operands[0].name and values.size:
                own = ValueRange.from_values(values)
                before = ranges.get(instruction.name, own)
                ranges[instruction.name] = own.union(before)
    return ranges


def _float_constants(subject: LintSubject) -> Arrays:
    reals, filters = read_quantized_constants(subject.module), map_biases_to_filters(subject.module)
    return match_constants(reals, subject.float_weights or {}, filters).floats


def _random_inputs(subject: LintSubject) -> Iterator[dict[str, Array]]:
    """Yield random values of all inputs, with a fixed seed."""
    rng = np.random.default_rng(0)
    written = {view.buffer.name for op in subject.operations for view in op.operands[:1]}
    inputs = [w for w in subject.module.weights if not w.constant and w.name not in written]
    ranges = {w.name: _input_range(w.name, w.type, subject) for w in inputs}
    for _ in range(SAMPLE_COUNT):
        yield {w.name: _random_image(w.type.shape, ranges[w.name], rng) for w in inputs}


def _input_range(name: str, type_: TensorType, subject: LintSubject) -> ValueRange:
    """Return the range of an input's type, or of the type to which it is quantized."""
    readers = [op for op in subject.operations if op.operands[-1].buffer.name == name]
    views = [op.operands[0] for op in readers if op.instruction.opcode == "quantize"]
    views += [op.operands[-1] for op in readers if op.operands[-1].type.quant is not None]
    if type_.elem != "float" and type_.quant is None:
        return ValueRange(0.0, 0.0)
    if not views:
        return ValueRange(-1.0, 1.0)
    return ValueRange(*views[0].real_limits)


def _random_image(shape: Shape, range_: ValueRange, rng: np.random.Generator) -> Array:
    """Return noise in cells of several sizes, scaled to a range."""
    sides = sorted(range(1, len(shape)), key=lambda axis: -shape[axis])[: max(len(shape) - 2, 1)]
    noise = np.zeros(shape)
    for cells in _GRID_CELLS:
        grid = [min(n, cells) if axis in sides else n for axis, n in enumerate(shape)]
        layer = rng.normal(size=grid)
        for axis in sides:
            layer = layer.take(np.arange(shape[axis]) * grid[axis] // shape[axis], axis)
        noise += layer
    spread = np.ptp(noise) or 1.0
    picture: Array = range_.low + (range_.high - range_.low) * (noise - noise.min()) / spread
    return picture
