"""--max-cycles and --timeout, on every command that runs programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import pytest
from click.testing import Result

from nmpsim.bundle.assembly import assemble
from nmpsim.config import default_device

Cli = Callable[..., Result]
CLASSIFIER = """
    .input data, i8[S:0.5 O:0]<1 x 4>
    .output prob, float<1 x 6>
    _start: j _start
"""
DIGITS = Path(__file__).parents[2] / "programs" / "digits"


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    """A program without end, whose own device allows it 2^62 cycles."""
    path = tmp_path / "loop.bin"
    allowed = attrs.evolve(default_device(), limits_cycles=1 << 62)
    path.write_bytes(assemble(CLASSIFIER, "loop.s", allowed.settings()).bundle())
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.int8))
    return path


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize(
    ("limit", "code", "kind", "error"),
    [
        (("--max-cycles", 5000), 1, "cycle_limit", "LIMIT001"),
        (("--timeout", 0.1), 124, "timeout", "LIMIT002"),
    ],
)
def test_run(
    nmpsim_cli: Cli,
    loop: Path,
    engine: str,
    limit: tuple[str, int],
    code: int,
    kind: str,
    error: str,
) -> None:
    given = ("run", loop, "--input", loop.parent / "x.npy", "--engine", engine, *limit)
    done = nmpsim_cli(*given, "--format", "json")
    assert done.exit_code == code
    assert json.loads(done.stdout)["trap"]["kind"] == kind
    assert f"{loop}: error[{error}]: the run " in done.stderr


@pytest.mark.parametrize(
    ("limit", "code"), [(("--max-cycles", 5000), 1), (("--timeout", 0.2), 124)]
)
def test_debug(nmpsim_cli: Cli, loop: Path, limit: tuple[str, int], code: int) -> None:
    done = nmpsim_cli("debug", loop, "--input", loop.parent / "x.npy", "-c", "continue", *limit)
    assert done.exit_code == code, done.output
    assert ("LIMIT002" in done.stderr) == (code == 124)


def test_a_suite_says_limits_and_the_command_line_wins(nmpsim_cli: Cli, loop: Path) -> None:
    suite = loop.parent / "suite.toml"
    suite.write_text(
        '[[case]]\nbundle = "loop.bin"\ninput = "x.npy"\nbudget.cycles = 1\nmax_cycles = 5000\n'
    )
    done = nmpsim_cli("check", suite)
    assert done.exit_code == 1
    assert "cycle_limit: the run went beyond 5000 cycles" in done.stdout
    done = nmpsim_cli("check", suite, "--max-cycles", 300)
    assert "beyond 300 cycles" in done.stdout
    suite.write_text(suite.read_text().replace("max_cycles = 5000", "timeout = 0.1"))
    done = nmpsim_cli("check", suite, "--core-on-failure", loop.parent / "cores")
    assert done.exit_code == 1
    assert "timeout: the run took longer than 0.1 s" in done.stdout


@pytest.mark.parametrize(
    "key", ["max_cycles = 0", "max_cycles = 1.5", "timeout = 0", "timeout = nan"]
)
def test_a_suite_with_what_is_no_limit(nmpsim_cli: Cli, loop: Path, key: str) -> None:
    suite = loop.parent / "suite.toml"
    suite.write_text(f'[[case]]\nbundle = "loop.bin"\ninput = "x.npy"\nbudget.cycles = 1\n{key}\n')
    done = nmpsim_cli("check", suite)
    assert done.exit_code == 2
    assert "SUITE001" in done.stderr + done.stdout


def test_eval(nmpsim_cli: Cli, loop: Path) -> None:
    data, out = loop.parent / "set.npz", loop.parent / "out.json"
    np.savez(data, data=np.zeros((2, 1, 4), np.int8), labels=np.zeros(2, int))
    words = ("eval", loop, "--dataset", data, "--labels", "labels", "--jobs", 1, "-o", out)
    done = nmpsim_cli(*words, "--max-cycles", 5000)
    assert done.exit_code == 1, done.output
    errors = json.loads(out.read_text())["answers"]["error"]
    assert errors == ["cycle_limit: the run went beyond 5000 cycles"] * 2
    done = nmpsim_cli(*words, "--max-cycles", 300)
    errors = json.loads(out.read_text())["answers"]["error"]
    assert errors == ["cycle_limit: the run went beyond 300 cycles"] * 2, "they are run again"


def test_sweep(nmpsim_cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "r.csv"
    words = (
        "sweep", DIGITS / "digits.lir.txt", "--weights", DIGITS / "digits.npz", "--input",
        DIGITS / "images" / "7.npy", "--set", "cores.count=1", "--jobs", 1, "-o", out,
    )  # fmt: skip
    for limit, expected in (
        (("--timeout", 1e-9), ["timeout"]),
        (("--max-cycles", 100), ["timeout", "cycle_limit"]),
        ((), [None, "cycle_limit"]),
    ):
        done = nmpsim_cli(*words, *limit)
        assert done.exit_code == (1 if limit else 0), done.output
        with out.open() as file:
            errors = [row["error"] or None for row in csv.DictReader(file)]
        assert sorted(map(str, errors)) == sorted(map(str, expected))


@pytest.mark.parametrize("limit", ["--max-cycles=0", "--timeout=0", "--timeout=inf", "--timeout=x"])
@pytest.mark.parametrize("command", ["run", "check", "debug", "eval", "sweep"])
def test_what_is_no_limit(nmpsim_cli: Cli, command: str, limit: str) -> None:
    done = nmpsim_cli(command, limit, "net.bin")
    assert done.exit_code == 2
    assert "ARG001" in done.stderr
