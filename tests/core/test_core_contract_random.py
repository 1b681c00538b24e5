"""Random programs of a few cores: the contract's proof against a hazard check in plain Python.

The two share what an instruction touches, and nothing of what orders instructions or has written
bytes. So either both find something or neither does, and what the proof finds is among what the
hazard check finds. It need not be the first there: the hazard check goes instruction by instruction
in simulated time, but while a program is recorded a core runs ahead of the others up to its next
effect that these could see. By design they differ where these programs do not go: the hazard check
takes all DRAM as written, and does not look at weights and at the counts of barriers.

An instruction may break both rules at once. Then the hazard check tells what nothing orders; the
proof compares units, then looks for bytes that nothing has written, and compares cores last.
"""

from __future__ import annotations

import functools
from random import Random

import attrs
import numpy as np
from core_hazards import Hazard, find_hazards
from hypothesis import Phase, assume, given, note
from hypothesis import strategies as st
from tiers import examples

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.checking.hazards import MAX_HAZARDS
from nmpsim.checking.hazards import find_hazards as find_reported_hazards
from nmpsim.config import DeviceConfig
from nmpsim.report.termination import ViolationReport

SPM, END_SPM = 0x2000_0000, 0x2000_0200
SLOT, SLOTS = 8, 6
"""Bytes of a slot of scratchpad or DRAM, and how many there are of each that cores own in turn."""
ALL_SLOTS = SLOTS + 6
"""Of DRAM; behind the others one for each core, one that two cores share, two to hand over."""
DEPTH = 2
"""Of the units' queues."""
UNITS = ("load", "store", "mac", "vector")
HEAD = f"""
.input from, i8[S:1.0 O:0]<{SLOT * ALL_SLOTS}>
.output to, i8[S:1.0 O:0]<8>
.layer 0, all, all, to
last_fill: .descriptor fill, output={END_SPM}, count=8, value=7
last_store: .descriptor store, dram=to, spm={END_SPM}, run_bytes=8, count_x=1, count_y=1
"""
LAST = """ la t0, last_fill
 nmp.fill t0
 nmp.wait vector, 0
 la t0, last_store
 nmp.store t0
"""
"""The first core's end: the program has an output."""
DATA = " la t5, to\n sw zero, 0(t5)\n lw t5, 0(t5)\n beqz t5, go\ngo:\n"
"""A branch on data: from here on nothing can be proved in advance."""


@functools.cache
def config(cores: int) -> DeviceConfig:
    return attrs.evolve(
        nmpsim.default_device(), cores_count=cores, scratchpad_bytes=4096, queues_depth=DEPTH
    )


@functools.cache
def device(cores: int) -> nmpsim.Device:
    return nmpsim.Device(config(cores), threads=1)


