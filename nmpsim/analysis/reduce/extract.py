"""Extraction of layers of a module as a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.bundle.metadata import Layer
from nmpsim.core.run import make_layer_key
from nmpsim.interpreter.memory import TensorMemory, locate_tensors
from nmpsim.lir.nodes import Instruction, Module, Operand, Span, TensorType, WeightVar
from nmpsim.lir.opcodes import IN, OUT
from nmpsim.lir.verify import verify

Array = npt.NDArray[Any]
_NOWHERE = Span(0, 0)


@attrs.frozen(eq=False)
class Part:
    """An extracted program and the values of its inputs in the original run."""

    module: Module
    inputs: Mapping[str, Array]


def extract_layers(
    module: Module,
    layers: Sequence[Layer],
    wanted: range,
    given: Mapping[str, Array],
    outputs: Mapping[str, Array],
) -> Part:
    """Extract layers of a module as a program.

    Tensors that they read but do not write become inputs with their contents at the start of the
    first layer; results become outputs.

    Parameters
    ----------
    module
        The whole program, with its constants.
    layers
        All of its layers, in the order of the run.
    wanted
        Indices of the layers to extract.
    given
        Inputs of the run as the device stored them, by name.
    outputs
        Outputs of all earlier layers by the keys of saved layers.

    Raises
    ------
    UserError
        LIR codes if the result is not a valid program.
    """
    kept = _instructions(module, [layers[index] for index in wanted])
    used = {operand.name for instruction in kept for operand in instruction.operands}
    views = _views(module, used)
    places = locate_tensors(module)
    storages = {places[name].storage for name in used}
    read_first = _read_first(kept, {name: places[name].storage for name in used})
    contents = _contents(module, layers[: wanted.start], given, outputs)
    weights = _weights(module, storages, read_first | _left(kept, places, storages))
    names = {weight.name for weight in weights}
    buffers = [i for i in module.instructions if i.name in storages - names]
    part = Module(
        name=module.name,
        weights=weights,
        instructions=_numbered([*buffers, *_in_order(module, [*views, *kept]), *_freed(buffers)]),
        constants={n: values for n, values in module.constants.items() if n in names},
    )
    verify(part)
    constant = {weight.name for weight in weights if weight.constant}
    inputs = {name: contents.read(name).copy() for name in read_first - constant}
    return Part(part, inputs)


def _instructions(module: Module, layers: Iterable[Layer]) -> list[Instruction]:
    names = {name for layer in layers for name in layer.fused or (layer.name,)}
    return [instruction for instruction in module.instructions if instruction.name in names]


def _views(module: Module, used: set[str]) -> list[Instruction]:
    """Return the used tensorviews and their sources, which are added to ``used``."""
    views = []
    for instruction in reversed(module.instructions):
        if instruction.opcode == "tensorview" and instruction.name in used:
            views.append(instruction)
            used.update(operand.name for operand in instruction.operands)
    return views


def _read_first(kept: Sequence[Instruction], storage_of: Mapping[str, str]) -> set[str]:
    """Return storages that are read before they are written."""
    read: set[str] = set()
    written: set[str] = set()
    for instruction in kept:
        for operand in instruction.operands:
            storage = storage_of[operand.name]
            # Only a part may be written through a view: what was there before stays.
            if operand.kind != OUT or storage != operand.name:
                read |= {storage} - written
        written |= {storage_of[o.name] for o in instruction.operands if o.kind != IN}
    return read


def _left(kept: Sequence[Instruction], places: Mapping[str, Any], storages: set[str]) -> set[str]:
    """Return storages whose last result is not read in the part: its outputs."""
    left: set[str] = set()
    for instruction in kept:
        left -= {places[o.name].storage for o in instruction.operands if o.kind == IN}
        left |= {places[o.name].storage for o in instruction.operands if o.kind != IN}
    return left & storages


def _contents(
    module: Module,
    before: Sequence[Layer],
    given: Mapping[str, Array],
    outputs: Mapping[str, Array],
) -> TensorMemory:
    memory = TensorMemory(module, lambda type: type.dtype)
    for name, values in given.items():
        memory.write(name, values)
    for layer in before:
        memory.write(layer.operand, outputs[make_layer_key(layer)].reshape(layer.output.shape))
    return memory


def _weights(module: Module, storages: set[str], outside: set[str]) -> tuple[WeightVar, ...]:
    """Return constants, inputs and outputs; a buffer at the border becomes a weight."""
    weights = [weight for weight in module.weights if weight.name in storages]
    for instruction in module.instructions:
        type = instruction.attributes.get("Ty")
        if instruction.name in outside and instruction.opcode == "allocactivation":
            assert isinstance(type, TensorType)
            weights.append(WeightVar(instruction.name, type, constant=False, span=_NOWHERE))
    return tuple(weights)


def _in_order(module: Module, chosen: Sequence[Instruction]) -> list[Instruction]:
    return sorted(chosen, key=lambda instruction: instruction.number)


def _freed(buffers: Sequence[Instruction]) -> list[Instruction]:
    return [
        Instruction(
            number=0,
            name=f"dealloc_{buffer.name}",
            opcode="deallocactivation",
            operands=(Operand(OUT, buffer.name, _NOWHERE),),
            attributes={},
            span=_NOWHERE,
        )
        for buffer in buffers
    ]


def _numbered(instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    return tuple(attrs.evolve(one, number=number) for number, one in enumerate(instructions))
