"""Core cycles by cause, counted with pencil and paper on the default device, on both engines.

``la`` takes 2 cycles; a tensor instruction 8 for its descriptor and 1. A transfer asks 4 cycles
after it begins; a burst takes 4, a row miss 20, data come 40 later. A fill takes 4 and one for 16
bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from core_machines import device, from_text, run_both

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.core.state import CycleCause, Machine
from nmpsim.report.data import LayerReport, RunReport

ROOT = Path(__file__).parents[2]
ENGINES = ("compiled", "reference")


def load(name: str, dram: str, nbytes: int) -> str:
    box = f"spm=0x20000000, run_bytes={nbytes}, count_x=1, count_y=1"
    return f"{name}: .descriptor load, dram={dram}, {box}\n"


def get_spent_cycles(m: Machine, layer: int = 0) -> dict[str, int]:
    record: Any = m.layers.spent[layer]
    return {cause.name: int(record[cause]) for cause in CycleCause if record[cause]}


def test_control_during_vector_work_costs_nothing() -> None:
    m = run_both(
        from_text("""
        work: .descriptor fill, output=0x20000000, count=320
        _start:
            la       t0, work       # 0 to 2
            nmp.fill t0             # descriptor until 10: 24 cycles of work, until 34; issued at 11
            div      t1, t1, t1     # 11 to 44
            nmp.halt                # 45
        """)
    )
    assert m.cores.clock.tolist() == [45]
    assert get_spent_cycles(m) == {"CONTROL": 10 + (45 - 34), "VECTOR": 24}


def test_double_buffering_overlaps_transfers() -> None:
    text = load("first", "0xA0000000", 256) + load("second", "0xA0000100", 256)
    m = run_both(
        from_text(
            text
            + """
        work: .descriptor fill, output=0x20000000, count=1600
        _start:
            la       t0, first
            la       t1, second
            la       t2, work       # 6
            nmp.load t0             # descriptor until 14, issued at 15
            nmp.wait load, 0        # asks at 18: 20 + 4 * 4 = 36, until 54; data at 94; 95
            nmp.load t1             # descriptor until 103, issued at 104; asks at 107
            nmp.fill t2             # descriptor until 112, works until 216; issued at 113
            nmp.wait load, 0        # served until 107 + 16 = 123, data at 163; 164
            nmp.wait vector, 0      # until 216; 217
            nmp.halt                # 218
        """
        )
    )
    # All of the second load lies in the shadow of the vector unit, or of control before it.
    assert m.cores.clock.tolist() == [218]
    assert get_spent_cycles(m) == {
        "CONTROL": 15 + (112 - 94) + (218 - 216),
        "LOAD": 94 - 15,
        "VECTOR": 216 - 112,
    }


def test_the_mac_array_takes_precedence_over_the_vector_unit() -> None:
    m = run_both(
        from_text("""
        product: .descriptor gemm, lhs=0x20000000, rhs=0x20000100, output=0x20001000, \\
            rows=8, inner=16, columns=16, lhs_stride=16, rhs_stride=16, out_stride=16
        work: .descriptor fill, output=0x20000000, count=800
        _start:
            la       t0, product
            la       t1, work       # 4
            nmp.fill t1             # until 12: works until 12 + 4 + 50 = 66; issued at 13
            nmp.gemm t0             # until 21: works until 21 + 8 + 8 * 2 * 2 = 61; issued at 22
            nmp.wait mac, 0         # 62
            nmp.wait vector, 0      # 67
            nmp.halt                # 68
        """)
    )
    assert m.cores.clock.tolist() == [68]
    assert get_spent_cycles(m) == {"CONTROL": 12 + 2, "VECTOR": (21 - 12) + (66 - 61), "MAC": 40}


def test_earlier_queued_requests_count_as_contention() -> None:
    """Core 1's first load stands in line; it waits only for its second one."""
    text = load("first", "0xA0000000", 1024) + load("second", "0xA0000400", 64)
    m = run_both(
        from_text(
            text
            + """
        _start:
            csrr     a0, mhartid    # 1
            slli     a0, a0, 6      # 2
            la       t0, first      # 4
            add      t0, t0, a0     # 5
            nmp.load t0             # descriptor until 13, issued at 14: both ask at 17
            nmp.load t0             # descriptor until 22, issued at 23
            nmp.wait load, 0
            nmp.halt
        """,
            config=device(2),
        )
    )
    # Core 0: 17 + 20 + 64 = 101; its second load asks at 105.
    # Core 1: in line from 17 to 101, until 105; its second one asks at 109.
    # Core 0 again: in line for no cycle, 105 to 169, data at 209. Core 1: 169 to 173, data at 213.
    assert m.cores.clock.tolist() == [211, 215]
    assert get_spent_cycles(m) == {
        "CONTROL": 2 * (23 + 2),
        "LOAD": (209 - 23) + (213 - 23) - (101 - 17) - (169 - 109),
        "CONTENTION": (101 - 17) + (169 - 109),
    }


