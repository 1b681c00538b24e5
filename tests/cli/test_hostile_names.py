"""Names that are meant to steer a terminal, a page or a CI system are shown as what they are."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import Metadata, read_bundle
from nmpsim.bundle.schema import format_metadata, parse_metadata
from nmpsim.bundle.write import BundleBuilder
from nmpsim.diagnostics import Diagnostic, Place
from nmpsim.escape import (
    escape,
    escape_csv,
    escape_json,
    escape_line,
    escape_markdown,
    unescape_csv,
)

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
SEVEN = DIGITS / "images" / "7.npy"
HOSTILE = (
    "::error::x\u202egnp\x1b[31m\x07\x9b2J##[group]\u2066\u200f\u061c\u2028##vso[x]"
    "\n::warning::y\n##[error]z\r\x85<b>&amp;|[red]`*\U000e0041"
)
RENAMED = ("conv1__2", "pool1__2", "prob", "prob__1", "data", "main", "fc__1_res")


def find_invisible(text: str) -> list[str]:
    """Return invisible characters and CI commands in a text."""
    odd = [
        f"{ord(one):x}"
        for one in text
        if one not in "\n\t" and (unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp"))
    ]
    commands = [line for line in text.splitlines() if line.lstrip().startswith("::")]
    return odd + commands + [mark for mark in ("##[", "##vso[") if mark in text]


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a bundle of the digits with hostile names in metadata and symbols."""
    finish = BundleBuilder.build_file

    def renamed(builder: Any, metadata: Metadata) -> bytes:
        text = format_metadata(metadata).decode()
        for name in RENAMED:
            text = text.replace(f'"{name}"', json.dumps(f"{HOSTILE}{name}"))
        symbols = {f"{HOSTILE}{name}": at for name, at in builder._symbols.items()}
        monkeypatch.setattr(builder, "_symbols", symbols)
        return finish(builder, parse_metadata(text.encode(), Place()))

    monkeypatch.setattr(BundleBuilder, "build_file", renamed)
    path = tmp_path / "hostile.bin"
    nmpsim.save(nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz"), path)
    assert read_bundle(path).metadata.inputs[0].name == f"{HOSTILE}data"
    return path


def commands(bundle: Path, folder: Path) -> Iterator[list[object]]:
    seven = ["--input", f"{HOSTILE}data={SEVEN}"]
    yield ["inspect", bundle]
    yield ["inspect", bundle, "--format", "json"]
    yield ["disasm", bundle]
    yield ["disasm", bundle, "--data"]
    yield ["run", bundle, *seven]
    yield ["run", bundle, *seven, "--format", "json", "--timeline", "-o", folder / "run.json"]
    yield ["report", folder / "run.json", "-o", folder / "run.html"]
    yield ["run", bundle, *seven, "--trace", folder / "t.json"]
    yield ["run", bundle, *seven, "--sensitivity"]
    yield ["run", bundle, "--input", f"nothing={SEVEN}"]
    yield ["run", bundle, *seven, "--save-layers", folder / "l.npz"]
    yield ["run", folder / f"{HOSTILE[:20]}.bin"]
    yield ["diff", folder / "run.json", folder / "run.json"]
    yield ["diff", folder / "l.npz", folder / "l.npz", "--all"]
    yield ["explain", bundle]
    yield ["lint", bundle]
    for style in ([], ["--format", "json"]):
        words = ["where", "layers", "info layers", "step layer", "print number:4", "quit", HOSTILE]
        yield ["debug", bundle, *seven, *style, *(w for one in words for w in ("-c", one))]
    checks = ["--cycles", 1, "--saturation", "none", "--core-on-failure", folder / "cores"]
    files = [("--junit", "j.xml"), ("--markdown", "m.md"), ("--sarif", "s.sarif")]
    written = [word for option, name in files for word in (option, folder / name)]
    yield ["check", bundle, *seven, *checks, *written]
    np.savez(folder / "set.npz", **{f"{HOSTILE}data": np.zeros((4, 1, 1, 8, 8), np.float32)})
    yield ["eval", bundle, "--dataset", folder / "set.npz", "--labels", "nowhere"]


def test_no_command_prints_raw_names(hostile: Path, tmp_path: Path, nmpsim_cli: Any) -> None:
    folder = tmp_path / "written"
    folder.mkdir()
    for words in commands(hostile, folder):
        done = nmpsim_cli(*words)
        assert done.exit_code in (0, 1, 2, 4), (words, done.output)
        assert find_invisible(done.output) == [], words
    texts = [p for p in folder.iterdir() if p.is_file() and p.suffix != ".npz"]
    names = {path.name for path in texts}
    assert {"run.json", "run.html", "t.json", "j.xml", "m.md", "s.sarif"} <= names
    for path in texts:
        found = find_invisible(path.read_text())
        # Scripts of libraries have what they have.
        assert found == [] or path.suffix == ".html", (path, found)
    page = (folder / "run.html").read_text()
    assert HOSTILE[:12] not in page
    assert "\u202e" not in page
    assert "<b>&amp;|" not in page


def test_only_nmpsim_creates_annotations(hostile: Path, nmpsim_cli: Any) -> None:
    seven = ["--input", f"{HOSTILE}data={SEVEN}"]
    done = nmpsim_cli("check", hostile, *seven, "--cycles", 1, "--github")
    lines = [line for line in done.output.splitlines() if line.lstrip().startswith("::")]
    assert lines
    assert all(line.startswith(("::error file=", "::error title=")) for line in lines)
    assert find_invisible("".join(done.output.split("::error"))) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("conv1", "conv1"),
        ("größe 日本 é\t\n", "größe 日本 é\t\n"),
        ("a\x1b[31m", "a\\x1b[31m"),
        ("\u202eabc", "\\u202eabc"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("::error::", "\\x3a:error::"),
        ("  ::error::", "  \\x3a:error::"),
        ("a::b", "a::b"),
        ("a\n::b", "a\n\\x3a:b"),
        ("##[group]", "#\\x23[group]"),
        ("## heading", "## heading"),
        ("##VSO[x]", "#\\x23VSO[x]"),
    ],
)
def test_names_are_escaped(text: str, shown: str) -> None:
    assert escape(text) == shown
    assert escape(shown) == shown


def test_a_line_stays_one() -> None:
    assert escape_line("a\n::b\tc") == "a\\n::b c"


def test_markdown_has_no_formatting_or_mentions() -> None:
    assert escape_markdown("a_b @octocat\n| *c*") == r"a\_b @&#8203;octocat \| \*c\*"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "'=1", "'", "a=1", ""])
def test_a_csv_field_is_never_a_formula(text: str) -> None:
    field = escape_csv(text)
    assert isinstance(field, str)
    assert not field.startswith(("=", "+", "-", "@", "\t"))
    assert unescape_csv(field) == text


def test_numbers_in_csv_stay_numbers() -> None:
    assert escape_csv(-1) == -1


def test_json_keeps_names() -> None:
    text = escape_json(json.dumps({"name": HOSTILE}))
    assert find_invisible(text) == []
    assert json.loads(text) == {"name": HOSTILE}


def test_errors_escape_names() -> None:
    error = Diagnostic("FILE001", HOSTILE, Place(HOSTILE, 1), HOSTILE, HOSTILE, HOSTILE)
    assert find_invisible(str(error)) == []
    assert len(str(error).splitlines()) == 4