@attrs.define
class Writer:
    """Random program under construction: descriptors, and the code of each core."""

    random: Random
    cores: int
    care: float
    """Probability that a wait that may be needed is present."""
    tables: list[str] = attrs.field(factory=list)
    code: list[list[str]] = attrs.field(factory=list)
    busy: list[set[str]] = attrs.field(factory=list)
    """Units that each core has not waited for."""

    def slot(self, width: int) -> int:
        return self.random.randint(0, SLOTS - width)

    def job(self, core: int, mnemonic: str, unit: str, words: dict[str, int | str]) -> None:
        """Append an instruction for a unit after waits for the other busy units."""
        name = f"d{len(self.tables)}"
        listed = ", ".join(f"{word}={value}" for word, value in words.items())
        self.tables.append(f"{name}: .descriptor {mnemonic}, {listed}")
        self.waits(core, self.busy[core] - {unit})
        self.code[core].append(f" la t0, {name}\n nmp.{mnemonic} t0\n")
        self.busy[core].add(unit)

    def waits(self, core: int, units: set[str]) -> None:
        for unit in sorted(units):
            self.busy[core].discard(unit)
            if self.random.random() < self.care:
                self.code[core].append(f" nmp.wait {unit}, 0\n")

    def fill(self, core: int, slot: int, width: int) -> None:
        words: dict[str, int | str] = {"output": SPM + SLOT * slot, "count": SLOT * width}
        self.job(core, "fill", "vector", {**words, "value": 3})

    def transfer(self, core: int, kind: str, slot: int, half: int | None = None) -> None:
        """Append a transfer of a slot of DRAM, or of every second pair of its bytes."""
        if half is None and self.random.random() < 0.3:
            half = self.random.randint(0, 1)
        words: dict[str, int | str] = {"spm": SPM + SLOT * self.slot(1), "count_y": 1}
        if half is None:
            words |= {"dram": f"from+{SLOT * slot}", "run_bytes": SLOT, "count_x": 1}
        else:
            words |= {"dram": f"from+{SLOT * slot + 2 * half}", "run_bytes": 2, "count_x": 2}
            words |= {"dram_stride_x": 4, "spm_stride_x": self.random.choice([2, 4])}
        self.job(core, kind, kind, words)

    def pipeline(self, core: int) -> None:
        """Append fills and a store of the first one that relies on the queue depth."""
        self.waits(core, self.busy[core])
        for slot in range(self.random.randint(DEPTH, DEPTH + 2)):
            self.fill(core, slot, 1)
        words: dict[str, int | str] = {"dram": f"from+{SLOT * (SLOTS + core)}", "spm": SPM}
        self.busy[core].clear()
        self.job(core, "store", "store", words | {"run_bytes": SLOT, "count_x": 1, "count_y": 1})
        self.busy[core].add("vector")

    def share(self, core: int) -> None:
        """Append a store to a slot in which two cores store to alternate bytes."""
        self.transfer(core, "store", SLOTS + self.cores, core % 2)

    def eltwise(self, core: int) -> None:
        lhs, rhs = self.slot(1), self.slot(1)
        free = [slot for slot in range(SLOTS) if slot not in (lhs, rhs)]
        out = self.random.choice([*free, lhs, rhs])
        words: dict[str, int | str] = {"operation": "max", "rows": 1, "columns": SLOT}
        for name, slot in (("lhs", lhs), ("rhs", rhs), ("output", out)):
            words[name] = SPM + SLOT * slot
        self.job(core, "eltwise", "vector", words | {"clip_low": -128, "clip_high": 127})

    def action(self, core: int, owners: list[int]) -> None:
        """Append a random action; ``owners`` has the storing core of each slot, -1 for none."""
        kind = self.random.choice(
            [
                "load",
                "load",
                "store",
                "store",
                "fill",
                "eltwise",
                "wait",
                "spin",
                "share",
                "pipeline",
            ]
        )
        mine = [slot for slot, owner in enumerate(owners) if owner == core]
        seen = [slot for slot, owner in enumerate(owners) if owner in (core, -1)]
        if kind == "load" and seen:
            self.transfer(core, "load", self.random.choice(seen))
        elif kind == "store" and mine:
            self.transfer(core, "store", self.random.choice(mine))
        elif kind == "eltwise":
            self.eltwise(core)
        elif kind == "share" and core < 2:
            self.share(core)
        elif kind == "pipeline":
            self.pipeline(core)
        elif kind == "wait":
            unit = self.random.choice(UNITS)
            self.code[core].append(f" nmp.wait {unit}, {self.random.randint(0, 2)}\n")
        elif kind == "spin":
            self.spin(core)
        else:
            width = self.random.randint(1, 2)
            self.fill(core, self.slot(width), width)

    def spin(self, core: int) -> None:
        """Append a loop that delays the core."""
        name = f"s{core}_{len(self.code[core])}"
        turns = self.random.randint(1, 300)
        loop = f" li t5, {turns}\n{name}: addi t5, t5, -1\n bnez t5, {name}\n"
        self.code[core].append(loop)

    def meeting(self, number: int) -> None:
        """Append a barrier of all cores, or a semaphore handover between two cores."""
        kind = self.random.choice(["barrier", "semaphore"])
        if kind == "barrier" or self.cores == 1:
            for core in range(self.cores):
                self.waits(core, self.busy[core])
                text = f" li t3, {number}\n li t4, {self.cores}\n nmp.barrier t3, t4\n"
                self.code[core].append(text)
            return
        self.hand_over(*self.random.sample(range(self.cores), 2))
        if self.random.random() < 0.5:
            self.add_racing_post(self.random.randrange(self.cores))

    def add_racing_post(self, core: int) -> None:
        """Append a post that races with posts of other cores."""
        if self.random.random() < 0.7:
            self.spin(core)
        semaphore = self.random.randint(0, 2)
        self.code[core].append(f" li t3, {semaphore}\n li t4, 1\n nmp.post t3, t4\n")

    def hand_over(self, giver: int, taker: int) -> None:
        """Append stores and posts of one core, and a pend and a load of another core."""
        semaphore = f" li t3, {self.random.randint(0, 2)}\n"
        slot, posts = SLOTS + self.cores + 1, self.random.randint(1, 2)
        for _ in range(posts):
            self.transfer(giver, "store", slot + self.random.randint(0, 1))
            self.waits(giver, self.busy[giver])
            self.code[giver].append(semaphore + " li t4, 1\n nmp.post t3, t4\n")
        count = posts if self.random.random() < 0.7 else 1
        self.code[taker].append(semaphore + f" li t4, {count}\n nmp.pend t3, t4\n")
        self.spin(taker)
        self.transfer(taker, "load", slot)


