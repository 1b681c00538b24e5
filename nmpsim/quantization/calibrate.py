"""The range of every tensor, from running the float program on samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.diagnostics import fail
from nmpsim.interpreter import INTERPRETER, execute_real, interpreter_with_order
from nmpsim.lir.nodes import Instruction, Module
from nmpsim.lir.opcodes import IN
from nmpsim.quantization.graph import Graph, Node, Value
from nmpsim.quantization.profile import Range

_PRODUCTS = ("fullyconnected", "matmul")


def calibrate(
    graph: Graph, samples: Iterable[Mapping[str, npt.NDArray[Any]]]
) -> dict[Value, Range]:
    """Ranges of all float values over all samples.

    The program runs in float32 in the order of Glow's Interpreter, so that ranges have the bits
    of Glow's own profile. Raises QUANT002 where a result has infinite values or NaN.
    """
    found: dict[str, Range] = {}
    orders = orders_of_sums(graph)
    exceptions = {name: interpreter_with_order(order) for name, order in orders.items()}
    for sample in samples:
        for name, array in sample.items():
            _extend(found, name, array)
        for instruction, operand, array in execute_real(
            graph.module,
            sample,
            hidden_relu=False,
            arithmetic=INTERPRETER,
            exceptions=exceptions,
        ):
            if array.dtype == np.float32:
                _check(array, instruction, graph.module)
                _extend(found, _key(instruction, operand), array)
    return _by_value(graph, found)


def orders_of_sums(graph: Graph) -> dict[str, npt.NDArray[np.intp]]:
    """Matrix products over a flattened image, by name -> the order in which Glow sums over it.

    A network written for channels first has the rows of such a product in that order, and Glow
    profiles it so. Only then it turns the rows to the order of its own layout, channels last.
    """
    if not _is_channels_first(graph):
        return {}
    orders: dict[str, npt.NDArray[np.intp]] = {}
    for node in graph.nodes:
        if node.opcode in _PRODUCTS and (image := _flattened(graph, node.sources[0])):
            order = np.arange(math.prod(image)).reshape(image).transpose(2, 0, 1)
            orders[node.instruction.name] = order.reshape(-1)
    return orders


def _is_channels_first(graph: Graph) -> bool:
    """Whether an input is turned to channels last before anything is done with it."""
    return any(
        node.sources and node.sources[0] in graph.inputs and _turns(node) for node in graph.nodes
    )


def _turns(node: Node) -> bool:
    """Whether a node moves channels to the end; a view does, where there is one channel."""
    if node.opcode == "transpose":
        return node.instruction.attributes["Shuffle"] == (0, 2, 3, 1)
    batch, *image = node.sources[0].type.shape
    return (
        node.opcode == "tensorview"
        and len(image) == 3
        and image[0] == 1
        and node.results[0].type.shape == (batch, *image[1:], 1)
    )


def _flattened(graph: Graph, value: Value) -> tuple[int, ...]:
    """Height, width and channels of the images of which a value shows the elements in a row."""
    source, _ = graph.views.get(value, (value, 0))
    batch, *image = source.type.shape
    is_flat = len(image) == 3 and value.type.shape == (batch, math.prod(image))
    return tuple(image) if is_flat else ()


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
        f"%{instruction.name} of the float program has values that are not finite",
        place=instruction.span.place(module.file),
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
