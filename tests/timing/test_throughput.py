"""Test cycles per inference of repeated runs, computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.config import default_device
from nmpsim.diagnostics import UserError
from nmpsim.report.device_use import Throughput, find_batch_size
from nmpsim.report.json import to_json
from nmpsim.report.read import decode_report
from nmpsim.views.run_text import list_run_totals

ROOT = Path(__file__).parents[2]
CONTENTION = ROOT / "programs" / "assembly" / "contention.s"
ENGINES = ("compiled", "reference")


def runs(
    text: str, repeat: int, engine: str = "reference", strict: bool = True, **settings: Any
) -> nmpsim.RunReport:
    """Run a program ``repeat`` times on two cores with inputs of zeros."""
    device = attrs.evolve(default_device(), cores_count=2, **settings)
    bundle = parse_bundle(assemble(text, "<text>", device.settings()).build_bundle())
    zeros = [np.zeros(tensor.shape, np.int8) for tensor in bundle.metadata.inputs]
    return nmpsim.Device(device, engine).run(bundle, zeros, repeat=repeat, strict=strict)


def cycles(report: nmpsim.RunReport) -> tuple[int, ...]:
    assert report.trap is None and report.throughput is not None
    return report.throughput.run_cycles


LOAD = """
    .input block, i8[S:1.0 O:0]<64>
    first: .descriptor load, dram=block, spm=0x20000000, run_bytes=64, count_x=1, count_y=1
    _start:
        csrr     a0, mhartid    # 1
        bnez     a0, done       # 2
        la       t0, first      # 4
        nmp.load t0             # descriptor until 12, asks at 16; a miss: until 40, data at 80
        nmp.wait load, 0        # 81
    done:
        nmp.halt                # 82
    """


@pytest.mark.parametrize("engine", ENGINES)
def test_a_later_run_finds_the_row_open(engine: str) -> None:
    assert cycles(runs(LOAD, 3, engine)) == (82, 62, 62)
    # All of contention.s is in one row, whose miss core 1 waits for, too.
    report = runs(CONTENTION.read_text(), 3, engine)
    first, second, third = cycles(report)
    assert first == report.cycles == sum(layer.cycles for layer in report.layers)
    assert second == third == first - 20


@pytest.mark.parametrize("engine", ENGINES)
def test_refresh_times_carry_over_between_runs(engine: str) -> None:
    # Those of cycles 100, 200, 300 close the row. The second run begins at 82 and asks at 98, just
    # before one; the third one begins at 144 and asks at 160; the fourth one begins at 226.
    refresh = {"dram_refresh_interval_cycles": 100, "dram_refresh_cycles": 30}
    assert cycles(runs(LOAD, 4, engine, **refresh)) == (82, 62, 82, 82)
    # The second run asks at 98, in the midst of the refresh from 90 to 120: 22 cycles, and a miss.
    refresh["dram_refresh_interval_cycles"] = 90
    assert cycles(runs(LOAD, 2, engine, **refresh)) == (82, 82 + 22)


def test_both_engines_report_the_same_runs() -> None:
    for settings in ({}, {"dram_refresh_interval_cycles": 137, "dram_refresh_cycles": 30}):
        both = [runs(CONTENTION.read_text(), 8, engine, **settings) for engine in ENGINES]
        assert both[0].throughput == both[1].throughput
        assert (len(set(cycles(both[0])[1:])) > 1) == bool(settings)


def test_the_report_describes_the_first_run() -> None:
    once, thrice = (runs(CONTENTION.read_text(), n) for n in (1, 3))
    assert once.throughput is None
    alike = attrs.evolve(thrice, throughput=None, host_seconds=once.host_seconds)
    assert to_json(alike) == to_json(once)
    assert decode_report(to_json(thrice)).throughput == thrice.throughput


def test_a_dependence_on_an_earlier_run_gives_a_note() -> None:
    counting = """
        .output count, i32<1>
        _start:
            csrr a0, mhartid
            bnez a0, done
            la   t0, count
            lw   t1, 0(t0)
            addi t1, t1, 1
            sw   t1, 0(t0)
        done:
            nmp.halt
        """
    report = runs(counting, 3, strict=False)
    assert report.outputs["count"].tolist() == [1]
    (note,) = report.notes
    assert note.startswith("run 2, 3 did not give the answer of the first one: the program depends")
    # It reads what nobody has written, so by default the first run stops there.
    report = runs(counting, 3)
    assert report.trap is not None and report.trap.kind == "contract"
    assert report.throughput is None
    assert runs(CONTENTION.read_text(), 2).notes == ()


def test_cores_begin_each_run_like_after_a_reset() -> None:
    counters = """
        .output found, i32<1>
        _start:
            csrr  t1, mcycle
            add   t1, t1, t3        # what a register has at first
            csrr  a0, mhartid
            bnez  a0, done
            la    t0, found
            sw    t1, 0(t0)
        done:
            li    t3, 1000
            nmp.halt
        """
    report = runs(counters, 3)
    assert (report.notes, report.outputs["found"].tolist()) == ((), [0])


def test_a_trap_names_its_run() -> None:
    flag = """
        .input  block, i8[S:1.0 O:0]<4>
        .output flag, i32<1>
        _start:
            csrr a0, mhartid
            bnez a0, done
            la   t0, flag
            lw   t1, 0(t0)
            li   t2, 1
            sw   t2, 0(t0)
            beqz t1, done
            lw   t1, 0(zero)
        done:
            nmp.halt
        """
    report = runs(flag, 3, strict=False)
    assert report.trap is not None and report.trap.message.startswith("run 2 of 3: ")
    assert report.throughput is None and report.cycles > 0


def test_repeat_must_be_positive() -> None:
    with pytest.raises(UserError) as caught:
        runs(LOAD, 0)
    assert caught.value.diagnostics[0].code == "ARG001"


def test_cycles_per_inference_exclude_the_first_run() -> None:
    one = Throughput(1, (120, 100, 101), 800)
    assert (one.cycles_per_inference, one.inferences_per_second) == (100.5, 800e6 / 100.5)
    batch = Throughput(4, (120,), 800)
    assert (batch.cycles_per_inference, batch.inferences_per_second) == (30, 800e6 / 30)
    assert Throughput(1, (0, 0), 800).inferences_per_second is None


@pytest.mark.parametrize(
    ("shapes", "batch"),
    [
        ([(4, 8, 8, 1), (4, 10)], 4),
        ([(4, 8, 8, 1), (4, 3), (4, 10)], 4),
        ([(1, 8, 8, 1), (1, 10)], 1),
        ([(4, 8, 8, 1), (1, 10)], 1),
        ([(4, 8, 8, 1), (4,)], 1),
        ([(4,), (4,)], 1),
        ([(0, 2)], 1),
        ([()], 1),
        ([], 1),
    ],
)
def test_equal_first_dimensions_form_a_batch(shapes: list[tuple[int, ...]], batch: int) -> None:
    assert find_batch_size(shapes) == batch


def test_cycles_are_divided_by_the_batch() -> None:
    of_four = LOAD.replace("<64>", "<4 x 16>")
    report = runs(of_four, 1)
    assert cycles(report) == (82,)
    totals = dict(list_run_totals(report))
    assert totals["throughput"] == (
        "39,024,390 inferences per second, 20.5 cycles each:"
        " one run from rest took 82 for a batch of 4"
    )
    totals = dict(list_run_totals(runs(of_four, 3)))
    assert totals["throughput"] == (
        "51,612,903 inferences per second, 15.5 cycles each: runs 2 to 3 took 62 for a batch of 4"
    )
    assert totals["latency"] == "82 cycles, 102 ns at 800 MHz"


def test_both_engines_agree_on_a_network(tmp_path: Path) -> None:
    folder = ROOT / "programs" / "digits"
    (tmp_path / "board.toml").write_text('[dram]\npreset = "lpddr4-3200"\n')
    device = nmpsim.load_device(tmp_path / "board.toml")
    bundle = nmpsim.compile(folder / "digits.lir.txt", folder / "digits.npz", device=device).bundle
    image = [np.load(folder / "images" / "7.npy")]
    both = [nmpsim.Device(device, engine).run(bundle, image, repeat=2) for engine in ENGINES]
    assert both[0].throughput == both[1].throughput
    first, second = cycles(both[0])
    assert first == both[0].cycles != second, "refreshes do not fall due at the same places"
