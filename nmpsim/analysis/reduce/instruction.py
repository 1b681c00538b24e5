"""Reduction of a compiled program to one instruction, or by removing instructions.

One instruction with its descriptor, registers and scratchpad becomes a program in assembly. For a
violation of the contract, whose order of accesses depends on the code, removed instructions are
replaced by ones without effect. Both work on programs of any compiler and recompile nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.analysis.reduce.failures import ViolationFailure
from nmpsim.analysis.tensor_instructions import decode_tensor_instruction, read_image_bytes
from nmpsim.arrays import Array, Arrays
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.bundle.metadata import Layer
from nmpsim.bundle.patch import ByteChange, apply_patch
from nmpsim.config import DeviceConfig
from nmpsim.core.device import Device
from nmpsim.core.engine_selection import make_engine
from nmpsim.core.host_steps import execute_host_step, write_tensor
from nmpsim.core.inputs import prepare_inputs
from nmpsim.core.load import load_machine
from nmpsim.core.run import TURNS
from nmpsim.core.state import Machine, Outcome, end_segment, start_cores
from nmpsim.core.stop_conditions import make_stop_conditions
from nmpsim.diagnostics import UserError
from nmpsim.isa.assembly import disassemble_word
from nmpsim.isa.codec import decode, encode
from nmpsim.isa.descriptors import ELEMENTS
from nmpsim.isa.table import DESCRIPTORS, SCRATCHPAD_BASE, Unit
from nmpsim.lir.nodes import Module
from nmpsim.memory.address_map import read_word
from nmpsim.timing import get_costs


@attrs.frozen(eq=False)
class BuiltProgram:
    """Built program: a bundle file, its inputs, and its source as LIR or assembly."""

    image: bytes
    inputs: Arrays
    module: Module | None = None
    assembly: str | None = None


@attrs.frozen
class InstructionElement:
    """Element of a layer's result, with an address in the scratchpad."""

    layer: str
    elem: str
    nbytes: int
    address: int
    """Address in the scratchpad."""


def extract_computing_instruction(
    bundle: Bundle,
    inputs: Arrays,
    config: DeviceConfig,
    engine: str,
    layer: Layer,
    at: Sequence[int],
) -> BuiltProgram | None:
    """Extract the last instruction that writes an element as a program; None if unknown.

    Parameters
    ----------
    bundle, inputs, config, engine
        The program, its inputs, the device and the engine of the run.
    layer
        The layer.
    at
        Coordinates of the element.

    Returns
    -------
    BuiltProgram or None
        None if the instruction is unknown; only instructions that can saturate record their
        elements.
    """
    flat = int(np.ravel_multi_index(tuple(at), layer.output.shape))
    work = _record_work(Device(config, engine), bundle, inputs)
    computed = work[work["unit"] >= Unit.MAC]
    for index in np.flatnonzero(computed["layer"] == layer.index)[::-1]:
        core, pc, descriptor = (int(computed[index][name]) for name in ("core", "pc", "descriptor"))
        element = _find_element(bundle, pc, descriptor, layer, flat)
        if element is not None:
            before = computed[:index]
            earlier = int(((before["core"] == core) & (before["pc"] == pc)).sum())
            machine = _run_until(bundle, inputs, config, engine, (core, pc), earlier)
            return machine and extract_instruction(machine, core, pc, config, element)
    return None


def _record_work(device: Device, bundle: Bundle, inputs: Arrays) -> Any:
    """Run a program; return its work as a structured array without DRAM grants."""
    notes: list[Any] = []
    device.run(bundle, inputs, work=notes.append, strict=False)
    work = np.concatenate(notes)
    return work[work["is_grant"] == 0]


