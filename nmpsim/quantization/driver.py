"""Float module in, quantized module out: the order of the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.diagnostics import Place, fail
from nmpsim.lir import verify
from nmpsim.lir.messages import did_you_mean
from nmpsim.lir.nodes import Module, TensorType
from nmpsim.quantization.calibrate import Range, calibrate
from nmpsim.quantization.graph import Graph, Value, build_graph
from nmpsim.quantization.placement import MOVES, place
from nmpsim.quantization.rewrite import rewrite
from nmpsim.quantization.scales import Scales
from nmpsim.quantization.settings import Settings

Sample = Mapping[str, npt.NDArray[Any]]
"""Values for all inputs, in their shapes."""


@attrs.frozen
class NodeReport:
    """What became of one instruction of the float program."""

    number: int
    """Of the float instruction."""
    name: str
    """Of the instruction that gives this result in the quantized program."""
    opcode: str
    elem: str
    """i8, i16 or float."""
    reason: str
    """Why it stays float; empty if it does not."""
    narrowed: bool
    """Whether the result has the range of the activation behind it."""


@attrs.frozen(eq=False)
class QuantizedProgram:
    """A quantized module, and what became of each instruction that computes."""

    module: Module
    nodes: tuple[NodeReport, ...]
    settings: Settings

    @property
    def float_nodes(self) -> tuple[NodeReport, ...]:
        """What stays float."""
        return tuple(node for node in self.nodes if node.elem == "float")


@attrs.frozen(eq=False)
class Calibrated:
    """A float program and the range of each of its values; quantize it as often as you like."""

    graph: Graph
    ranges: Mapping[Value, Range]

    @classmethod
    def of(cls, module: Module, samples: Sequence[Sample]) -> Calibrated:
        """Run a verified float module, constants attached, on samples.

        Raises QUANT001 if the module is not a float one, QUANT002 for what is not finite.
        """
        _require_float(module)
        graph = build_graph(module)
        return cls(graph, calibrate(graph, samples))

    def quantize(self, settings: Settings) -> QuantizedProgram:
        """The quantized program.

        Raises QUANT003 if nothing would be quantized, QUANT004 for an unknown name to keep float.
        """
        _require_known(settings.keep_float, self.graph.module)
        placements = place(self.graph, settings)
        scales = Scales(self.graph, placements.quantized, self.ranges, settings)
        module, made_by = rewrite(self.graph, placements.quantized, scales, settings)
        verify(module)
        nodes = tuple(
            NodeReport(
                number=node.instruction.number,
                name=made_by[node.results[0]],
                opcode=node.opcode,
                elem=settings.elem if node.results[0] in placements.quantized else "float",
                reason=placements.reasons.get(node.results[0], ""),
                narrowed=node.results[0] in scales.narrowed,
            )
            for node in self.graph.nodes
            if node.results[0] in made_by
        )
        _require_something(nodes, self.graph.module)
        return QuantizedProgram(module, nodes, settings)


def _require_float(module: Module) -> None:
    """Refuse a module that has quantized tensors."""
    declared = [(w.name, w.type, w.span) for w in module.weights]
    for instruction in module.instructions:
        type_ = instruction.attributes.get("Ty")
        if isinstance(type_, TensorType):
            declared.append((instruction.name, type_, instruction.span))
    quantized = [entry for entry in declared if entry[1].quant is not None]
    if quantized:
        name, type_, span = quantized[0]
        raise fail(
            "QUANT001",
            "the program is quantized already",
            place=Place(module.file, span.line, span.column),
            found=f"{len(quantized)} quantized tensors, the first is %{name}, {type_.elem}",
            expected="a program with float tensors only",
        )


def _require_known(names: frozenset[str], module: Module) -> None:
    known = {i.name for i in module.instructions} | {i.opcode for i in module.instructions}
    for name in sorted(names - known):
        raise fail(
            "QUANT004",
            f"there is no operation {name!r} to keep float",
            place=Place(module.file),
            expected="an opcode or the name of an instruction",
            hint=did_you_mean(name, known),
        )


def _require_something(nodes: Sequence[NodeReport], module: Module) -> None:
    """Refuse to give out a program in which nothing that computes is quantized."""
    if any(node.elem != "float" and node.opcode not in MOVES for node in nodes):
        return
    reasons = dict.fromkeys(n.reason for n in nodes if n.opcode not in MOVES)
    raise fail(
        "QUANT003",
        "nothing is quantized: no operation can be",
        place=Place(module.file),
        found="; ".join(reasons) or "a program that computes nothing",
    )
