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
from corpus import compile_image

from nmpsim.bundle.assembly import assemble
from nmpsim.config import default_device
from nmpsim.core.limits import TimeBudget

Cli = Callable[..., Result]
CLASSIFIER = """
    .input data, i8[S:0.5 O:0]<1 x 4>
    .output prob, float<1 x 6>
    _start: j _start
"""
DIGITS = Path(__file__).parents[2] / "programs" / "digits"


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    """Return an endless program whose device allows 2^62 cycles."""
    path = tmp_path / "loop.bin"
    allowed = attrs.evolve(default_device(), limits_cycles=1 << 62)
    path.write_bytes(assemble(CLASSIFIER, "loop.s", allowed.settings()).build_bundle())
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.int8))
    return path


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("limits") / "digits.bin"
    path.write_bytes(compile_image(DIGITS / "digits.lir.txt"))
    return path


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize(
    ("limit", "code", "kind", "error"),
    [
        (("--max-cycles", 5000), 1, "cycle_limit", "LIMIT001"),
        (("--timeout", 0.1), 124, "timeout", "LIMIT002"),
    ],
)
def test_limits_stop_a_run(
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
def test_limits_stop_a_debugger_script(
    nmpsim_cli: Cli, loop: Path, limit: tuple[str, int], code: int
) -> None:
    done = nmpsim_cli("debug", loop, "--input", loop.parent / "x.npy", "-c", "continue", *limit)
    assert done.exit_code == code, done.output
    assert ("LIMIT002" in done.stderr) == (code == 124)


def test_options_take_precedence_over_limits_of_a_suite(nmpsim_cli: Cli, loop: Path) -> None:
    suite = loop.parent / "suite.toml"
    suite.write_text(
        '[[case]]\nbundle = "loop.bin"\ninput = "x.npy"\nbudget.cycles = 1\nmax_cycles = 5000\n'
    )
    done = nmpsim_cli("check", suite)
    assert done.exit_code == 1
    assert "cycle_limit: the run took more than 5000 cycles" in done.stdout
    done = nmpsim_cli("check", suite, "--max-cycles", 300)
    assert "more than 300 cycles" in done.stdout
    suite.write_text(suite.read_text().replace("max_cycles = 5000", "timeout = 0.1"))
    done = nmpsim_cli("check", suite, "--core-on-failure", loop.parent / "cores")
    assert done.exit_code == 1
    assert "timeout: the run took longer than 0.1 s" in done.stdout


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the clock: runs take no time, and later work takes hours."""
    spent = property(lambda _: 3600.0, lambda *_: None)
    monkeypatch.setattr(TimeBudget, "_spent", spent, raising=False)


@pytest.mark.parametrize("asked", ["--sensitivity", "--shadow"])
def test_work_after_a_run_counts(
    nmpsim_cli: Cli, digits: Path, slow_clock: None, asked: str
) -> None:
    given = ("run", digits, "--input", DIGITS / "images" / "7.npy", "--format", "json", asked)
    done = nmpsim_cli(*given, "--timeout", 600)
    assert done.exit_code == 124, done.output
    assert "error[LIMIT002]: the run and what was asked of it took longer than 600 s" in done.stderr
    report = json.loads(done.stdout)
    assert report["trap"] is None
    assert report["cycles"] > 0
    assert report[asked.removeprefix("--")] is None
    assert nmpsim_cli(*given).exit_code == 0


def test_the_search_for_hazards_counts(nmpsim_cli: Cli, digits: Path, slow_clock: None) -> None:
    words = ("check", digits, "--input", DIGITS / "images" / "7.npy", "--hazards", "none")
    done = nmpsim_cli(*words, "--timeout", 600, "--core-on-failure", digits.parent / "cores")
    assert done.exit_code == 1, done.output
    assert "the run and what was asked of it took longer than 600 s" in done.stdout
    assert not list(digits.parent.glob("cores/*")), "it would take as long"


def test_sensitivity_keeps_to_the_limit_of_cycles(nmpsim_cli: Cli, digits: Path) -> None:
    device = digits.with_name("without_host.toml")
    names = ("operation", "kilo_mac", "kilo_element", "kilo_function")
    device.write_text("[host]\n" + "".join(f"{name}_cycles = 0\n" for name in names))
    image = DIGITS / "images" / "7.npy"
    given = ("run", digits, "--input", image, "--device", device, "--format", "json")
    cycles = json.loads(nmpsim_cli(*given).stdout)["cycles"]
    done = nmpsim_cli(*given, "--sensitivity", "--max-cycles", cycles)
    assert done.exit_code == 0, done.output
    moved = [
        value["cycles"]
        for one in json.loads(done.stdout)["sensitivity"]["effects"]
        for value in (one["lower"], one["higher"])
        if value is not None
    ]
    assert None in moved, "a slower device goes beyond it"
    assert all(found is None or found <= cycles for found in moved)


@pytest.mark.parametrize(
    "key", ["max_cycles = 0", "max_cycles = 1.5", "timeout = 0", "timeout = nan"]
)
def test_invalid_limits_of_a_suite_are_refused(nmpsim_cli: Cli, loop: Path, key: str) -> None:
    suite = loop.parent / "suite.toml"
    suite.write_text(f'[[case]]\nbundle = "loop.bin"\ninput = "x.npy"\nbudget.cycles = 1\n{key}\n')
    done = nmpsim_cli("check", suite)
    assert done.exit_code == 2
    assert "SUITE001" in done.stderr + done.stdout


def test_limits_stop_an_evaluation(nmpsim_cli: Cli, loop: Path) -> None:
    data, out = loop.parent / "set.npz", loop.parent / "out.json"
    np.savez(data, data=np.zeros((2, 1, 4), np.int8), labels=np.zeros(2, int))
    words = ("eval", loop, "--dataset", data, "--labels", "labels", "--jobs", 1, "-o", out)
    done = nmpsim_cli(*words, "--max-cycles", 5000)
    assert done.exit_code == 1, done.output
    errors = json.loads(out.read_text())["answers"]["error"]
    assert errors == ["cycle_limit: the run took more than 5000 cycles"] * 2
    done = nmpsim_cli(*words, "--max-cycles", 300)
    errors = json.loads(out.read_text())["answers"]["error"]
    assert errors == ["cycle_limit: the run took more than 300 cycles"] * 2, "they are run again"


def test_limits_stop_a_sweep(nmpsim_cli: Cli, tmp_path: Path) -> None:
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
def test_invalid_limits_are_refused(nmpsim_cli: Cli, command: str, limit: str) -> None:
    done = nmpsim_cli(command, limit, "net.bin")
    assert done.exit_code == 2
    assert "ARG001" in done.stderr
