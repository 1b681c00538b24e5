"""Baselines of ``nmpsim check``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from nmpsim.checking.baseline import (
    ComparedRun,
    check_same_program,
    make_baseline,
    read_baseline,
    write_baseline,
)
from nmpsim.checking.expectations import (
    check_layers_against_baseline,
    check_outputs_against_baseline,
)
from nmpsim.checking.run import CheckedRun, LoadedProgram
from nmpsim.checking.suite import Expectations
from nmpsim.config import make_device_config
from nmpsim.core.device import Device
from nmpsim.diagnostics import Place

from .. import programs
from ..mutate import mutate_json_bytes
from ..target import Target, allow_errors, get_folder, write_file


@cache
def run_baseline() -> CheckedRun:
    """Return the run that baselines are compared with."""
    program, inputs = programs.one_conv()
    device = Device(make_device_config(program.metadata.device), threads=1)
    return LoadedProgram(program, device).run(inputs)


def run(data: bytes) -> None:
    """Read a baseline and compare it with the run."""
    with allow_errors("BASE", "SUITE"):
        baseline = read_baseline(write_file(data, "baseline.json"))
        check_same_program(baseline, run_baseline(), Place("baseline.json"))
        compared = ComparedRun(run_baseline(), baseline)
        for expect in (Expectations(), Expectations(ulp=1), Expectations(sqnr_db=20.0)):
            check_outputs_against_baseline(compared, expect)
            check_layers_against_baseline(compared, expect)


def seeds() -> Iterator[bytes]:
    """Yield the baseline of the run."""
    path: Path = get_folder() / "seed.json"
    write_baseline(path, make_baseline(run_baseline()))
    yield path.read_bytes()


TARGET = Target(run, seeds, mutate_json_bytes)
