"""A float PyTorch model as the graph of an ONNX model, of which LIR is made in one place only.

Each operation that the run has done becomes one of ONNX's operators, or a few. One that has none
stays under its own name, and is refused by it.
"""

from __future__ import annotations

import attrs

from nmpsim.diagnostics import Place
from nmpsim.frontends.builder import Builder
from nmpsim.frontends.graph.steps import Graph, Input
from nmpsim.frontends.imported import Imported, Wishes
from nmpsim.frontends.onnx import lower
from nmpsim.frontends.torch.drawing import Drawing
from nmpsim.frontends.torch.float_operations import FLOAT_OPERATIONS
from nmpsim.frontends.torch.record import Recorded
from nmpsim.lir.names import legal_name
from nmpsim.lir.nodes import Instruction, Module

OPSET = 21
"""Of ONNX, whose operators these are."""
_QUANTIZED = ("quantized.", "quantized_decomposed.", "aten.quantize", "aten.dequantize")


def is_float(recorded: Recorded) -> bool:
    """Whether nothing in a model is quantized."""
    tensors = [tensor for _, tensor in (*recorded.inputs, *recorded.outputs)]
    return all(tensor.dtype == "float32" for tensor in tensors) and not any(
        call.operation.startswith(_QUANTIZED) for call in recorded.calls
    )


def lower_float(recorded: Recorded, place: str) -> Imported:
    """A float model as LIR that is to be quantized; MODEL002 for what is not supported."""
    graph = float_graph(recorded)
    builder = Builder(legal_name(recorded.name), place)
    imported = lower(graph, builder, Place(place), Wishes(to_quantize=True))
    module = _without_copies(imported.module)
    names = {one.name for one in module.instructions}
    fates = []
    for fate in imported.fates:
        layers = tuple(name for name in fate.layers if name in names)
        why = fate.why if layers == fate.layers else "the result as it is"
        fates.append(attrs.evolve(fate, layers=layers, why=why))
    return attrs.evolve(imported, module=module, fates=tuple(fates))


def _without_copies(module: Module) -> Module:
    """With results that are only copied to an output made there; layers keep their names."""
    buffers = {i.name: i for i in module.instructions if i.opcode == "allocactivation"}
    types = {weight.name: weight.type for weight in module.weights}
    instead: dict[str, str] = {}
    gone: set[str] = set()
    for instruction in module.instructions:
        if instruction.opcode == "copy":
            output, source = (operand.name for operand in instruction.operands)
            buffer = buffers.get(source)
            is_free = source not in instead and output not in instead.values()
            if buffer and is_free and buffer.attributes["Ty"] == types.get(output):
                instead[source] = output
                gone.update((source, instruction.name))

    def kept(instruction: Instruction) -> Instruction | None:
        names = [operand.name for operand in instruction.operands]
        if instruction.name in gone:
            return None
        if instruction.opcode == "deallocactivation" and names[0] in instead:
            return None
        operands = tuple(
            attrs.evolve(one, name=instead.get(one.name, one.name)) for one in instruction.operands
        )
        return attrs.evolve(instruction, operands=operands)

    lines = [line for line in map(kept, module.instructions) if line is not None]
    numbered = (attrs.evolve(line, number=number) for number, line in enumerate(lines))
    return attrs.evolve(module, instructions=tuple(numbered))


def float_graph(recorded: Recorded) -> Graph:
    """The graph. Tensors have the names of modules, inputs and outputs those of the model."""
    drawing = Drawing(recorded)
    for call in recorded.calls:
        drawing.take(call, FLOAT_OPERATIONS)
    for name, tensor in recorded.outputs:
        drawing.add("Identity", [drawing.name(tensor)], [name])
    inputs = tuple(Input(name, "float32", tensor.shape) for name, tensor in recorded.inputs)
    outputs = tuple(name for name, _ in recorded.outputs)
    return Graph(tuple(drawing.nodes), drawing.constants, inputs, outputs, OPSET)
