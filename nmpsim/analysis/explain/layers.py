"""Each layer of a program with its operands and its rescalings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from nmpsim.analysis.explain.profiles import ProfileFacts, profile_facts, real_biases
from nmpsim.analysis.explain.stages import (
    Stage,
    arithmetic_of,
    operand_roles,
    scales_are_missing,
    stages_of,
)
from nmpsim.analysis.weighted import WEIGHTED
from nmpsim.compiler.operations import Operation
from nmpsim.compiler.placement import find_host_reason
from nmpsim.compiler.resolve import resolve
from nmpsim.lir.names import display_names
from nmpsim.lir.nodes import Module


@attrs.frozen
class OperandFacts:
    """One operand: its role (Dest, Src, Filter, ...) and its type; scale None if it is real."""

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
    """Of the layer it belongs to."""
    number: int
    """Of its instruction in the LIR."""
    name: str
    display_name: str
    """Short name of the layer it belongs to."""
    opcode: str
    operation: str
    """Common name of the operation, such as conv1x1."""
    line: int
    """In the LIR text, 1-based."""
    arithmetic: str
    """Formula; empty where values are only moved, or real."""
    operands: tuple[OperandFacts, ...]
    stages: tuple[Stage, ...]
    profiles: tuple[ProfileFacts, ...]
    """Its factors in every arithmetic profile; empty where nothing is rescaled."""
    notes: tuple[str, ...]
    placement: str
    """Who does it on a device of any size: ``device`` or ``host``."""

    @property
    def other_names(self) -> tuple[str, ...]:
        """The name of its result."""
        return (self.operands[0].name,)

    @property
    def channels(self) -> int:
        """Factors of its largest stage: 1 if all channels share one, 0 without a stage."""
        return max((len(stage.factors) for stage in self.stages), default=0)


def explain_layers(
    module: Module,
    indices: Mapping[str, int] | None = None,
    shown: Mapping[str, str] | None = None,
) -> tuple[LayerFacts, ...]:
    """Every operation of a module, in order.

    ``indices`` and ``shown`` give the layer that an instruction, by name, went into and its display
    name; without them each operation is a layer. The values of constants are needed only where each
    channel has its own scales.
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
        arithmetic_of(op),
        operands,
        stages_of(module, op),
        profile_facts(module, op),
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
    if biases := real_biases(module, op):
        channel, value, kept = biases
        yield f"the bias is largest in channel {channel}, {value:.9g}; at run time it is"
        yield ", ".join(
            f"{number:.17g} ({name}{', real' if isinstance(number, float) else ''})"
            for name, number in kept.items()
        )
    elem = op.operands[0].type.elem
    if elem == "i16" and op.instruction.opcode != "rescalequantized" and stages_of(module, op):
        yield (
            "Glow's compiled kernels have no Int16: these are the integers that the same"
            " derivation gives, the Interpreter multiplies by the float32 factor"
        )
    activation = op.instruction.attributes.get("FusedActivation", "NONE")
    if activation != "NONE":
        yield f"fused activation {activation}: clips or bends the result after the rescaling"
