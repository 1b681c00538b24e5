"""Where an operation rescales, and by what: each factor in terms of the operands' scales.

Products and quotients of scales are float32, each rounded on its own, as Glow's LLVM backend
derives them (LIR_FORMAT, sections 3.2 and 3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from nmpsim.analysis.explain.factors import Factor, factor_of
from nmpsim.analysis.weighted import WEIGHTED, LayerScales, layer_scales
from nmpsim.compiler.numerics.ratios import product, quotient
from nmpsim.compiler.operations import Operation, View
from nmpsim.kernels.scale import InvalidScaleError
from nmpsim.lir.nodes import Module
from nmpsim.lir.opcodes import OPCODES


@attrs.frozen
class Stage:
    """One rescaling of an operation."""

    name: str
    """What Glow's parameters are called after: ``bias`` for biasPre, biasPost, biasScale."""
    formula: str
    reals: tuple[float, ...]
    """The factor in float32, or one a channel."""
    factors: tuple[Factor | None, ...]
    """Their forms; None where a factor is not positive and finite and so has none."""


def stages_of(module: Module, op: Operation) -> tuple[Stage, ...]:
    """Every rescaling of an operation, in the order in which it happens.

    Empty for what is not quantized, moves values only, or has channels whose scales are constants
    that the module lacks (:func:`scales_are_missing`).
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
    """True if the operation has a scale a channel and the module does not hold their values."""
    by_channel = op.instruction.opcode in WEIGHTED and len(op.operands) > 4
    return by_channel and layer_scales(module, op) is None


def _stage(name: str, formula: str, *reals: float) -> Stage:
    return Stage(name, formula, reals, tuple(_factor(real) for real in reals))


def _factor(real: float) -> Factor | None:
    try:
        return factor_of(real)
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
"""Opcode -> its rescalings; what is not here moves or compares integers as they are."""

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
"""What an operation computes, with ``bias(..)``, ``out(..)``, ... for its rescalings."""


def arithmetic_of(op: Operation) -> str:
    """The formula of a quantized operation; empty where it only moves values or is float."""
    if all(view.type.quant is None for view in op.operands[:2]):
        return ""
    if op.instruction.opcode != "avgpool":
        return ARITHMETIC.get(op.instruction.opcode, "")
    if op.instruction.attributes["CountIncludePads"]:
        return "y = clip(out(sum(x - O_in)) + O_out)"
    return "y = clip(out(sum(x - O_in)) / taps that are not padding, halves away from 0, + O_out)"


def operand_roles(op: Operation) -> tuple[tuple[str, View], ...]:
    """Each operand with what it is for the operation, by LIR's table of opcodes."""
    roles = OPCODES[op.instruction.opcode].operands
    return tuple((role.name, view) for role, view in zip(roles, op.operands, strict=True))
