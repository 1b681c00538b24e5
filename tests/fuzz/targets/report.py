"""Fuzz target: JSON reports of runs, and texts and comparisons of them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
from rich.console import Console

from nmpsim.analysis.diff.reports import compare_reports
from nmpsim.report.data import RunReport
from nmpsim.report.json import to_json
from nmpsim.report.read import read_report
from nmpsim.views.run_text import print_run

from .. import programs
from ..mutate import mutate_json_bytes
from ..target import ROOT, Target, allow_errors, get_folder, write_file


def read(data: bytes) -> RunReport:
    """Read a report from the bytes of its file."""
    return read_report(write_file(data, "run.json"))


def run(data: bytes) -> None:
    """Read a report, write it, show it and compare it with itself."""
    with allow_errors("REPORT", "FILE001", "DIFF"):
        report = read(data)
        json.dumps(to_json(report))
        print_run(report, Console(file=io.StringIO(), width=120))
        compare_reports(report, report)


def seeds() -> Iterator[bytes]:
    """Yield reports of the digits and of an assembly program with all optional parts."""
    arrays, bundle = get_folder() / "x.npy", get_folder() / "seed.bin"
    np.save(arrays, np.load(programs.DIGITS / "images" / "7.npy"))
    bundle.write_bytes(programs.compile_digits())
    yield _report(str(bundle), "--input", str(arrays), "--histogram", "all")
    bundle.write_bytes(programs.assemble_example())
    ((_, values),) = programs.one_conv()[1].items()
    np.save(arrays, values)
    yield _report(str(bundle), "--input", str(arrays), "--timeline", "--sensitivity")


def _report(*words: str) -> bytes:
    command = [sys.executable, "-m", "nmpsim", "run", *words, "--format", "json"]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout


TARGET = Target(run, seeds, mutate_json_bytes, most_bytes=1 << 17)
