"""Extraction of layers of a module as a program."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from nmpsim.arrays import Arrays
from nmpsim.bundle.metadata import Layer
from nmpsim.compiler.resolve import resolve_operands
from nmpsim.core.run import make_layer_key
from nmpsim.interpreter.memory import TensorMemory
from nmpsim.lir.nodes import Instruction, Module, SourcePosition, WeightVar
from nmpsim.lir.opcodes import IN, OUT
from nmpsim.lir.scales import iterate_types
from nmpsim.lir.verify import verify

LIFE = ("allocactivation", "deallocactivation")
"""Opcodes that begin and end the life of a buffer."""


@attrs.frozen(eq=False)
class ExtractedProgram:
    """Extracted program, and the values of its inputs in the original run."""

    module: Module
    inputs: Arrays


def extract_layers(
    module: Module,
    layers: Sequence[Layer],
    indices: range,
    inputs: Arrays,
    outputs: Arrays,
) -> ExtractedProgram:
    """Extract consecutive layers of a module as a program with the inputs of its run.

    Tensors that they read but do not write become inputs with their contents at the start of the
    first layer; results become outputs.

    Parameters
    ----------
    module
        The whole program, with its constants.
    layers
        All of its layers, in the order of the run.
    indices
        Indices of the layers to extract.
    inputs
        Inputs of the run as the device stored them, by name.
    outputs
        Outputs of all earlier layers by the keys of saved layers.

    Raises
    ------
    UserError
        LIR codes if the result is not a valid program.
    """
    names = {name for index in indices for name in _list_instructions(layers[index])}
    operations = [op for op in resolve_operands(module)[1] if op.instruction.name in names]
    read: set[str] = set()
    written: set[str] = set()
    unread: set[str] = set()
    for op in operations:
        for view, operand in zip(op.operands, op.instruction.operands, strict=True):
            # Only a part may be written through a view: what was there before stays.
            if operand.kind != OUT or view.name != view.buffer.name:
                read |= {view.buffer.name} - written
            if operand.kind == IN:
                unread.discard(view.buffer.name)
        results = {view.buffer.name for view in op.list_outputs()}
        unread |= results
        written |= results
    used = {view.buffer.name for op in operations for view in op.operands}
    weights = [weight for weight in module.weights if weight.name in used]
    declared = {weight.name for weight in weights}
    weights += [  # a buffer at the border becomes a weight
        WeightVar(name, type, constant=False, span=SourcePosition(0, 0))
        for name, type, *_ in iterate_types(module)
        if name in (read | unread) - declared
    ]
    inner = used - {weight.name for weight in weights}
    part = Module(
        name=module.name,
        weights=tuple(weights),
        instructions=_select_instructions(module, names, inner),
        constants={name: array for name, array in module.constants.items() if name in used},
    )
    verify(part)
    contents = TensorMemory(module, lambda type: type.dtype)
    for name, values in inputs.items():
        contents.write(name, values)
    for layer in layers[: indices.start]:
        values = outputs[make_layer_key(layer)].reshape(layer.output.shape)
        contents.write(layer.operand, values)
    constant = {weight.name for weight in weights if weight.constant}
    return ExtractedProgram(part, {name: contents.read(name).copy() for name in read - constant})


def _list_instructions(layer: Layer) -> tuple[str, ...]:
    return layer.fused or (layer.name,)


def _select_instructions(
    module: Module, names: set[str], buffers: set[str]
) -> tuple[Instruction, ...]:
    """Return instructions by name, with the views that they use, and the lives of buffers."""
    used, selected = set(names), []
    for instruction in reversed(module.instructions):
        operands = {operand.name for operand in instruction.operands}
        is_view = instruction.opcode == "tensorview" and instruction.name in used
        is_life = instruction.opcode in LIFE and buffers & {instruction.name, *operands}
        if is_view or is_life or instruction.name in names:
            selected.append(instruction)
            used |= operands
    return tuple(attrs.evolve(i, number=number) for number, i in enumerate(reversed(selected)))
