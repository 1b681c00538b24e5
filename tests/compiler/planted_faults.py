"""Faults planted into compiled programs, and legal instruction orders of one program.

Each core's part of a compiled program is straight-line code, cut here into blocks: an instruction
for a unit, a wait, a barrier or the halt, behind the scalar instructions that load its operands.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import attrs
import numpy as np
from instruction_streams import core_steps

from nmpsim.bundle import Bundle
from nmpsim.isa.codec import DecodedInstruction, decode_descriptor, encode, get_word_indices
from nmpsim.isa.table import DESCRIPTORS, Unit

NOP = encode("addi", {"rd": 0, "rs1": 0, "imm": 0})
ADDRESSES = ("input", "output", "spm")


@attrs.frozen
class Block:
    """Instruction of the NMP with the scalar instructions before it."""

    begin: int
    """Address of the first of them."""
    pc: int
    """Address of the instruction itself."""
    decoded: DecodedInstruction
    rs1: int
    """Address of the descriptor, if there is one."""
    rs2: int

    @property
    def name(self) -> str:
        return self.decoded.instruction.mnemonic

    @property
    def unit(self) -> Unit | None:
        return self.decoded.instruction.unit

    @property
    def kind(self) -> str:
        """Return the kind of the descriptor."""
        return str(self.decoded.instruction.descriptor)


Stream = Sequence[Block]


@attrs.frozen(eq=False)
class Fault:
    """Program with one fault in it."""

    kind: str
    what: str
    bundle: Bundle


def streams(bundle: Bundle) -> list[Stream]:
    """Return the blocks of each core for each step of the device."""
    cores = int(str(bundle.metadata.device["cores_count"]))
    entries = [step.entry for step in bundle.metadata.steps if step.kind == "device"]
    return [list(_blocks(bundle, entry or 0, core)) for entry in entries for core in range(cores)]


def _blocks(bundle: Bundle, entry: int, core: int) -> Iterator[Block]:
    begin = entry
    for pc, decoded, registers in core_steps(bundle, entry, core):
        if decoded.instruction.mnemonic == "jalr":  # its target is only known at the next step
            begin = 0
            continue
        begin = begin or pc
        if decoded.instruction.mnemonic.startswith("nmp."):
            rs1, rs2 = (registers[decoded.operands.get(r, 0)] for r in ("rs1", "rs2"))
            yield Block(begin, pc, decoded, rs1, rs2)
            begin = pc + 4


# --- faults ---------------------------------------------------------------------------------------


def patch_words(bundle: Bundle, words: dict[int, int]) -> Bundle:
    """Return the bundle with the words at some addresses replaced."""
    image = bundle.image.copy()
    for address, word in words.items():
        at = address - bundle.image_base
        image[at : at + 4] = np.frombuffer((word & 0xFFFF_FFFF).to_bytes(4, "little"), np.uint8)
    return attrs.evolve(bundle, image=image)


def read_words(bundle: Bundle, block: Block) -> dict[str, int]:
    """Return the words of a block's descriptor."""
    at, nbytes = block.rs1 - bundle.image_base, DESCRIPTORS[block.kind].nbytes
    return decode_descriptor(block.kind, bundle.image[at : at + nbytes].tobytes())


def get_word_address(block: Block, name: str) -> int:
    """Return the address of a word of a block's descriptor."""
    return block.rs1 + 4 * get_word_indices(block.kind)[name]


def remove_instructions(bundle: Bundle, mnemonic: str) -> Iterator[Fault]:
    """Yield one fault for each instruction with this mnemonic that is removed."""
    for block in itertools.chain(*streams(bundle)):
        if block.name == mnemonic:
            yield Fault(f"no {mnemonic}", hex(block.pc), patch_words(bundle, {block.pc: NOP}))


def remove_barriers(bundle: Bundle) -> Iterator[Fault]:
    """Yield faults in which a barrier is missing or counts fewer cores, in one core or in all."""
    by_number: dict[int, list[Block]] = {}
    for block in itertools.chain(*streams(bundle)):
        if block.name == "nmp.barrier":
            by_number.setdefault(block.rs1, []).append(block)
    for number, there in by_number.items():
        fewer = encode("addi", {"rd": there[0].decoded.operands["rs2"], "rs1": 0, "imm": 1})
        everywhere = dict.fromkeys((block.pc for block in there), NOP)
        yield Fault("no barrier", str(number), patch_words(bundle, everywhere))
        yield Fault("no barrier", f"{number} of one core", patch_words(bundle, {there[0].pc: NOP}))
        count_at = [block.pc - 4 for block in there]
        yield Fault(
            "fewer cores", f"{number} of one core", patch_words(bundle, {count_at[0]: fewer})
        )
        yield Fault("fewer cores", str(number), patch_words(bundle, dict.fromkeys(count_at, fewer)))


def swap_buffers(bundle: Bundle) -> Iterator[Fault]:
    """Yield faults in which an instruction and the next one of its kind swap an address."""
    for stream in streams(bundle):
        last: dict[str, Block] = {}
        for block in stream:
            if block.unit is None:
                continue
            other = last.get(block.kind)
            last[block.kind] = block
            if other is None:
                continue
            mine, theirs = read_words(bundle, block), read_words(bundle, other)
            for name in ADDRESSES:
                if mine.get(name) != theirs.get(name):
                    words = {
                        get_word_address(block, name): theirs[name],
                        get_word_address(other, name): mine[name],
                    }
                    what = f"{name} of {other.pc:#x} and {block.pc:#x}"
                    yield Fault("swapped", what, patch_words(bundle, words))


def shorten_loads(bundle: Bundle) -> Iterator[Fault]:
    """Yield faults in which a load omits a row, a run or half of its bytes."""
    for block in itertools.chain(*streams(bundle)):
        if block.name == "nmp.load":
            words = read_words(bundle, block)
            name = next((n for n in ("count_y", "count_x") if words[n] > 1), "run_bytes")
            less = words[name] // 2 if name == "run_bytes" else words[name] - 1
            what = f"{name} of {block.pc:#x}"
            yield Fault(
                "short load", what, patch_words(bundle, {get_word_address(block, name): less})
            )


# --- legal orders ---------------------------------------------------------------------------------


def delay_unit(bundle: Bundle, parts: Sequence[Stream], late: Unit, depth: int) -> Bundle:
    """Return the program in the order of a chip whose unit ``late`` is as slow as possible.

    ``parts`` are the :func:`streams` of the program.
    The unit's instructions move behind everything that need not wait for them: to the wait for
    the unit, to where its queue of length ``depth`` would be full, or to the end.
    """
    words: dict[int, int] = {}
    for stream in parts:
        address = stream[0].begin
        for block in _late(stream, late, depth):
            for at in range(block.begin, block.pc + 4, 4):
                words[address] = _word(bundle, at)
                address += 4
        assert address == stream[-1].pc + 4
    return patch_words(bundle, words)


def _word(bundle: Bundle, address: int) -> int:
    at = address - bundle.image_base
    return int.from_bytes(bundle.image[at : at + 4].tobytes(), "little")


def _late(stream: Stream, late: Unit, depth: int) -> Iterator[Block]:
    waiting: list[Block] = []
    for block in stream:
        left = len(waiting)
        if block.name == "nmp.halt":
            left = 0
        elif block.name == "nmp.wait" and block.decoded.operands["unit"] == late:
            left = block.decoded.operands["outstanding"]
        elif block.unit == late:
            waiting.append(block)
            left = depth
        while len(waiting) > left:
            yield waiting.pop(0)
        if block.unit != late:
            yield block
