"""Which constants of a program were quantized, and what they stand for."""

from __future__ import annotations

from collections.abc import Iterator

from nmpsim.analysis.shadow.errors import Real
from nmpsim.analysis.shadow.recording import part
from nmpsim.interpreter import Location, dequantize, dequantize_rows, locate, own_scales
from nmpsim.lir.nodes import Instruction, Module
from nmpsim.lir.opcode import WEIGHTED
from nmpsim.lir.opcodes import OPCODES


def quantized_constants(module: Module) -> dict[str, Real]:
    """The real values of every constant that holds quantized weights, by name.

    Filters and biases whose scales are constants themselves get those. Look-up tables are no
    weights and are left out.
    """
    own: dict[str, Real] = {}
    tables: set[str] = set()
    for instruction, places in _uses(module):
        own |= _with_own_scales(module, instruction, places)
        roles = [role.name for role in OPCODES[instruction.opcode].operands]
        tables |= {p.storage for r, p in zip(roles, places, strict=True) if r == "Mapping"}
    return {
        weight.name: own.get(weight.name, dequantize(module.constants[weight.name], weight.type))
        for weight in module.weights
        if weight.constant and weight.type.quant is not None and weight.name not in tables
    }


def filters_of_biases(module: Module) -> dict[str, str]:
    """Constant that is a bias -> constant that is the filter of its layer."""
    return {
        places[3].storage: places[2].storage
        for instruction, places in _uses(module)
        if OPCODES[instruction.opcode].kind in WEIGHTED
    }


def _uses(module: Module) -> Iterator[tuple[Instruction, list[Location]]]:
    places = locate(module)
    for instruction in module.instructions:
        yield instruction, [places[operand.name] for operand in instruction.operands]


def _with_own_scales(
    module: Module, instruction: Instruction, places: list[Location]
) -> dict[str, Real]:
    found: dict[str, Real] = {}
    for index, parameters in own_scales(instruction).items():
        used = [places[i] for i in (index, *parameters)]
        if all(place.storage in module.constants for place in used):
            array, scales, offsets = (part(module.constants[p.storage], p) for p in used)
            found[used[0].storage] = dequantize_rows(array, scales, offsets)
    return found
