"""Random programs of several cores that meet, wait and share the DRAM: same on both engines."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from core_machines import (
    ENGINES,
    HALT,
    IMAGE_BASE,
    RAM_BASE,
    SPM,
    Program,
    assert_same,
    descriptor_bytes,
    device,
    engine,
    load_address,
    run_both,
    words,
)
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiers import examples

from nmpsim.core.state import CountColumn, Machine, Outcome
from nmpsim.core.work import add_work_log, drain_work_log
from nmpsim.isa.table import Unit
from nmpsim.timing import get_costs

Instruction = tuple[str, Mapping[str, int]]

CORES = 3
DESCRIPTOR, A, B, SHARED = 5, 6, 7, 8
SLOT = 256
"""Bytes between descriptors."""


def box(dram: int, run: int, rows: int, layer: int) -> dict[str, int | str]:
    return {
        "layer": layer,
        "dram": RAM_BASE + dram,
        "spm": SPM + 4 * run,
        "run_bytes": run,
        "count_x": 1,
        "count_y": rows,
        "dram_stride_y": 700,
        "spm_stride_y": run,
        "spm_stride_x": run,
    }


JOBS: list[tuple[str, bytes]] = [
    ("nmp.load", descriptor_bytes("load", box(0, 300, 1, 0))),
    ("nmp.load", descriptor_bytes("load", box(4000, 60, 5, 1))),
    ("nmp.load", descriptor_bytes("load", {**box(0, 8, 0, 1), "fill": 3, "pad_y_after": 3})),
    ("nmp.store", descriptor_bytes("store", box(100, 200, 2, 0))),
    ("nmp.store", descriptor_bytes("store", box(8000, 4100, 1, 2))),
    ("nmp.fill", descriptor_bytes("fill", {"output": SPM + 50, "count": 900, "value": 7})),
    ("nmp.lut", descriptor_bytes("lut", {
        "layer": 1, "input": SPM, "output": SPM, "table": SPM + 1000, "count": 333,
    })),
    ("nmp.gemm", descriptor_bytes("gemm", {
        "lhs": SPM, "rhs": SPM + 512, "output": SPM + 2048, "partial": SPM + 4096,
        "rows": 7, "inner": 30, "columns": 20,
        "lhs_stride": 30, "rhs_stride": 20, "out_stride": 20, "clip_high": 127,
    })),
]  # fmt: skip
TABLE = b"".join(record.ljust(SLOT, b"\0") for _, record in JOBS)
assert max(len(record) for _, record in JOBS) <= SLOT


@st.composite
def actions(draw: st.DrawFn) -> list[Instruction]:
    kind = draw(
        st.sampled_from(["job", "job", "job", "wait", "write", "read", "slow", "post", "pend"])
    )
    if kind == "job":
        number = draw(st.integers(0, len(JOBS) - 1))
        return [
            *load_address(DESCRIPTOR, IMAGE_BASE + SLOT * number),
            (JOBS[number][0], {"rs1": 5}),
        ]
    if kind == "wait":
        return [
            (
                "nmp.wait",
                {"unit": draw(st.sampled_from(Unit)), "outstanding": draw(st.integers(0, 3))},
            )
        ]
    if kind in ("write", "read"):
        base = draw(st.sampled_from([RAM_BASE, RAM_BASE + 0x1000, 0x1000_0000, SPM]))
        place = {"rs1": SHARED, "imm": 4 * draw(st.integers(0, 2))}
        access = ("sw", place | {"rs2": A}) if kind == "write" else ("lw", place | {"rd": A})
        return [*load_address(SHARED, base), access]
    if kind == "slow":
        return [("div", {"rd": B, "rs1": A, "rs2": A}), ("addi", {"rd": A, "rs1": A, "imm": 1})]
    return [
        ("addi", {"rd": A, "rs1": 0, "imm": draw(st.integers(0, 1))}),
        ("addi", {"rd": B, "rs1": 0, "imm": draw(st.integers(0, 2))}),
        (f"nmp.{kind}", {"rs1": A, "rs2": B}),
    ]


def barrier(number: int) -> list[Instruction]:
    return [
        ("addi", {"rd": A, "rs1": 0, "imm": number}),
        ("addi", {"rd": B, "rs1": 0, "imm": CORES}),
        ("nmp.barrier", {"rs1": A, "rs2": B}),
    ]


@st.composite
def programs(draw: st.DrawFn, *, waits_for_all: bool = False) -> Program:
    """Draw a program in which cores run their own code between common barriers.

    With ``waits_for_all`` each core waits for all of its units before each barrier.
    """
    awaited = Unit if waits_for_all else ()
    rounds = draw(st.integers(1, 3))
    texts = []
    for _ in range(CORES):
        code: list[Instruction] = []
        for number in range(rounds):
            for action in draw(st.lists(actions(), max_size=6)):
                code += action
            code += [("nmp.wait", {"unit": unit, "outstanding": 0}) for unit in awaited]
            code += barrier(number)
        texts.append(words(*code, HALT))
    entry = IMAGE_BASE + len(TABLE)
    # csrr a0, mhartid; go to the core's own code
    start: list[Instruction] = [("csrrs", {"rd": 10, "csr": 0xF14, "rs1": 0})]
    head = 4 * (1 + 3 * CORES)
    targets = [head + sum(map(len, texts[:core])) for core in range(CORES)]
    for core, target in enumerate(targets):
        here = 4 * (len(start) + 2)
        start += [
            ("addi", {"rd": 11, "rs1": 0, "imm": core}),
            ("bne", {"rs1": 10, "rs2": 11, "offset": 8}),
            ("jal", {"rd": 0, "offset": target - here}),
        ]
    depth, row = draw(st.integers(1, 5)), draw(st.sampled_from([512, 2048]))
    return Program(
        image=TABLE + words(*start) + b"".join(texts),
        entry=entry,
        config=device(CORES, queues_depth=depth, dram_row_bytes=row),
        layer_channels=(4, 5),
        barrier_layers=(0, 1),
    )


@given(programs())
@examples(200)
def test_random_cores_give_the_same_machine(program: Program) -> None:
    run_both(program, expect=None)


@given(programs(), st.integers(1, 9), st.booleans())
@examples(60)
def test_pausing_changes_nothing(program: Program, turns: int, stop_at_layers: bool) -> None:
    costs = get_costs(program.config)
    machines = [program.machine() for _ in ENGINES]
    outcomes = {Outcome.PAUSED}
    while outcomes <= {Outcome.PAUSED, Outcome.LAYER_END}:
        outcomes = {
            engine(name).run(m, costs, turns, stop_at_layers)
            for name, m in zip(ENGINES, machines, strict=True)
        }
        assert len(outcomes) == 1
        assert_same(*machines)
    assert_same(machines[0], run_both(program, expect=None))


def run_with_work_log(name: str, program: Program, room: int) -> tuple[Machine, NDArray[np.void]]:
    """Run a program; return the final machine and the drained work log."""
    m, notes, outcome = add_work_log(program.machine(), room), [], Outcome.PAUSED
    while outcome == Outcome.PAUSED:
        outcome = engine(name).run(m, get_costs(program.config), 1 << 30, False)
        notes.append(drain_work_log(m))
    return m._replace(work=m.work[:0]), np.concatenate(notes)


@given(programs(), st.integers(0, 60))
@examples(60)
def test_work_listeners_change_nothing(program: Program, room: int) -> None:
    plain = run_both(program, expect=None)
    machine, notes = run_with_work_log("reference", program, room)
    compiled_machine, compiled_notes = run_with_work_log("compiled", program, room)

    assert_same(plain, machine)
    assert_same(plain, compiled_machine)
    np.testing.assert_array_equal(notes, compiled_notes)


@given(programs())
@examples(60)
def test_work_records_equal_the_counters_of_layers(program: Program) -> None:
    machine, notes = run_with_work_log("compiled", program, 1 << 10)
    for layer, record in enumerate(machine.layers):
        mine = notes[notes["layer"] == layer]
        grants = mine[mine["is_grant"] == 1]
        for unit in (Unit.MAC, Unit.VECTOR):
            work = mine[mine["unit"] == unit]
            busy = record.counts[CountColumn.BUSY_LOAD + unit]
            assert (work["end"] - work["begin"]).sum() == busy
        assert grants["bytes"].sum() == record.counts[CountColumn.BURSTS] * 64
        for unit in (Unit.LOAD, Unit.STORE):
            served = grants[grants["unit"] == unit]
            busy = record.counts[CountColumn.BUSY_LOAD + unit]
            assert (served["end"] - served["begin"]).sum() == busy


@given(programs())
@examples(60)
def test_a_unit_executes_one_instruction_at_a_time(program: Program) -> None:
    _, notes = run_with_work_log("compiled", program, 1 << 10)
    assert_in_turn(notes[notes["is_grant"] == 1])
    for core in range(CORES):
        for unit in Unit:
            mine = (notes["core"] == core) & (notes["unit"] == unit) & (notes["is_grant"] == 0)
            assert_in_turn(notes[mine])


def assert_in_turn(notes: NDArray[np.void]) -> None:
    assert (notes["begin"] <= notes["end"]).all()
    assert (notes["end"][:-1] <= notes["begin"][1:]).all()
    assert (notes["end"] <= notes["done"]).all()
