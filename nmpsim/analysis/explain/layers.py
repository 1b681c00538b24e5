"""Layers of a program with their operands and rescalings.

Products and quotients of scales are float32, each rounded separately, as Glow's LLVM backend
derives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import attrs

from nmpsim.analysis.explain.factors import Factor, make_factor
from nmpsim.analysis.explain.profiles import ProfileFacts, explain_profiles, find_float_bias_forms
from nmpsim.analysis.weighted import WEIGHTED, LayerScales, layer_scales
from nmpsim.compiler.numerics.ratios import product, quotient
from nmpsim.compiler.operations import Operation, View
from nmpsim.compiler.placement import find_host_reason
from nmpsim.compiler.resolve import resolve
from nmpsim.kernels.scale import InvalidScaleError
from nmpsim.lir.names import display_names
from nmpsim.lir.nodes import Module
from nmpsim.lir.opcodes import OPCODES


@attrs.frozen
class OperandFacts:
    """An operand: role (Dest, Src, Filter, ...) and type; scale is None if it is not quantized."""

    role: str
    name: str
    elem: str
    shape: tuple[int, ...]
    scale: float | None
    offset: int | None


@attrs.frozen
class LayerFacts:
    """An operation with its rescalings."""

    index: int
    """Index of its layer."""
    number: int
    """Number of its instruction in the LIR."""
    name: str
    display_name: str
    """Display name of its layer."""
    opcode: str
    operation: str
    """Common name of the operation, such as conv1x1."""
    line: int
    """Line in the LIR text, 1-based."""
    arithmetic: str
    """Formula; empty if values are only moved or not quantized."""
    operands: tuple[OperandFacts, ...]
    stages: tuple[Stage, ...]
    profiles: tuple[ProfileFacts, ...]
    """Factors in every numerics profile; empty if nothing is rescaled."""
    notes: tuple[str, ...]
    placement: str
    """``device`` or ``host``, for a device of any size."""

    @property
    def other_names(self) -> tuple[str, ...]:
        """Name of its result."""
        return (self.operands[0].name,)

    @property
    def channels(self) -> int:
        """Number of factors of its largest stage: 1 if channels share one, 0 without a stage."""
        return max((len(stage.factors) for stage in self.stages), default=0)


def explain_layers(
    module: Module,
    indices: Mapping[str, int] | None = None,
    shown: Mapping[str, str] | None = None,
) -> tuple[LayerFacts, ...]:
    """Explain every operation of a module, in order.

    ``indices`` and ``shown`` give the layer index and its display name by instruction name; without
    them each operation is a layer. Values of constants are needed only for scales per channel.
    """
    _, operations = resolve(module)
    names = [op.instruction.name for op in operations]
    if shown is None:
        shown = dict(zip(names, display_names(names), strict=True))
    return tuple(
        _facts(
            module,
            op,
            position if indices is None else indices.get(name, -1),
            shown.get(name, name),
        )
        for position, (op, name) in enumerate(zip(operations, names, strict=True))
    )


def _facts(module: Module, op: Operation, index: int, shown: str) -> LayerFacts:
    instruction = op.instruction
    operands = tuple(
        OperandFacts(
            role,
            view.name,
            view.type.elem,
            view.shape,
            view.type.quant.scale if view.type.quant else None,
            view.type.quant.offset if view.type.quant else None,
        )
        for role, view in operand_roles(op)
    )
    return LayerFacts(
        index,
        instruction.number,
        instruction.name,
        shown,
        instruction.opcode,
        op.operation_name,
        instruction.span.line,
        get_formula(op),
        operands,
        list_stages(module, op),
        explain_profiles(module, op),
        tuple(_notes(module, op)),
        "host" if find_host_reason(op) else "device",
    )


def _notes(module: Module, op: Operation) -> Iterator[str]:
    quantized = [view.type.quant is not None for view in op.operands[:2]]
    if not any(quantized):
        yield "nothing is rescaled: the operation is not quantized"
        return
    if scales_are_missing(module, op):
        yield "each channel has its own scales, and their values are not known: give --weights"
    if op.instruction.opcode in WEIGHTED and op.operands[3].type.quant is None:
        yield "the bias is float: no integers of Glow's bring it to the sum"
    if biases := find_float_bias_forms(module, op):
        channel, value, kept = biases
        yield f"the bias is largest in channel {channel}, {value:.9g}; at run time it is"
        yield ", ".join(
            f"{number:.17g} ({name}{', real' if isinstance(number, float) else ''})"
            for name, number in kept.items()
        )
    elem = op.operands[0].type.elem
    if elem == "i16" and op.instruction.opcode != "rescalequantized" and list_stages(module, op):
        yield (
            "Glow's compiled kernels have no Int16: these are the integers that the same"
            " derivation gives, the Interpreter multiplies by the float32 factor"
        )
    activation = op.instruction.attributes.get("FusedActivation", "NONE")
    if activation != "NONE":
        yield f"fused activation {activation}: clips or bends the result after the rescaling"


@attrs.frozen
class Stage:
    """A rescaling of an operation."""

    name: str
    """Prefix of Glow's parameters: ``bias`` for biasPre, biasPost, biasScale."""
    formula: str
    reals: tuple[float, ...]
    """Factor as float32, or one per channel."""
    factors: tuple[Factor | None, ...]
    """Forms of the factors; None for one that is not positive and finite."""


