"""Plans to code: every core's program. A barrier of all cores ends every layer."""

from __future__ import annotations

from nmpsim.bundle.write import BundleBuilder
from nmpsim.compiler.tiling.plan import Command, LayerPlan
from nmpsim.compiler.tiling.schedule import Item, schedule
from nmpsim.isa.codec import encode, encode_descriptor
from nmpsim.isa.table import DESCRIPTORS, INSTRUCTIONS, REGISTERS, Csr

T0, T1 = REGISTERS.index("t0"), REGISTERS.index("t1")
DESCRIPTOR_OF = {i.mnemonic: i.descriptor for i in INSTRUCTIONS if i.descriptor}
_NO_WORDS = {name: {word.name: 0 for word in d} for name, d in DESCRIPTORS.items()}


class Emitter:
    """Turns the plans of consecutive device layers into descriptors, then into code."""

    def __init__(self, builder: BundleBuilder, cores: int) -> None:
        self._builder = builder
        self._cores = cores
        self._programs: list[list[list[int]]] = []
        """[segment][core] instruction words"""

    def begin_segment(self) -> None:
        """The layers that follow run without the host in between."""
        self._programs.append([[] for _ in range(self._cores)])

    def add_layer(self, plan: LayerPlan, layer: int, barrier: int) -> None:
        """Emit a layer's descriptors and instructions for all cores."""
        for words, steps in zip(self._programs[-1], plan.cores, strict=True):
            for item in schedule(steps, plan.unit):
                words += self._item(item, layer)
            words += self._barrier(barrier)

    def finish(self) -> list[int]:
        """Lay down all code; entry address of each segment."""
        return [self._segment(index, p) for index, p in enumerate(self._programs)]

    def _item(self, item: Item, layer: int) -> list[int]:
        if not isinstance(item, Command):
            unit, outstanding = item
            return [encode("nmp.wait", {"unit": unit, "outstanding": outstanding})]
        name = DESCRIPTOR_OF[item.mnemonic]
        record = encode_descriptor(name, {**_NO_WORDS[name], "layer": layer, **item.words})
        address = self._builder.add_descriptor(record)
        return [*load_address(T0, address), encode(item.mnemonic, {"rs1": T0})]

    def _barrier(self, number: int) -> list[int]:
        return [
            *load_address(T0, number),
            encode("addi", {"rd": T1, "rs1": 0, "imm": self._cores}),
            encode("nmp.barrier", {"rs1": T0, "rs2": T1}),
        ]

    def _segment(self, index: int, programs: list[list[int]]) -> int:
        """Entry code, which sends each core to its own, then every core's."""
        for words in programs:
            words.append(encode("nmp.halt", {}))
        start = self._builder.code_address()
        jumps = start + 4 * ENTRY_WORDS
        address = jumps + 8 * self._cores
        table: list[int] = []
        for words in programs:
            table += _jump(address)
            address += 4 * len(words)
        self._builder.add_code([*_entry(jumps), *table], f"segment_{index}")
        for core, words in enumerate(programs):
            self._builder.add_code(words, f"segment_{index}.core_{core}")
        return start


def load_address(register: int, value: int) -> list[int]:
    """``lui`` and ``addi`` that put a 32-bit value into a register."""
    high, low = split_address(value)
    return [
        encode("lui", {"rd": register, "imm": high}),
        encode("addi", {"rd": register, "rs1": register, "imm": low}),
    ]


def split_address(value: int) -> tuple[int, int]:
    """Upper part for ``lui`` and signed lower part for ``addi`` of a 32-bit value."""
    low = ((value & 0xFFF) ^ 0x800) - 0x800
    return (value - low) & 0xFFFF_FFFF, low


ENTRY_WORDS = 6


def _entry(jumps: int) -> list[int]:
    """Core n goes on at ``jumps`` + 8n."""
    return [
        encode("csrrs", {"rd": T1, "csr": Csr.MHARTID, "rs1": 0}),
        encode("slli", {"rd": T1, "rs1": T1, "shamt": 3}),
        *load_address(T0, jumps),
        encode("add", {"rd": T0, "rs1": T0, "rs2": T1}),
        encode("jalr", {"rd": 0, "rs1": T0, "imm": 0}),
    ]


def _jump(address: int) -> list[int]:
    high, low = split_address(address)
    return [
        encode("lui", {"rd": T0, "imm": high}),
        encode("jalr", {"rd": 0, "rs1": T0, "imm": low}),
    ]
