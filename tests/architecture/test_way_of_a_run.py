"""Test that the calls of ``nmpsim run`` go from upper to lower packages, with listed exceptions."""

from __future__ import annotations

import sys
import tomllib
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import numpy as np
import pytest

import nmpsim
from nmpsim.bundle.assembly import assemble
from nmpsim.cli.app import app
from nmpsim.core.reference.engine import ReferenceEngine

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "nmpsim"
ALLOWED = {
    ("core/run", "views/progress"),  # it listens
    ("report/json", "core/counters"),  # makes the report of each layer when it is read first
    ("report/data", "core/counters"),  # likewise, for sums over layers
    ("report/data", "core/savings"),  # measures them when they are read first
}


def get_heights() -> dict[str, int]:
    """Return the layer of each package or module, with the highest number on top."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return {
        name.strip(): height
        for height, names in enumerate(reversed(layers), start=1)
        for name in names.split("|")
    }


@cache
def get_file(code: CodeType) -> str | None:
    """Return a path such as ``core/run``, or None for foreign and module-level code."""
    path = Path(code.co_filename)
    is_ours = path.is_relative_to(PACKAGE) and code.co_name != "<module>"
    return path.relative_to(PACKAGE).with_suffix("").as_posix() if is_ours else None


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Return the command line of a small program and its input."""
    text = (ROOT / "programs" / "assembly" / "contention.s").read_text(encoding="utf-8")
    device = nmpsim.default_device().settings() | {"cores_count": 2}
    (tmp_path / "net.bin").write_bytes(assemble(text, "contention.s", device).build_bundle())
    np.save(tmp_path / "block.npy", np.zeros(256, np.int8))
    return [
        "run",
        "--engine",
        ReferenceEngine.name,
        str(tmp_path / "net.bin"),
        "--input",
        str(tmp_path / "block.npy"),
    ]


def run(words: list[str]) -> None:
    try:
        app(words, standalone_mode=False)
    except SystemExit as end:
        assert end.code == 0


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_run_calls_downwards(words: list[str], style: str) -> None:
    run([*words, "--format", style])  # so that the kernels are kept
    height = get_heights()
    upwards: set[tuple[str, str]] = set()
    files: dict[str, int] = {}

    def called(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or frame.f_back is None:
            return
        callee, caller = get_file(frame.f_code), get_file(frame.f_back.f_code)
        if callee and caller and callee != caller:
            files.setdefault(callee, len(files))
            if height[callee.split("/")[0]] > height[caller.split("/")[0]]:
                upwards.add((caller, callee))

    sys.setprofile(called)
    try:
        run([*words, "--format", style])
    finally:
        sys.setprofile(None)
    assert upwards <= ALLOWED
    report = "report/json" if style == "json" else "views/run_text"
    # The device makes its engine, and what engines of any kind begin with is in their base class.
    way = ["session", "core/device", "core/engine", "core/run", "core/build_report", report]
    assert sorted(way, key=files.__getitem__) == way
    assert files["core/engine"] < files["core/reference/engine"] < files[report]