def _find_element(
    bundle: Bundle, pc: int, descriptor: int, layer: Layer, flat: int
) -> InstructionElement | None:
    """Return where an instruction writes a layer element; None if it does not write it."""
    found = decode_tensor_instruction(bundle, pc, descriptor)
    offset = None if found is None else found.find_offset(flat)
    if found is None or offset is None:
        return None
    words = found.words
    elem = {"int8": "i8", "int16": "i16"}[ELEMENTS[words["element"]]]
    return InstructionElement(layer.name, elem, 1 << words["element"], words["output"] + offset)


def _run_until(
    bundle: Bundle,
    inputs: Arrays,
    config: DeviceConfig,
    engine: str,
    stop: tuple[int, int],
    earlier: int,
) -> Machine | None:
    """Return the machine before a core's instruction at an address; None if it is not reached.

    ``stop`` is the core and the address, ``earlier`` the number of executions to pass over.
    """
    machine = load_machine(bundle, config)
    values = prepare_inputs(bundle, inputs)
    for tensor in bundle.metadata.inputs:
        write_tensor(machine, tensor, values[tensor.name])
    stops = make_stop_conditions(config.cores_count, addresses=[stop])
    runner, costs = make_engine(engine), get_costs(config)
    for step in bundle.metadata.steps:
        if step.kind == "host":
            execute_host_step(machine, step)
            continue
        start_cores(machine, step.entry or 0)
        while (outcome := runner.run(machine, costs, TURNS, False, stops)) != Outcome.DONE:
            if outcome == Outcome.STOPPED and earlier == 0:
                return machine
            if outcome == Outcome.STOPPED:
                earlier -= 1
                stops.passed[stop[0]] = machine.cores.retired[stop[0]]
            elif outcome != Outcome.PAUSED:
                return None
        end_segment(machine)
    return None


SCRATCHPAD, RESULT = "scratchpad", "result"
"""Names of the input with the scratchpad's contents and of the output."""


def extract_instruction(
    machine: Machine,
    core: int,
    pc: int,
    config: DeviceConfig,
    element: InstructionElement | None = None,
) -> BuiltProgram | None:
    """Extract the next instruction of a core as a program; None if memory is unreadable.

    Parameters
    ----------
    machine
        State just before the instruction.
    core
        The core.
    pc
        Address of the instruction.
    config
        The device.
    element
        An element of the instruction's result that is the program's output.

    Raises
    ------
    UserError
        ASM codes if the result is not a valid program.
    """
    word = read_word(machine, core, pc)
    if word is None:
        return None
    decoded = decode(word)
    registers = [int(r) & 0xFFFF_FFFF for r in machine.cores[core].registers]
    words = None
    if decoded is not None and decoded.instruction.descriptor is not None:
        base = registers[decoded.operands["rs1"]]
        words = _descriptor(machine, core, base, decoded.instruction.descriptor)
    inputs: dict[str, Array] = {}
    if decoded is not None and words is not None:
        size = int(machine.shared[0].scratchpad_bytes)
        inputs = {SCRATCHPAD: machine.scratchpad[core][:size].view(np.int8).copy()}
        data, setup = _format_data(size, words, element), _FETCH.format(decoded.operands["rs1"])
    else:
        used = {} if decoded is None else decoded.operands
        numbers = sorted({used[name] for name in ("rs1", "rs2") if used.get(name)})
        data = ""
        setup = "".join(f"    li x{number}, {registers[number]:#x}\n" for number in numbers)
    text = f"""\
# {disassemble_word(word, pc)} of core {core} at {pc:#x}
{data}_start:
{setup}    .word {word:#010x}
{_GIVE if element else ""}    nmp.halt
"""
    one_core = attrs.evolve(config, cores_count=1)
    image = assemble(text, "repro.s", one_core.settings()).build_bundle()
    return BuiltProgram(image, inputs, assembly=text)


