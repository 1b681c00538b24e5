"""Accesses that nothing orders, in programs of a few lines."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import bundle_from_bytes
from nmpsim.bundle.assembly import assemble
from nmpsim.debugger import Debugger

TWO_CORES = attrs.evolve(nmpsim.default_device(), cores_count=2)
TABLES = """
.input from, i8[S:1.0 O:0]<256>
.output to, i8[S:1.0 O:0]<256>
.layer 0, copy, copy, to
get: .descriptor load, dram=from, spm=0x20000000, run_bytes=64, count_x=1, count_y=1
far: .descriptor load, dram=to, spm=0x20000400, run_bytes=64, count_x=1, count_y=1
use: .descriptor rescale, input=0x20000020, output=0x20000200, count=64, \\
 in_low=-128, in_high=127, out_mul=1, clip_low=-128, clip_high=127
put: .descriptor store, dram=to, spm=0x20000200, run_bytes=64, count_x=1, count_y=1
"""


def hazards(text: str) -> list[str]:
    source = TABLES + "_start:\n" + text
    bundle = bundle_from_bytes(assemble(source, "test.s", TWO_CORES.settings()).bundle())
    debugger = Debugger(bundle, {"from": np.zeros(256, np.int8)})
    check = debugger.check_hazards()
    assert debugger.run().reason == "end"
    return [hazard.what for hazard in check.found]


GET, USE, PUT, FAR = (f" la t0, {name}\n nmp.{kind} t0\n" for name, kind in (
    ("get", "load"), ("use", "rescale"), ("put", "store"), ("far", "load")))  # fmt: skip
WAIT_LOAD, WAIT_VECTOR, WAIT_STORE = (f" nmp.wait {u}, 0\n" for u in ("load", "vector", "store"))
HALT = " nmp.halt\n"
ONLY_0 = " csrr t2, mhartid\n bnez t2, other\n"
BARRIER = " li t3, 9\n li t4, 2\n nmp.barrier t3, t4\n"


def test_waits_in_the_right_places_are_enough() -> None:
    assert hazards(ONLY_0 + GET + WAIT_LOAD + USE + WAIT_VECTOR + PUT + "other:" + HALT) == []


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        (GET + USE + WAIT_VECTOR + PUT, "load"),
        (GET + WAIT_LOAD + USE + PUT, "vector"),
        (GET + WAIT_LOAD + USE + WAIT_VECTOR + PUT + USE, "store"),
        (GET + WAIT_LOAD + USE + GET, "vector"),
    ],
)
def test_a_missing_wait_is_found(text: str, unit: str) -> None:
    (found,) = hazards(ONLY_0 + text + "other:" + HALT)
    assert f"no nmp.wait {unit} between them" in found


def test_cores_must_meet() -> None:
    write = ONLY_0 + GET + WAIT_LOAD + USE + WAIT_VECTOR + PUT
    read = "other:\n csrr t2, mhartid\n beqz t2, done\n" + FAR + "done:" + HALT
    (found,) = hazards(write + read)
    assert "no wait and barrier" in found
    without_wait = write + BARRIER + " j done\nother:\n" + BARRIER + FAR + "done:" + HALT
    assert len(hazards(without_wait)) == 1, "a store that nobody waited for may land later"
    with_both = write + WAIT_STORE + BARRIER + " j done\nother:\n" + BARRIER + FAR + "done:" + HALT
    assert hazards(with_both) == []
