"""The layout of a program's DRAM, with the layers during which each tensor is stored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from nmpsim.analysis.program import Program, make_bundle_program
from nmpsim.bundle import Bundle
from nmpsim.bundle.metadata import Tensor
from nmpsim.diagnostics import UserError
from nmpsim.interpreter import locate_tensors
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.lir.opcodes import NO_WORK
from nmpsim.report.analyses import MemoryBlock


def memory_map(bundle: Bundle) -> tuple[MemoryBlock, ...]:
    """Return the blocks of a program's DRAM: sections, inputs, outputs and activations.

    Parameters
    ----------
    bundle
        The program. Its LIR gives the lifetime of activations; without it each activation is listed
        with the layer that writes it.

    Returns
    -------
    tuple of MemoryBlock
        Read-only sections of the program, then inputs, outputs and activations by address.
    """
    last = max(len(bundle.metadata.layers) - 1, 0)
    sections = [
        MemoryBlock(name.lstrip("."), "program", begin, end - begin, 0, last)
        for name, (begin, end) in bundle.sections.items()
        if begin < bundle.rw_base and end > begin
    ]
    always = [*_always(bundle, last)]
    named = {block.name for block in always}
    activations = [block for block in _activations(bundle) if block.name not in named]
    read_write = sorted([*always, *activations], key=lambda block: (block.address, block.first))
    return (*sections, *read_write)


def _always(bundle: Bundle, last: int) -> Iterator[MemoryBlock]:
    """Yield inputs and outputs, which live from the first layer to the last."""
    for tensor in bundle.metadata.inputs:
        yield MemoryBlock(tensor.name, "input", tensor.address, _nbytes(tensor), 0, last)
    for tensor in bundle.metadata.outputs:
        yield MemoryBlock(tensor.name, "output", tensor.address, _nbytes(tensor), 0, last)


def _activations(bundle: Bundle) -> Iterator[MemoryBlock]:
    try:
        program = make_bundle_program(bundle)
    except UserError:  # none, or another version's: what the layers write is known all the same
        yield from _written(bundle)
        return
    for name, (nbytes, first, last) in _lives(program).items():
        if name in bundle.symbols:
            address = bundle.symbols[name]
            yield MemoryBlock(name, "activation", address, nbytes, first, last)


def _written(bundle: Bundle) -> Iterator[MemoryBlock]:
    for layer in bundle.metadata.layers:
        tensor = layer.output
        size = _nbytes(tensor)
        yield MemoryBlock(tensor.name, "activation", tensor.address, size, layer.index, layer.index)


def _lives(program: Program) -> Mapping[str, tuple[int, int, int]]:
    """Return size in bytes, first and last layer of each buffer by name."""
    layers = program.layer_indices or {}
    locations = locate_tensors(program.module)
    weights = {weight.name for weight in program.module.weights}
    lives: dict[str, tuple[int, int, int]] = {}
    for instruction in program.module.instructions:
        layer = layers.get(instruction.name)
        if layer is None or instruction.opcode in NO_WORK:
            continue
        for operand in instruction.operands:
            name = locations[operand.name].storage
            if name not in weights:
                _, first, last = lives.get(name, (0, layer, layer))
                nbytes = locations[name].type.nbytes
                lives[name] = (nbytes, min(first, layer), max(last, layer))
    return lives


def _nbytes(tensor: Tensor) -> int:
    dtype = ELEM_DTYPES.get(tensor.elem)
    return math.prod(tensor.shape) * (dtype.itemsize if dtype else 1)