def test_a_core_without_work_is_unused() -> None:
    """Core 0 fills, core 1 has nothing to do until the barrier; then nobody has."""
    m = run_both(
        from_text(
            """
        work: .descriptor fill, output=0x20000000, count=320
        _start:
            csrr     a0, mhartid    # 1
            li       t1, 2          # 2
            bnez     a0, meet       # core 0: 3
            la       t0, work       # 5
            nmp.fill t0             # descriptor until 13: works until 37; issued at 14
            nmp.wait vector, 0      # until 37; 38
        meet:                       # core 1: 5
            li       t0, 0          # 39; core 1: 6
            nmp.barrier t0, t1      # 40; core 1: 7; both go on at 56
            li       t0, 1          # 57
            nmp.barrier t0, t1      # 58; both go on at 74
            nmp.halt                # 75
        """,
            config=device(2),
            layer_channels=(1, 1),
            barrier_layers=(0, 1),
        )
    )
    assert m.cores.clock.tolist() == [75, 75]
    # Of core 1, all that comes before 56: 7 cycles of control, 33 at the barrier, 16 of its own.
    assert get_spent_cycles(m) == {"CONTROL": 13 + 3, "VECTOR": 24, "BARRIER": 16, "UNUSED": 56}
    # A layer without any work of tensor instructions calls no core unused.
    assert get_spent_cycles(m, 1) == {"CONTROL": 2 * (2 + 1), "BARRIER": 2 * 16}
    assert m.layers.worked.tolist() == [0b01, 0, 0]


def test_a_semaphore_and_an_early_halt_are_attributed() -> None:
    m = run_both(
        from_text(
            """
            csrr  a0, mhartid
            li    t0, 3
            li    t1, 1             # 3
            bnez  a0, take          # core 0: 4
            div   a1, a0, a0        # 37
            nmp.post t0, t1         # 38: releases core 1 at 46
            nmp.halt                # 39
        take:                       # core 1: 6
            nmp.pend t0, t1         # 7, then waits until 46
            nmp.halt                # 47
            """,
            config=device(2),
        )
    )
    assert m.cores.clock.tolist() == [39, 47]
    assert get_spent_cycles(m, 1) == {"CONTROL": 39 + 8, "SEMAPHORE": 46 - 7}, "no layer was named"


def run_program(name: str, engine: str, cores: int = 2) -> RunReport:
    config = attrs.evolve(nmpsim.default_device(), cores_count=cores)
    path = ROOT / "programs" / "assembly" / f"{name}.s"
    assembled = assemble(path.read_text(encoding="utf-8"), str(path), config.settings())
    bundle = parse_bundle(assembled.build_bundle(), str(path))
    inputs = {
        t.name: np.zeros(t.shape, np.int16 if t.elem == "i16" else np.int8)
        for t in bundle.metadata.inputs
    }
    return nmpsim.Device(config, engine).run(bundle, inputs)


def get_core_cycles(layer: LayerReport) -> dict[str, int]:
    return {name: cycles for name, cycles in layer.core_cycles.items() if cycles}


@pytest.mark.parametrize("engine", ENGINES)
def test_contention_is_attributed(engine: str) -> None:
    """The numbers of the program's comment and of the timing page."""
    report = run_program("contention", engine)
    layer = report.layers[0]
    assert layer.cycles == 114
    assert get_core_cycles(layer) == {
        "control": 38,
        "load": 122,
        "contention": 28,
        "imbalance": 8,
        "barrier": 32,
    }
    page = " ".join((ROOT / "docs" / "timing.md").read_text(encoding="utf-8").split())
    said = (
        "38 on `control`, 122 on `load`, 28 on `contention`, 8 on `imbalance` and 32 on `barrier`"
    )
    assert f"The layer takes {layer.cycles} cycles" in page
    assert said in page
    assert (layer.bound.kind, layer.bound.cycles) == ("memory", 4 * 4)
    assert layer.bound.formula == "4 bursts x 4 cycles"
    assert layer.burst_efficiency == 1.0
    assert layer.distance == 114 / 16
    assert (layer.cores, layer.use.dram_busy, layer.use.row_misses) == (2, 36 / 114, 20 / 114)
    assert layer.use.bursts_wasted == 0
    assert "`dram_busy` is 31.6 %" in page and "`row_misses` is 17.5 %" in page


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("name", "cores"),
    [("dma_copy", 2), ("one_conv", 32), ("int16_conv", 1), ("barrier", 2), ("contention", 2)],
)
def test_every_cycle_of_an_assembly_program_has_a_cause(name: str, cores: int, engine: str) -> None:
    report = run_program(name, engine, cores)
    total = sum(sum(layer.core_cycles.values()) for layer in report.layers)
    assert total == cores * report.cycles
    for layer in report.layers:
        # Core 1 of "barrier" halts early: it is idle for the first layer, whose barrier it passed.
        assert name == "barrier" or sum(layer.core_cycles.values()) == cores * layer.cycles
    assert all(layer.cycles >= layer.bound.cycles for layer in report.layers)
