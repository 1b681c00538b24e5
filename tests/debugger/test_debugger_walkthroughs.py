"""From a wrong answer to its cause, as docs/debugging.md does it, on the programs it names."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmpsim.cli.app import app

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "programs" / "debugging"
PAGE = (ROOT / "docs" / "debugging.md").read_text()

CHANGES = {
    "retyped_bias": "the bias on the scale of the sums",
    "wrong_pad": "padding 1 above and 1 on the left, not 0 and 0",
    "wrong_shift": "the layer compiled again from its LIR",
}
"""Program -> change of its wrong layer that makes the result equal."""
CAUSES = {
    "corrupted_weight": "[21, 1, 1, 6]: 79 instead of 15",
    "wrong_shift": "(x >> 3) * 434 >> 15  (x >> 3) * 434 >> 14  WRONG",
    "retyped_bias": "conv2_bias: i32 32 scale 0.0385220908",
    "missing_wait": "no nmp.wait load between them",
    "wrong_pad": "Pads: [0, 0, 2, 2]",
}

HINTS = {
    "corrupted_weight": ("only in channel 21 of 32", "`constants FILE.npz`"),
    "wrong_shift": ("2 times the expected values", "`change conv2__2 out_post 15`"),
    "retyped_bias": (
        "each channel has a constant error",
        "times the product of the Src and weight scales, the scale of the result",
    ),
    "missing_wait": ("no nmp.wait load between them", "next: `code 0x"),
    "wrong_pad": ("moved by -1 rows and -1 columns", "`source conv2__2`"),
}
"""Hints that each walkthrough prints on the way."""


@pytest.fixture(scope="module")
def bugs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("walk throughs")
    sys.path.insert(0, str(PROGRAMS))
    try:
        from make import make
    finally:
        sys.path.remove(str(PROGRAMS))
        sys.modules.pop("make", None)
    make(folder)
    return folder


def debug(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["debug", *arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_found(name: str, bugs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bugs)
    script = PROGRAMS / f"{name}.dbg"
    commands = script.read_text().splitlines()
    assert len(commands) < 10
    assert "\n".join(commands) in PAGE, "the page has the same commands"
    reference = [] if name == "missing_wait" else ["--reference", "right.npz"]
    text = debug(f"{name}.bin", "--input", "seven.npy", *reference, "--script", str(script))
    for words in (CAUSES[name], *HINTS[name]):
        assert words in text
    if name != "missing_wait":
        assert "conv2__2 is the first layer that differs; it is wrong in isolation too" in text
    if name in CHANGES:
        assert f"with {CHANGES[name]}, all 512 elements are equal" in text


def test_the_patch_corrects_the_wrong_shift(bugs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bugs)
    script = PROGRAMS / "wrong_shift.dbg"
    inputs = ["wrong_shift.bin", "--input", "seven.npy", "--reference", "right.npz"]
    debug(*inputs, "--script", str(script))
    text = debug(*inputs, "--patch", "fix.json", "-c", "until end", "-c", "expect differing == 0")
    assert "expectation holds: differing == 0" in text


def test_the_right_program_has_nothing_to_find(bugs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bugs)
    lines = ["diverge", "integers", "constants weights.npz", "hazards"]
    inputs = ["right.bin", "--input", "seven.npy", "--reference", "right.npz", "--format", "json"]
    told = json.loads(debug(*inputs, *(word for line in lines for word in ("-c", line))))
    found = [command["data"] for command in told["commands"]]
    assert found[0]["differing"] == 0
    assert found[1]["wrong"] == 0
    assert found[2]["differing"] == 0
    assert found[3]["hazards"] == []