def _format_data(size: int, words: Sequence[int], wanted: InstructionElement | None) -> str:
    """Return the directives of input, output and descriptors."""
    result = (
        ""
        if wanted is None
        else f"""\
.output {RESULT}, {wanted.elem}[S:1.0 O:0]<1>
.layer 0, {wanted.layer}, instruction, {RESULT}, 0
give: .descriptor store, dram={RESULT}, spm={wanted.address:#x}, \\
    run_bytes={wanted.nbytes}, count_x=1, count_y=1
"""
    )
    descriptor = "".join(f"    .word {value:#010x}\n" for value in (0, *words[1:]))
    return f"""\
.input {SCRATCHPAD}, i8[S:1.0 O:0]<{size}>
{result}fetch: .descriptor load, dram={SCRATCHPAD}, spm={SCRATCHPAD_BASE:#x}, \\
    run_bytes={size}, count_x=1, count_y=1
descriptor:
{descriptor}"""


_FETCH = """\
    la t0, fetch
    nmp.load t0
    nmp.wait load, 0
    la x{}, descriptor
"""
_GIVE = """\
    nmp.wait mac, 0
    nmp.wait vector, 0
    la t0, give
    nmp.store t0
    nmp.wait store, 0
    li t0, 0                # the barrier that ends the layer, for one core
    li t1, 1
    nmp.barrier t0, t1
"""


def _descriptor(machine: Machine, core: int, base: int, name: str) -> list[int] | None:
    addresses = range(base, base + DESCRIPTORS[name].nbytes, 4)
    words = [read_word(machine, core, address) for address in addresses]
    known = [word for word in words if word is not None]
    return known if len(known) == len(words) and base % 4 == 0 else None


MAX_TRIES = 400
"""Largest number of programs that are run."""
_NOTHING = encode("addi", {"rd": 0, "rs1": 0, "imm": 0}).to_bytes(4, "little")


def remove_instructions(
    bundle: Bundle, inputs: Arrays, device: Device, failure: ViolationFailure
) -> tuple[bytes, int, int]:
    """Remove instructions that a violation does not need; return bundle, count and total.

    Returns
    -------
    tuple of bytes, int and int
        The bundle file, and the numbers of remaining and of all tensor instructions at different
        addresses.
    """
    issued = _record_work(device, bundle, inputs)
    order = np.lexsort((issued["begin"], issued["core"], issued["layer"]))
    all_of_them = [
        pc for pc in dict.fromkeys(issued["pc"][order].tolist()) if read_image_bytes(bundle, pc, 4)
    ]
    tries = 0

    def fails(kept: Sequence[int]) -> bool:
        nonlocal tries
        tries += 1
        if tries > MAX_TRIES:
            return False
        image = _without(bundle, set(all_of_them) - set(kept))
        try:
            report = device.run(parse_bundle(image, "repro.bin"), inputs)
        except UserError:  # it is no program without them
            return False
        return failure.occurs_in(report)

    needed = minimize_items(all_of_them, fails)
    return _without(bundle, set(all_of_them) - set(needed)), len(needed), len(all_of_them)


def minimize_items(items: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Remove items until no single item can be removed without losing the failure.

    Source: the ddmin algorithm of Zeller and Hildebrandt, which removes larger parts first.

    Parameters
    ----------
    items
        Items that fail together.
    fails
        Function that returns whether a part of the items fails.
    """
    kept, pieces = list(items), 2
    while len(kept) > 1:
        size = -(-len(kept) // pieces)
        rests = (kept[:n] + kept[n + size :] for n in range(0, len(kept), size))
        smaller = next((rest for rest in rests if fails(rest)), None)
        if smaller is not None:
            kept, pieces = smaller, max(pieces - 1, 2)
        elif size == 1:
            break
        else:
            pieces = min(2 * pieces, len(kept))
    return kept


def _without(bundle: Bundle, removed: set[int]) -> bytes:
    changes = tuple(
        ByteChange(pc, word, _NOTHING, "left out")
        for pc in sorted(removed)
        if (word := read_image_bytes(bundle, pc, 4)) != _NOTHING
    )
    return apply_patch(bytes(bundle.file), changes, bundle.path) if changes else bytes(bundle.file)
