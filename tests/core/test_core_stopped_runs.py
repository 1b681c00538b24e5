"""Test interrupted runs and inputs that are not numbers."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.diagnostics import UserError
from nmpsim.report.data import RunReport

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
TWO_CORES = attrs.evolve(nmpsim.default_device(), cores_count=2)


def run_assembly(text: str) -> RunReport:
    bundle = parse_bundle(assemble(text, "test.s", TWO_CORES.settings()).build_bundle())
    return nmpsim.Device(TWO_CORES).run(bundle, {})


@pytest.fixture(scope="module")
def digits() -> Bundle:
    files = DIGITS / "digits.lir.txt", DIGITS / "digits.npz"
    return parse_bundle(nmpsim.compile(*files, tiling="layer").image)


def test_a_deadlock_names_waiting_cores_and_causes() -> None:
    report = run_assembly(
        "_start:\n csrr t0, mhartid\n bnez t0, other\n"
        " li t0, 5\n li t1, 3\n nmp.barrier t0, t1\n"
        "other: li t0, 7\n li t1, 2\n nmp.pend t0, t1\n nmp.halt\n"
    )
    assert report.trap is not None
    assert report.trap.kind == "deadlock"
    assert "core 0 waits at barrier 5 for 3 cores" in report.trap.message
    assert "core 1 waits until semaphore 7 is at least 2" in report.trap.message
    assert report.trap.core == 0
    assert report.trap.instruction is not None
    assert "nmp.barrier" in report.trap.instruction


def test_an_operand_fault_names_the_word() -> None:
    report = run_assembly(
        "bad: .descriptor fill, output=0x20000000, count=0\n"
        "_start: la t0, bad\n nmp.fill t0\n nmp.halt\n"
    )
    assert report.trap is not None
    assert "operand fault" in report.trap.message
    assert report.trap.message.endswith("count is 0")
    assert report.trap.instruction is not None
    assert "nmp.fill" in report.trap.instruction


def test_an_operand_fault_shows_a_whole_scale() -> None:
    report = run_assembly(
        "bad: .descriptor rescale, input=0x20000000, output=0x20000040, count=4, out_post=99\n"
        "_start: la t0, bad\n nmp.rescale t0\n nmp.halt\n"
    )
    assert report.trap is not None
    assert report.trap.message.endswith("out_pre is 0, out_mul is 0, out_post is 99")


def test_cycles_of_a_stopped_run_belong_to_its_last_layer(digits: Bundle) -> None:
    limited = attrs.evolve(nmpsim.default_device(), limits_cycles=100)
    image = np.load(DIGITS / "images" / "7.npy")

    report = nmpsim.Device(limited).run(digits, {"data": image})

    assert report.trap is not None
    assert report.trap.kind == "cycle_limit"
    assert report.trap.layer == "conv1__2"
    assert {layer.name for layer in report.layers if layer.device_cycles} == {"conv1__2"}
    assert sum(layer.cycles for layer in report.layers) == report.cycles
    begun = next(layer for layer in report.layers if layer.name == "fc__1")
    assert begun.macs == 0


def test_a_nan_input_is_refused(digits: Bundle) -> None:
    image = np.load(DIGITS / "images" / "7.npy")
    image[0, 0, 2, 5] = np.nan

    with pytest.raises(UserError) as error:
        nmpsim.Device().run(digits, {"data": image})

    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "INPUT002"
    assert diagnostic.found is not None
    assert "1 NaN, the first at [0, 0, 2, 5]" in diagnostic.found


def test_infinite_inputs_saturate(digits: Bundle) -> None:
    image = np.load(DIGITS / "images" / "7.npy")
    image[0, 0, 2, 5] = np.inf

    report = nmpsim.Device().run(digits, {"data": image})

    (cut,) = report.layers[0].saturation
    assert (cut.stage, cut.side, cut.count, cut.first) == ("input", "high", 1, (0, 0, 2, 5))
