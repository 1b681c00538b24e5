"""Layers of a program with their operands and rescalings.

Products and quotients of scales are float32, each rounded separately, as Glow's LLVM backend
derives them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import attrs
import numpy as np

from nmpsim.analysis.explain.factors import Factor, make_factor
from nmpsim.analysis.explain.profiles import (
    PAIRS,
    UNARY,
    ProfileRescalings,
    explain_profiles,
    find_float_bias_forms,
)
from nmpsim.analysis.weighted import read_weighted_scales
from nmpsim.arrays import Shape
from nmpsim.compiler.numerics import WeightedLayerScales
from nmpsim.compiler.numerics.ratios import divide_float32, multiply_float32
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.compiler.placement import find_host_reason
from nmpsim.compiler.resolve import resolve_operands
from nmpsim.kernels.scale import InvalidScaleError
from nmpsim.lir.names import map_display_names
from nmpsim.lir.nodes import Module
from nmpsim.lir.opcode import WEIGHTED
from nmpsim.lir.opcodes import OPCODES, find_opcodes
from nmpsim.report.fields import AT_END, NOT_IN_JSON, OR_NULL, JsonKey
from nmpsim.report.json import to_json


@attrs.frozen
class OperandFacts:
    """Facts about an operand of a layer: role (Dest, Src, Filter, ...), name and type."""

    role: str
    name: str
    elem: str
    shape: Shape
    scale: float | None
    """Scale; None if the operand is not quantized."""
    offset: int | None


@attrs.frozen
class InvalidFactor:
    """Factor that is not positive and finite and therefore has no integers."""

    real: Annotated[float | None, OR_NULL, "null if it is not finite"]
    integers: None = None


@attrs.frozen
class RescaleStage:
    """Stage of an operation that rescales by one factor or by one factor per channel."""

    name: Annotated[str, JsonKey("stage")]
    """Prefix of Glow's parameters: ``bias`` for biasPre, biasPost, biasScale."""
    formula: str
    reals: Annotated[tuple[float, ...], NOT_IN_JSON]
    """Factors as float32."""
    factors: Annotated[tuple[Factor | None, ...], NOT_IN_JSON]
    """Integer forms of the factors; None for a factor that is not positive and finite."""

    @property
    def factor_documents(
        self,
    ) -> Annotated[
        list[Factor | InvalidFactor], "one, or one for each channel", JsonKey("factors"), AT_END
    ]:
        """JSON documents of the factors; the integers of an invalid factor are null."""
        pairs = zip(self.reals, self.factors, strict=True)
        return [to_json(factor or InvalidFactor(real)) for real, factor in pairs]


@attrs.frozen
class OperationFacts:
    """Facts about an operation of a program: operands, formula, rescalings and placement."""

    index: int
    """Index of its layer."""
    number: int
    """Number of its instruction in the LIR."""
    name: str
    display_name: str
    """Display name of its layer."""
    opcode: Annotated[str, JsonKey("op")]
    operation: str
    """Common name of the operation, such as conv1x1."""
    line: int
    """Line in the LIR text, 1-based."""
    arithmetic: str
    """Formula; empty if values are only moved or not quantized."""
    operands: tuple[OperandFacts, ...]
    stages: tuple[RescaleStage, ...]
    profiles: tuple[ProfileRescalings, ...]
    """Factors in every numerics profile; empty if nothing is rescaled."""
    notes: tuple[str, ...]
    placement: Annotated[str, NOT_IN_JSON]
    """``device`` or ``host``, for a device of any size."""

    @property
    def other_names(self) -> tuple[str, ...]:
        """Alternative names by which the operation is found: the name of its result."""
        return (self.operands[0].name,)

    @property
    def channels(self) -> int:
        """Largest number of factors in one stage, or 0 if there are no stages."""
        return max((len(stage.factors) for stage in self.stages), default=0)


def explain_layers(
    module: Module,
    indices: Mapping[str, int] | None = None,
    shown: Mapping[str, str] | None = None,
) -> tuple[OperationFacts, ...]:
    """Explain how each operation of a module rescales; return the facts in program order.

    Parameters
    ----------
    module
        A verified module. Values of constants are needed only for scales per channel.
    indices
        Layer index by instruction name; without it each operation is a layer.
    shown
        Display name of the layer by instruction name.
    """
    _, operations = resolve_operands(module)
    names = [op.instruction.name for op in operations]
    if shown is None:
        shown = map_display_names(names)
    return tuple(
        _explain(
            module,
            op,
            position if indices is None else indices.get(name, -1),
            shown.get(name, name),
        )
        for position, (op, name) in enumerate(zip(operations, names, strict=True))
    )


def _explain(module: Module, op: Operation, index: int, shown: str) -> OperationFacts:
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
        for role, view in list_operand_roles(op)
    )
    return OperationFacts(
        index,
        instruction.number,
        instruction.name,
        shown,
        instruction.opcode,
        op.operation_name,
        instruction.span.line,
        get_formula(op),
        operands,
        list_rescale_stages(module, op),
        explain_profiles(module, op),
        tuple(_list_notes(module, op)),
        "host" if find_host_reason(op) else "device",
    )