def list_stages(module: Module, op: Operation) -> tuple[Stage, ...]:
    """Return the rescalings of an operation in order of execution.

    Empty if the operation is not quantized, only moves values, or has scales per channel that the
    module lacks (:func:`scales_are_missing`).
    """
    if any(view.type.quant is None for view in op.operands[:2]):
        return ()
    opcode = op.instruction.opcode
    if opcode in WEIGHTED:
        scales = layer_scales(module, op)
        return tuple(_weighted(op, scales)) if scales else ()
    derive = _STAGES.get(opcode)
    return tuple(derive(op)) if derive else ()


def scales_are_missing(module: Module, op: Operation) -> bool:
    """Return whether an operation has scales per channel whose values the module lacks."""
    by_channel = op.instruction.opcode in WEIGHTED and len(op.operands) > 4
    return by_channel and layer_scales(module, op) is None


def _stage(name: str, formula: str, *reals: float) -> Stage:
    return Stage(name, formula, reals, tuple(_factor(real) for real in reals))


def _factor(real: float) -> Factor | None:
    try:
        return make_factor(real)
    except InvalidScaleError:
        return None


def _weighted(op: Operation, scales: LayerScales) -> Iterator[Stage]:
    products = [product(scales.source, float(s)) for s in scales.weights]
    if scales.bias is not None:
        biases = [float(s) for s in scales.bias] * (len(products) // len(scales.bias))
        yield _stage(
            "bias",
            "S_bias / (S_in * S_weights)",
            *(quotient(b, p) for b, p in zip(biases, products, strict=True)),
        )
    yield _stage("out", "S_in * S_weights / S_out", *(quotient(p, scales.result) for p in products))
    if op.instruction.attributes.get("FusedActivation") == "LEAKY_RELU":
        arguments = op.instruction.attributes["FusedActivationArgs"]
        if isinstance(arguments, tuple):
            yield _stage("leaky", "alpha", product(float(arguments[0]), 1.0))


def _matmul(op: Operation) -> Iterator[Stage]:
    out, lhs, rhs = op.operands
    ratio = quotient(product(lhs.scale, rhs.scale), out.scale)
    yield _stage("out", "S_lhs * S_rhs / S_out", ratio)


def _pair(op: Operation) -> Iterator[Stage]:
    out, lhs, rhs = op.operands
    if rhs.type.quant is None:
        return
    for name, view in (("lhs", lhs), ("rhs", rhs)):
        yield _stage(name, f"S_{name} / S_out", quotient(view.scale, out.scale))


def _source_to_result(op: Operation) -> Stage:
    out, source = op.operands[:2]
    return _stage("out", "S_in / S_out", quotient(source.scale, out.scale))


def _unary(op: Operation) -> Iterator[Stage]:
    yield _source_to_result(op)


def _leaky(op: Operation) -> Iterator[Stage]:
    out, source = op.operands
    yield _source_to_result(op)
    scaled = product(source.scale, float(str(op.instruction.attributes["Alpha"])))
    yield _stage("leaky", "S_in * alpha / S_out", quotient(scaled, out.scale))


def _average(op: Operation) -> Iterator[Stage]:
    if not op.instruction.attributes["CountIncludePads"]:
        yield _source_to_result(op)
        return
    out, source = op.operands
    height, width = op.integers("Kernels")
    ratio = quotient(quotient(source.scale, out.scale), float(height * width))
    yield _stage("out", f"S_in / S_out / {height * width}", ratio)


_STAGES: dict[str, Callable[[Operation], Iterator[Stage]]] = {
    "matmul": _matmul,
    "elementmul": _matmul,
    "elementadd": _pair,
    "elementsub": _pair,
    "elementmax": _pair,
    "elementmin": _pair,
    "batchedadd": _pair,
    "relu": _unary,
    "clip": _unary,
    "rescalequantized": _unary,
    "batchedreduceadd": _unary,
    "leakyrelu": _leaky,
    "avgpool": _average,
}
"""Opcode -> its rescalings; other opcodes move or compare integers unchanged."""

ARITHMETIC: dict[str, str] = {
    **dict.fromkeys(WEIGHTED, "y = clip(out(bias(b - O_b) + sum((w - O_w) * (x - O_in))) + O_out)"),
    "matmul": "y = clip(out(sum((l - O_lhs) * (r - O_rhs))) + O_out)",
    "elementmul": "y = clip(out((l - O_lhs) * (r - O_rhs)) + O_out)",
    "elementadd": "y = clip(lhs(l - O_lhs) + rhs(r - O_rhs) + O_out)",
    "elementsub": "y = clip(lhs(l - O_lhs) - rhs(r - O_rhs) + O_out)",
    "elementmax": "y = clip(max(lhs(l - O_lhs), rhs(r - O_rhs)) + O_out)",
    "elementmin": "y = clip(min(lhs(l - O_lhs), rhs(r - O_rhs)) + O_out)",
    "batchedadd": "y = clip(lhs(l - O_lhs) + rhs(r - O_rhs) + O_out)",
    "relu": "y = clip(out(max(x, O_in) - O_in) + O_out)",
    "clip": "y = clip(out(min(max(x, q(Min)), q(Max)) - O_in) + O_out)",
    "leakyrelu": "y = clip((x >= O_in ? out(x - O_in) : leaky(x - O_in)) + O_out)",
    "rescalequantized": "y = clip(out(x - O_in) + O_out)",
    "batchedreduceadd": "y = clip(out(sum(x - O_in)) + O_out)",
    "cpumaxsplat": "y = max(x, q(SplatValue))",
    "maxpool": "y = max(x) over the taps that are not padding",
    "quantize": "y = clip(round(x / S_out + O_out)), halves to even",
    "dequantize": "y = S_in * (x - O_in)",
    "intlookuptable": "y = Mapping[x]",
}
"""Opcode -> formula, with ``bias(..)``, ``out(..)``, ... for its rescalings."""


def get_formula(op: Operation) -> str:
    """Return the formula of a quantized operation; empty if it moves values or is float."""
    if all(view.type.quant is None for view in op.operands[:2]):
        return ""
    if op.instruction.opcode != "avgpool":
        return ARITHMETIC.get(op.instruction.opcode, "")
    if op.instruction.attributes["CountIncludePads"]:
        return "y = clip(out(sum(x - O_in)) + O_out)"
    return "y = clip(out(sum(x - O_in)) / taps that are not padding, halves away from 0, + O_out)"


def operand_roles(op: Operation) -> tuple[tuple[str, View], ...]:
    """Yield each operand with its role from LIR's table of opcodes."""
    roles = OPCODES[op.instruction.opcode].operands
    return tuple((role.name, view) for role, view in zip(roles, op.operands, strict=True))