def program(seed: int, kind: type[Writer] = Writer) -> tuple[int, str]:
    """Return the number of cores and assembly, with or without missing synchronization."""
    random = Random(seed)
    writer = kind(random, random.randint(1, 3), random.choice([1, 1, 1, 0.9]))
    cores = range(writer.cores)
    writer.code, writer.busy = [[] for _ in cores], [set() for _ in cores]
    for core in cores:
        for slot in range(0, SLOTS, 2):
            writer.fill(core, slot, 2)
    for number in range(random.randint(1, 4)):
        if number:
            writer.meeting(number)
        owners = [random.randint(-1, writer.cores - 1) for _ in range(SLOTS)]
        for core in cores:
            for _ in range(random.randint(0, 5)):
                writer.action(core, owners)
    if random.random() < 0.7:
        drop_a_piece(writer)
    return writer.cores, make_source(writer, random.random() < 0.3)


def drop_a_piece(writer: Writer) -> None:
    """Remove a wait, semaphore operation or fill of one core, or a barrier of all cores."""
    code = writer.random.choice(writer.code)
    kind = writer.random.choice(["nmp.wait", "nmp.wait", "nmp.barrier", "nmp.p", "nmp.fill"])
    there = [piece for piece in code if kind in piece]
    if there:
        piece = writer.random.choice(there)
        for one in writer.code if kind == "nmp.barrier" else [code]:
            one.remove(piece)


def make_source(writer: Writer, is_data: bool) -> str:
    """Return assembly in which each core branches to its own code."""
    parts = [HEAD, *(line + "\n" for line in writer.tables), "_start:\n csrr t2, mhartid\n"]
    for core in range(writer.cores):
        parts.append(f" li t3, {core}\n beq t2, t3, core{core}\n")
    for core, code in enumerate(writer.code):
        last = LAST if core == 0 else ""
        data = DATA if core == 0 and is_data else ""
        waits = "".join(f" nmp.wait {unit}, 0\n" for unit in UNITS)
        parts += [f"core{core}:\n", data, *code, waits, last, waits, " nmp.halt\n"]
    return "".join(parts)


def assemble_bundle(cores: int, text: str) -> Bundle:
    return parse_bundle(assemble(text, "test.s", config(cores).settings()).build_bundle())


ORDER, UNWRITTEN = "order", "unwritten"
KINDS = {"unit_order": ORDER, "core_order": ORDER, "scratchpad_unwritten": UNWRITTEN}


def get_kind(hazard: Hazard) -> str:
    return UNWRITTEN if hazard.earlier is None else ORDER


def is_same(found: ViolationReport, hazard: Hazard) -> bool:
    """Return whether the proof and the hazard check report the same violation."""
    if (found.core, found.pc) != (hazard.later.core, hazard.later.pc):
        return False
    if get_kind(hazard) == ORDER and found.case == "scratchpad_unwritten":
        assert hazard.earlier is not None
        return bool(hazard.earlier.core != hazard.later.core)  # units are compared first
    return KINDS[found.case] == get_kind(hazard)


def assert_agree(found: ViolationReport | None, hazards: list[Hazard]) -> None:
    """Assert that the hazard check finds the proof's violation, or nothing if there is none."""
    assert len(hazards) < MAX_HAZARDS
    if found is None:
        assert not hazards, hazards[0].description
    else:
        assert any(is_same(found, one) for one in hazards), (
            found,
            [one.description for one in hazards],
        )


@given(st.integers(0, (1 << 32) - 1))
@examples(150, phases=[Phase.explicit, Phase.generate])
def test_the_proof_and_the_hazard_check_agree(seed: int) -> None:
    """A smaller seed makes no smaller program: there is nothing to shrink."""
    cores, text = program(seed)
    note(text)
    bundle, inputs = assemble_bundle(cores, text), {"from": np.ones(SLOT * ALL_SLOTS, np.int8)}
    report = device(cores).run(bundle, inputs)
    violation = report.contract.violation
    assume(report.trap is None or violation is not None)  # a meeting that one core does not come to
    is_cached = report.contract.status == ("checked" if "go:" in text else "proved")
    assert is_cached or violation is not None
    hazards = find_hazards(bundle, inputs, config(cores))
    assert_agree(violation, hazards)
    log = find_reported_hazards(bundle, inputs, config(cores))
    reported = [one.position for one in log.found]
    expected = [one.position for one in hazards]
    assert reported[:1] == expected[:1]
    assert set(reported) <= set(expected), "an instruction may break the order with two others"
