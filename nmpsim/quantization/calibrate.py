"""The range of every tensor, from running the float program on samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.diagnostics import Place, fail
from nmpsim.interpreter import INTERPRETER, execute_real
from nmpsim.lir.nodes import Instruction, Module
from nmpsim.lir.opcodes import IN
from nmpsim.quantization.graph import Graph, Value


@attrs.frozen
class Range:
    """Smallest and largest value, exact float32."""

    low: float
    high: float

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Range:
        """Of an array."""
        return cls(float(values.min()), float(values.max()))

    def union(self, other: Range) -> Range:
        """The range that holds both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


def calibrate(
    graph: Graph, samples: Iterable[Mapping[str, npt.NDArray[Any]]]
) -> dict[Value, Range]:
    """Ranges of all float values over all samples.

    The program runs in float32 in the order of Glow's Interpreter, so that ranges have the bits
    of Glow's own profile. Raises QUANT002 where a result is infinite or no number.
    """
    found: dict[str, Range] = {}
    for sample in samples:
        for name, array in sample.items():
            _extend(found, name, array)
        for instruction, operand, array in execute_real(
            graph.module, sample, hidden_relu=False, arithmetic=INTERPRETER
        ):
            if array.dtype == np.float32:
                _check(array, instruction, graph.module)
                _extend(found, _key(instruction, operand), array)
    return _by_value(graph, found)


def _extend(found: dict[str, Range], key: str, array: npt.NDArray[Any]) -> None:
    range_ = Range.of(array)
    found[key] = found[key].union(range_) if key in found else range_


def _key(instruction: Instruction, operand: str) -> str:
    return f"{instruction.number}:{operand}"


def _check(array: npt.NDArray[Any], instruction: Instruction, module: Module) -> None:
    if np.isfinite(array).all():
        return
    raise fail(
        "QUANT002",
        f"the float program gives no finite number in %{instruction.name}",
        place=Place(module.file, instruction.span.line, instruction.span.column),
        found=f"{int(np.size(array) - np.isfinite(array).sum())} of {array.size} values",
        hint="look for huge or missing values in the weights",
    )


def _by_value(graph: Graph, found: Mapping[str, Range]) -> dict[Value, Range]:
    """Each value's range; that of one put together is the union of what its parts gave."""
    ranges = {v: found[v.name] for v in graph.inputs if v.name in found}

    def extend(value: Value, range_: Range | None) -> None:
        if range_ is not None:
            ranges[value] = ranges[value].union(range_) if value in ranges else range_

    for node in graph.nodes:
        written = [o.name for o in node.instruction.operands if o.kind != IN]
        for value, operand in zip(node.results, written, strict=False):
            extend(value, found.get(_key(node.instruction, operand)))
        if node.opcode == "copy" and node.is_made_up:
            extend(node.results[0], ranges.get(node.sources[0]))
    return ranges
