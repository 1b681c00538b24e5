"""Debugging sessions on programs of a few lines."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.shell import Shell

TWO_CORES = attrs.evolve(nmpsim.default_device(), cores_count=2)
TABLES = """
.input from, i8[S:1.0 O:0]<256>
.output to, i8[S:1.0 O:0]<256>
.layer 0, copy, copy, to
get: .descriptor load, dram=from, spm=0x20000000, run_bytes=128, count_x=1, count_y=1
far: .descriptor load, dram=to, spm=0x20000400, run_bytes=64, count_x=1, count_y=1
use: .descriptor rescale, input=0x20000020, output=0x20000200, count=64, \\
 in_low=-128, in_high=127, out_mul=1, clip_low=-128, clip_high=127
put: .descriptor store, dram=to, spm=0x20000200, run_bytes=64, count_x=1, count_y=1
"""
GET, USE, PUT, FAR = (f" la t0, {name}\n nmp.{kind} t0\n" for name, kind in (
    ("get", "load"), ("use", "rescale"), ("put", "store"), ("far", "load")))  # fmt: skip
WAIT_LOAD, WAIT_VECTOR, WAIT_STORE = (f" nmp.wait {u}, 0\n" for u in ("load", "vector", "store"))
HALT = " nmp.halt\n"
END = WAIT_STORE + HALT
"""End of a program whose host reads the stored result."""
ONLY_0 = " csrr t2, mhartid\n bnez t2, other\n"
BARRIER = " li t3, 9\n li t4, 2\n nmp.barrier t3, t4\n"


def make_debugger(text: str, tables: str = "", cores: int = 2) -> Debugger:
    """Return a debugger of an assembly program on ``cores`` cores, with zeros as input."""
    device = attrs.evolve(TWO_CORES, cores_count=cores)
    source = TABLES + tables + "_start:\n" + text
    bundle = parse_bundle(assemble(source, "test.s", device.settings()).build_bundle())
    return Debugger(bundle, {"from": np.zeros(256, np.int8)})


def make_shell(text: str, tables: str = "", cores: int = 2) -> Shell:
    """Return a shell on an assembly program; it cannot open files."""
    return Shell(
        make_debugger(text, tables, cores), lambda path: pytest.fail(f"nobody reads {path}")
    )
