"""Code generation from plans: the program of each core, with a barrier after each layer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nmpsim.bundle.write import BundleBuilder
from nmpsim.compiler.tiling.compiled.items import ARGUMENT, COMPUTE, KIND, LOAD, STORE, WAIT
from nmpsim.compiler.tiling.grid import Integers, compute_offsets
from nmpsim.compiler.tiling.plan import LayerPlan, TileInstructions, get_word_offsets
from nmpsim.compiler.tiling.simulate import order_instructions
from nmpsim.isa.codec import BY_MNEMONIC, encode, encode_records
from nmpsim.isa.expressions import compute_high_part, compute_low_part
from nmpsim.isa.table import REGISTERS, CsrAddress, Unit

T0, T1 = REGISTERS.index("t0"), REGISTERS.index("t1")
Words = npt.NDArray[np.uint32]


class Emitter:
    """Emitter that writes planned layers as descriptors and instructions to a bundle."""

    def __init__(self, builder: BundleBuilder, cores: int) -> None:
        self._builder = builder
        self._cores = cores
        self._programs: list[list[list[Words]]] = []
        """[segment][core] Instruction words, layer by layer."""

    def begin_segment(self) -> None:
        """Begin a segment: core programs for the device layers until the next host operation."""
        self._programs.append([[] for _ in range(self._cores)])

    def add_layer(self, plan: LayerPlan, layer: int, barrier: int) -> None:
        """Add a layer's descriptors, and its instructions and barrier on all cores."""
        items, begins = order_instructions(plan)
        words, ends = _code(plan, items, self._add_descriptors(plan, items, layer))
        last = np.array(self._barrier(barrier), np.uint32)
        for core, program in enumerate(self._programs[-1]):
            program += [words[ends[begins[core]] : ends[begins[core + 1]]], last]

    def emit_code(self) -> list[int]:
        """Emit the code of all segments to the bundle and return their entry addresses."""
        return [self._segment(index, p) for index, p in enumerate(self._programs)]

    def _add_descriptors(self, plan: LayerPlan, items: Integers, layer: int) -> Integers:
        """Place descriptors in the order of their instructions; return their addresses."""
        commands = _by_kind(plan)
        sizes = np.zeros(2 * WAIT, np.int64)
        sizes[list(commands)] = [one.words.shape[1] for one in commands.values()]
        ends = compute_offsets(sizes[items[:, KIND]])
        flat = np.empty(ends[-1], np.uint32)
        for kind, one in commands.items():
            one.words[:, get_word_offsets(one.mnemonic)["layer"]] = layer
            table = encode_records(str(BY_MNEMONIC[one.mnemonic].descriptor), one.words)
            chosen = items[:, KIND] == kind
            places = ends[:-1][chosen][:, None] + np.arange(table.shape[1])
            flat[places] = table[items[chosen, ARGUMENT]]
        start = self._builder.add_descriptor(flat.astype("<u4").tobytes())
        return start + 4 * ends[:-1]

    def _barrier(self, number: int) -> list[int]:
        return [
            *encode_load_immediate(T0, number),
            encode("addi", {"rd": T1, "rs1": 0, "imm": self._cores}),
            encode("nmp.barrier", {"rs1": T0, "rs2": T1}),
        ]

    def _segment(self, index: int, programs: list[list[Words]]) -> int:
        """Place the entry code, which jumps to the code of each core, then that code."""
        halt = np.array([encode("nmp.halt", {})], np.uint32)
        code = [np.concatenate([*words, halt]) for words in programs]
        start = self._builder.get_code_address()
        jumps = start + 4 * ENTRY_WORDS
        address = jumps + 8 * self._cores
        table: list[int] = []
        for words in code:
            table += _jump(address)
            address += 4 * len(words)
        self._builder.add_code([*_entry(jumps), *table], f"segment_{index}")
        for core, words in enumerate(code):
            self._builder.add_code(words, f"segment_{index}.core_{core}")
        return start


def _by_kind(plan: LayerPlan) -> dict[int, TileInstructions]:
    return {LOAD: plan.loads, STORE: plan.stores, COMPUTE: plan.computes}


def _code(plan: LayerPlan, items: Integers, addresses: Integers) -> tuple[Words, Integers]:
    """Return the instruction words of all items, and the offset of each item's with the end."""
    kinds = items[:, KIND]
    is_wait = kinds >= WAIT
    ends = compute_offsets(np.where(is_wait, 1, 3))
    words = np.empty(ends[-1], np.uint32)
    lui, addi = (np.uint32(word) for word in encode_load_immediate(T0, 0))
    low = compute_low_part(addresses)
    at = ends[:-1][~is_wait]
    words[at] = lui | (addresses - low)[~is_wait].astype(np.uint32)
    words[at + 1] = addi | ((low & 0xFFF) << 20)[~is_wait].astype(np.uint32)
    starts = np.array(
        [encode(one.mnemonic, {"rs1": T0}) for one in _by_kind(plan).values()], np.uint32
    )
    words[at + 2] = starts[kinds[~is_wait]]
    units = (Unit.LOAD, Unit.STORE, plan.unit)
    waits, which = np.unique(items[is_wait], axis=0, return_inverse=True)
    encoded = [
        encode("nmp.wait", {"unit": units[kind - WAIT], "outstanding": left})
        for kind, left in waits
    ]
    words[ends[:-1][is_wait]] = np.array(encoded, np.uint32)[which.reshape(-1)]
    return words, ends


def encode_load_immediate(register: int, value: int) -> list[int]:
    """Encode the instructions ``lui`` and ``addi`` that load a 32-bit value into a register."""
    return [
        encode("lui", {"rd": register, "imm": compute_high_part(value) << 12}),
        encode("addi", {"rd": register, "rs1": register, "imm": compute_low_part(value)}),
    ]


ENTRY_WORDS = 6


def _entry(jumps: int) -> list[int]:
    """Return code that continues at ``jumps`` + 8n on core n."""
    return [
        encode("csrrs", {"rd": T1, "csr": CsrAddress.MHARTID, "rs1": 0}),
        encode("slli", {"rd": T1, "rs1": T1, "shamt": 3}),
        *encode_load_immediate(T0, jumps),
        encode("add", {"rd": T0, "rs1": T0, "rs2": T1}),
        encode("jalr", {"rd": 0, "rs1": T0, "imm": 0}),
    ]


def _jump(address: int) -> list[int]:
    return [
        encode("lui", {"rd": T0, "imm": compute_high_part(address) << 12}),
        encode("jalr", {"rd": 0, "rs1": T0, "imm": compute_low_part(address)}),
    ]
