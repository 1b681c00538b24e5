"""Graphs of programs for Model Explorer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np

from nmpsim.analysis.data_flow import DataFlow, build_data_flow, build_layer_flow
from nmpsim.analysis.program import is_bundle, load_program
from nmpsim.bundle import Bundle, Tensor, read_bundle
from nmpsim.diagnostics import Place, UserError
from nmpsim.escape import escape_line
from nmpsim.frontends import find_front_end
from nmpsim.frontends.graph.nodes import Graph
from nmpsim.frontends.onnx.model import load_model, read_graph
from nmpsim.lir.nodes import Instruction, Module, TensorType
from nmpsim.lir.opcode import OUT
from nmpsim.lir.opcodes import NO_WORK
from nmpsim.lir.printer import format_name, format_type
from nmpsim.views.text import format_elem, format_shape


@attrs.frozen
class GraphNode:
    """Node of a graph: an instruction, layer, input or output."""

    id: str
    """Identifier, see :func:`make_node_id`."""
    label: str
    """Opcode, ``input`` or ``output``."""
    namespace: str
    """Enclosing groups, outermost first, separated by slashes."""
    attributes: Mapping[str, str]
    sources: tuple[str, ...]
    """Identifiers of the nodes whose results it reads."""
    result: Mapping[str, str]
    """Properties of its result."""


@attrs.frozen
class ProgramGraph:
    """Graph of a program: its name and its nodes with edges from their sources."""

    name: str
    nodes: tuple[GraphNode, ...]


def read_program_graph(path: Path) -> ProgramGraph:
    """Read the graph of a bundle, an ONNX model or LIR text.

    A bundle without LIR has layers without edges.

    Raises
    ------
    UserError
        FILE, LIR, MODEL, BUN and PKG codes.
    """
    if is_bundle(path):
        return _bundle_network(read_bundle(path))
    front_end = find_front_end(path)
    if front_end is not None and front_end.name == "ONNX":
        return _onnx_network(path.stem, read_graph(load_model(path), {}, Place(str(path))))
    return _module_network(load_program(path).module)


def make_node_id(name: str) -> str:
    """Return the identifier of the node of a layer or tensor, such as ``%conv1``.

    It starts with a percent sign and so differs from the numbers of nodes in TFLite graphs.
    """
    return format_name(name)


def _bundle_network(bundle: Bundle) -> ProgramGraph:
    metadata = bundle.metadata
    try:
        flow = build_layer_flow(bundle)
    except UserError:
        flow = DataFlow({}, {})
    layers = (
        _node(
            layer.name,
            layer.operation,
            {
                "layer": f"{layer.index} {layer.display_name}",
                "LIR line": str(layer.line or ""),
                "from": metadata.origins.get(layer.name, ""),
                "fused": ", ".join(layer.fused),
                "runs on": layer.placement,
                "because": layer.reason,
                "arithmetic": layer.numerics,
                "MACs": f"{layer.macs:,}" if layer.macs else "",
            },
            flow,
            _tensor(layer.output),
        )
        for layer in metadata.layers
    )
    inputs = {tensor.name: _tensor(tensor) for tensor in metadata.user_inputs}
    outputs = {tensor.name: _tensor(tensor) for tensor in metadata.user_outputs}
    return ProgramGraph(metadata.program, tuple(_with_ends(inputs, layers, outputs, flow)))


def _onnx_network(name: str, graph: Graph) -> ProgramGraph:
    """Return the graph of an ONNX model, with the numbers of operators as identifiers."""
    made = {one.name: f"input {one.name}" for one in graph.inputs}
    nodes = [GraphNode(made[one.name], "input", "", {}, (), {}) for one in graph.inputs]
    for one in graph.nodes:
        texts = {f"in {place}": _operand(of, graph) for place, of in enumerate(one.inputs) if of}
        texts |= {f"out {place}": escape_line(of) for place, of in enumerate(one.outputs) if of}
        texts |= {key: _text(value) for key, value in one.attributes.items()}
        sources = tuple(made[of] for of in one.inputs if of in made)
        nodes.append(
            GraphNode(str(one.index), one.op, _namespace(one.outputs[0]), texts, sources, {})
        )
        made |= dict.fromkeys(one.results, str(one.index))
    for output in graph.outputs:
        sources = (made[output],) if output in made else ()
        nodes.append(GraphNode(f"output {output}", "output", "", {}, sources, {}))
    return ProgramGraph(name, tuple(nodes))


def _operand(name: str, graph: Graph) -> str:
    values = graph.constants.get(name)
    if values is None:
        return escape_line(name)
    return f"{escape_line(name)}: constant {values.dtype} {format_shape(values.shape)}"


def _module_network(module: Module) -> ProgramGraph:
    flow = build_data_flow(module)
    types = {weight.name: weight.type for weight in module.weights}
    for instruction in module.instructions:
        type = instruction.attributes.get("Ty")
        if isinstance(type, TensorType):
            types[instruction.name] = type
    instructions = (
        _node(one.name, one.opcode, _texts(one, types), flow, _type(types[_result_name(one)]))
        for one in module.instructions
        if one.opcode not in NO_WORK
    )
    ends = {one.name: _type(one.type) for one in module.weights if not one.constant}
    outputs = {name: of for name, of in ends.items() if name in flow.outputs}
    inputs = {name: of for name, of in ends.items() if name not in flow.outputs}
    return ProgramGraph(module.name, tuple(_with_ends(inputs, instructions, outputs, flow)))


def _with_ends(
    inputs: Mapping[str, Mapping[str, str]],
    nodes: Iterator[GraphNode],
    outputs: Mapping[str, Mapping[str, str]],
    flow: DataFlow,
) -> Iterator[GraphNode]:
    for name, result in inputs.items():
        yield GraphNode(make_node_id(name), "input", "", {}, (), result)
    yield from nodes
    for name, result in outputs.items():
        sources = tuple(map(make_node_id, flow.outputs.get(name, ())))
        yield GraphNode(make_node_id(name), "output", "", {}, sources, result)


def _node(
    name: str,
    label: str,
    attributes: Mapping[str, str],
    flow: DataFlow,
    result: Mapping[str, str],
) -> GraphNode:
    shown = {key: escape_line(text) for key, text in {"name": name, **attributes}.items() if text}
    sources = tuple(map(make_node_id, flow.sources.get(name, ())))
    return GraphNode(make_node_id(name), label, _namespace(name), shown, sources, result)


def _namespace(name: str) -> str:
    """Return the groups of a TensorFlow name: ``a/b`` for ``a/relu;a/b/Conv2D``."""
    *groups, _ = name.rpartition(";")[2].split("/")
    return "/".join(escape_line(group) for group in groups if group)


def _texts(instruction: Instruction, types: Mapping[str, TensorType]) -> dict[str, str]:
    operands = {
        f"{operand.kind} {place}": f"{format_name(operand.name)} {format_type(types[operand.name])}"
        for place, operand in enumerate(instruction.operands)
    }
    return {
        "number": str(instruction.number),
        "LIR line": str(instruction.span.line or ""),
        **operands,
        **{name: _text(value) for name, value in instruction.attributes.items()},
    }


def _text(value: object) -> str:
    if isinstance(value, TensorType):
        return format_type(value)
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {format_shape(value.shape)}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = list(value)
    return escape_line(str(value))


def _result_name(instruction: Instruction) -> str:
    """Return the operand that holds the result: the first one that is only written, if any."""
    written = (one.name for one in instruction.operands if one.kind == OUT)
    return next(written, instruction.operands[0].name)


def _tensor(tensor: Tensor) -> dict[str, str]:
    return _shown(tensor.elem, tensor.shape, tensor.scale, tensor.offset)


def _type(type: TensorType) -> dict[str, str]:
    quant = type.quant
    scale, offset = (quant.scale, quant.offset) if quant else (None, None)
    return _shown(type.elem, type.shape, scale, offset)


def _shown(
    elem: str, shape: Sequence[int], scale: float | None, offset: int | None
) -> dict[str, str]:
    """Return tensor properties under Model Explorer's names; edges are labelled by shape."""
    shown = {"tensor_shape": f"{format_elem(elem)} {format_shape(shape)}"}
    if scale is None:
        return shown
    return shown | {
        "quantization": f"{scale!r} * (q {'+' if (offset or 0) < 0 else '-'} {abs(offset or 0)})"
    }