def _list_notes(module: Module, op: Operation) -> Iterator[str]:
    quantized = [view.type.quant is not None for view in op.operands[:2]]
    if not any(quantized):
        yield "nothing is rescaled: the operation is not quantized"
        return
    is_weighted = op.kind in WEIGHTED
    if is_weighted and len(op.operands) > 4 and read_weighted_scales(module, op) is None:
        yield "the values of the scales per channel are unknown; pass --weights FILE.npz"
    if is_weighted and op.operands[3].type.quant is None:
        yield "the bias is float, so Glow has no integers that rescale it"
    if biases := find_float_bias_forms(module, op):
        channel, value, kept = biases
        yield f"the bias is largest in channel {channel}, {value:.9g}; at run time it is"
        yield ", ".join(
            f"{number:.17g} ({name}{', real' if isinstance(number, float) else ''})"
            for name, number in kept.items()
        )
    elem = op.operands[0].type.elem
    if (
        elem == "i16"
        and op.instruction.opcode != "rescalequantized"
        and list_rescale_stages(module, op)
    ):
        yield (
            "Glow's compiled kernels have no Int16: these are the integers that the same"
            " derivation gives, the Interpreter multiplies by the float32 factor"
        )
    activation = op.instruction.attributes.get("FusedActivation", "NONE")
    if activation != "NONE":
        yield f"fused activation {activation}: clips or bends the result after the rescaling"


def list_rescale_stages(module: Module, op: Operation) -> tuple[RescaleStage, ...]:
    """Return the rescalings of an operation in order of execution, or () if there are none.

    Empty if the operation is not quantized, only moves values, or has scales per channel whose
    values the module lacks.
    """
    if any(view.type.quant is None for view in op.operands[:2]):
        return ()
    return tuple(
        RescaleStage(name, formula, tuple(reals), tuple(_make_factor(real) for real in reals))
        for name, formula, reals in _list_ratios(module, op)
    )


def _make_factor(real: float) -> Factor | None:
    try:
        return make_factor(real)
    except InvalidScaleError:
        return None


def _list_ratios(module: Module, op: Operation) -> Iterator[tuple[str, str, list[float]]]:
    """Yield name, formula and factors of each rescaling; other opcodes than these have none."""
    opcode = op.instruction.opcode
    target, *sources = op.operands
    if op.kind in WEIGHTED:
        layer = read_weighted_scales(module, op)
        if layer is not None:
            yield from _list_weighted_ratios(op, layer)
    elif opcode in ("matmul", "elementmul"):
        product = multiply_float32(sources[0].scale, sources[1].scale)
        yield "out", "S_lhs * S_rhs / S_out", [divide_float32(product, target.scale)]
    elif opcode in PAIRS:
        if sources[1].type.quant is not None:
            for name, side in zip(("lhs", "rhs"), sources, strict=True):
                yield name, f"S_{name} / S_out", [divide_float32(side.scale, target.scale)]
    elif opcode == "avgpool":
        taps = math.prod(op.get_integers("Kernels")) if op.get_number("CountIncludePads") else 1
        ratio = divide_float32(sources[0].scale, target.scale)
        by = f" / {taps}" if op.get_number("CountIncludePads") else ""
        yield "out", f"S_in / S_out{by}", [divide_float32(ratio, taps)]
    elif opcode in (*UNARY, "batchedreduceadd"):
        yield "out", "S_in / S_out", [divide_float32(sources[0].scale, target.scale)]
        if opcode == "leakyrelu":
            scaled = multiply_float32(sources[0].scale, float(op.get_number("Alpha")))
            yield "leaky", "S_in * alpha / S_out", [divide_float32(scaled, target.scale)]


def _list_weighted_ratios(
    op: Operation, layer: WeightedLayerScales
) -> Iterator[tuple[str, str, list[float]]]:
    with np.errstate(all="ignore"):
        bias_ratios, ratios = (
            (array if layer.by_channel else array[:1]).tolist()
            for array in (layer.bias_ratios, layer.ratios)
        )
    if op.operands[3].type.quant is not None:
        yield "bias", "S_bias / (S_in * S_weights)", bias_ratios
    yield "out", "S_in * S_weights / S_out", ratios
    arguments: Any = op.instruction.attributes.get("FusedActivationArgs")
    if op.instruction.attributes.get("FusedActivation") == "LEAKY_RELU" and arguments:
        yield "leaky", "alpha", [float(np.float32(arguments[0]))]


ARITHMETIC: dict[str, str] = {
    **dict.fromkeys(
        find_opcodes(*WEIGHTED),
        "y = clip(out(bias(b - O_b) + sum((w - O_w) * (x - O_in))) + O_out)",
    ),
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
    """Return the formula of a quantized operation, or "" for float operations and moves."""
    if all(view.type.quant is None for view in op.operands[:2]):
        return ""
    if op.instruction.opcode != "avgpool":
        return ARITHMETIC.get(op.instruction.opcode, "")
    if op.instruction.attributes["CountIncludePads"]:
        return "y = clip(out(sum(x - O_in)) + O_out)"
    return "y = clip(out(sum(x - O_in)) / taps that are not padding, halves away from 0, + O_out)"


def list_operand_roles(op: Operation) -> tuple[tuple[str, BufferView], ...]:
    """Return the role, such as ``Filter``, and the view of each operand of an operation."""
    roles = OPCODES[op.instruction.opcode].operands
    return tuple((role.name, view) for role, view in zip(roles, op.operands, strict=True))
