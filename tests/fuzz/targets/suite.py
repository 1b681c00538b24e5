"""Suites of ``nmpsim check``."""

from __future__ import annotations

from collections.abc import Iterator

from nmpsim.checking.suite_file import read_suite

from ..mutate import make_text_mutator
from ..target import ROOT, Target, allow_errors, write_file
from .device import PIECES as TOML

PIECES = (
    *TOML, "[[case]]", "[defaults]", "[case]", "bundle", "input", "name", "expect", "budget",
    "baseline", "outputs", "layers", "only", "ulp", "sqnr_db", "top1", "cycles", "cycles_percent",
    "saturation", "memory_bytes", "hazards", '"none"', '"baseline"', "{x = 'y'}", "['a', 'b']",
)  # fmt: skip


def run(data: bytes) -> None:
    """Read a suite file."""
    with allow_errors("SUITE", "FILE001"):
        suite = read_suite(write_file(data, "suite.toml"))
        assert suite.cases
        assert len({case.name for case in suite.cases}) == len(suite.cases)


def seeds() -> Iterator[bytes]:
    """Yield the example suite and one with all settings."""
    yield (ROOT / "programs" / "ci" / "suite.toml").read_bytes()
    yield b"""[defaults]
budget = {saturation = "none", cycles = 10}
[[case]]
bundle = "a.bin"
name = "a"
input = {data = "x.npy"}
lir = "a.lir"
device = "board.toml"
expect = {outputs = "o.npz", layers = "l.npz", only = ["conv*"], ulp = 1, sqnr_db = 30.5, top1 = 7}
budget = {cycles_percent = 2.5, saturation = "baseline", memory_bytes = 10, hazards = "none"}
baseline = "a.json"
"""


TARGET = Target(run, seeds, make_text_mutator(PIECES))
