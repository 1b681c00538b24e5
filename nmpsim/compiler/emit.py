"""Code generation from plans: the program of each core, with a barrier after each layer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from nmpsim.bundle.write import BundleBuilder
from nmpsim.compiler.c_kernels import KernelCall
from nmpsim.compiler.tiling.compiled.items import (
    ARGUMENT,
    BARRIER,
    BARRIER_INSTRUCTIONS,
    KIND,
    WAIT,
)
from nmpsim.compiler.tiling.grid import Integers, compute_offsets
from nmpsim.compiler.tiling.plan import InstructionSequence, get_word_offsets
from nmpsim.isa.codec import BY_MNEMONIC, encode, encode_records
from nmpsim.isa.expressions import compute_high_part, compute_low_part
from nmpsim.isa.table import REGISTERS, CsrAddress, Unit

T0, T1 = REGISTERS.index("t0"), REGISTERS.index("t1")
Words = npt.NDArray[np.uint32]


class Emitter:
    """Emitter that writes planned layers as descriptors and instructions to a bundle."""

    def __init__(self, builder: BundleBuilder, cores: int, layers: int) -> None:
        self._builder = builder
        self._cores = cores
        self._next_barrier = layers
        """Number of the next barrier within a chain; smaller numbers end layers."""
        self._programs: list[list[list[Words]]] = []
        """[segment][core] Instruction words, layer by layer."""

    def begin_segment(self) -> None:
        """Begin a segment: core programs for the device layers until the next host operation."""
        self._programs.append([[] for _ in range(self._cores)])

    def add_sequence(self, sequence: InstructionSequence, barrier: int) -> Integers:
        """Add an instruction sequence, whose descriptors name their layers, and a final barrier.

        Returns the address of each item's descriptor.
        """
        begins, addresses = sequence.begins, self._add_descriptors(sequence)
        words, ends = self._code(sequence, addresses)
        last = np.array(encode_barrier(barrier, self._cores), np.uint32)
        for core, program in enumerate(self._programs[-1]):
            program += [words[ends[begins[core]] : ends[begins[core + 1]]], last]
        return addresses

    def add_call(self, call: KernelCall, barrier: int) -> None:
        """Add the call of a C function on all cores, and a barrier."""
        words = np.array([*_encode_call(call), *encode_barrier(barrier, self._cores)], np.uint32)
        for program in self._programs[-1]:
            program.append(words)

    def take_barrier(self) -> int:
        """Return the number of a barrier that no other code uses."""
        self._next_barrier += 1
        return self._next_barrier - 1

    def emit_code(self) -> list[int]:
        """Emit the code of all segments to the bundle and return their entry addresses."""
        return [self._segment(index, p) for index, p in enumerate(self._programs)]

    def _add_descriptors(self, sequence: InstructionSequence) -> Integers:
        """Place descriptors in the order of their instructions; return the address of each item."""
        kinds, arguments = sequence.items.T
        sizes = np.zeros(kinds.size, np.int64)
        tables = []
        for unit, one in enumerate(sequence.units):
            items = np.flatnonzero(kinds == unit)
            which = one.which[arguments[items]]
            for index, mnemonic in enumerate(one.mnemonics):
                chosen, width = items[which == index], len(get_word_offsets(mnemonic))
                words = one.words[arguments[chosen], :width]
                tables.append((chosen, encode_records(_get_descriptor(mnemonic), words)))
                sizes[chosen] = width
        ends = compute_offsets(sizes)
        flat = np.empty(ends[-1], np.uint32)
        for chosen, table in tables:
            flat[ends[chosen][:, None] + np.arange(table.shape[1])] = table
        start = self._builder.add_descriptor(flat.astype("<u4").tobytes())
        return start + 4 * ends[:-1]

    def _code(self, sequence: InstructionSequence, addresses: Integers) -> tuple[Words, Integers]:
        """Return the instruction words of all items, and the offset of each item's with the end."""
        kinds, arguments = sequence.items.T
        is_started, is_barrier = kinds < WAIT, kinds == BARRIER
        ends = compute_offsets(np.select([is_started, is_barrier], [3, BARRIER_INSTRUCTIONS], 1))
        words = np.empty(ends[-1], np.uint32)
        lui, addi = (np.uint32(word) for word in encode_load_immediate(T0, 0))
        low = compute_low_part(addresses)
        at = ends[:-1][is_started]
        words[at] = lui | (addresses - low)[is_started].astype(np.uint32)
        words[at + 1] = addi | ((low & 0xFFF) << 20)[is_started].astype(np.uint32)
        for unit, one in enumerate(sequence.units):
            if one.mnemonics:
                starts = np.array([encode(name, {"rs1": T0}) for name in one.mnemonics], np.uint32)
                items = np.flatnonzero(kinds == unit)
                words[ends[items] + 2] = starts[one.which[arguments[items]]]
        is_wait = ~is_started & ~is_barrier
        waits, which = np.unique(sequence.items[is_wait], axis=0, return_inverse=True)
        encoded = [
            encode("nmp.wait", {"unit": Unit(kind - WAIT), "outstanding": left})
            for kind, left in waits.tolist()
        ]
        words[ends[:-1][is_wait]] = np.array(encoded, np.uint32)[which.reshape(-1)]
        self._number_barriers(sequence, words, ends)
        return words, ends

    def _number_barriers(self, sequence: InstructionSequence, words: Words, ends: Integers) -> None:
        """Write the barriers within a chain: the n-th ones of all cores have the same number."""
        items = np.flatnonzero(sequence.items[:, KIND] == BARRIER)
        before = np.searchsorted(items, sequence.begins)
        for first, last in itertools.pairwise(before.tolist()):
            for number, item in enumerate(items[first:last].tolist(), self._next_barrier):
                code = encode_barrier(number, int(sequence.items[item, ARGUMENT]))
                words[ends[item] : ends[item + 1]] = code
        self._next_barrier += int(np.diff(before).max(initial=0))

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


def _get_descriptor(mnemonic: str) -> str:
    return str(BY_MNEMONIC[mnemonic].descriptor)


def encode_barrier(number: int, cores: int) -> list[int]:
    """Encode the instructions of barrier ``number``, at which ``cores`` cores wait."""
    return [
        *encode_load_immediate(T0, number),
        encode("addi", {"rd": T1, "rs1": 0, "imm": cores}),
        encode("nmp.barrier", {"rs1": T0, "rs2": T1}),
    ]


def _encode_call(call: KernelCall) -> Iterator[int]:
    """Yield the instructions that call a C function with the registers of docs/c.md."""
    values = {
        "sp": call.stack,
        "gp": call.globals,
        "tp": call.thread,
        "a0": call.record,
        "t0": call.function,
    }
    for name, value in values.items():
        yield from encode_load_immediate(REGISTERS.index(name), value)
    for name, csr in (("a1", CsrAddress.MHARTID), ("a2", CsrAddress.MCORES)):
        yield encode("csrrs", {"rd": REGISTERS.index(name), "csr": csr, "rs1": 0})
    yield encode("jalr", {"rd": REGISTERS.index("ra"), "rs1": T0, "imm": 0})


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
