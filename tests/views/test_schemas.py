"""The published schemas are the definitions', and what nmpsim writes is valid by them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner

from nmpsim.bundle.elffile import ElfFile
from nmpsim.bundle.layout import LIR_INDEX, META
from nmpsim.cli.app import app
from nmpsim.views.schemas import DOCUMENTS, format_schema

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "nmpsim" / "schemas"
DIGITS = ROOT / "programs" / "digits"
NET = (DIGITS / "digits.lir.txt", "--weights", DIGITS / "digits.npz")
FLOAT = (DIGITS / "float.lir.txt", "--weights", DIGITS / "float_weights.npz")
SAMPLES = ("--dataset", DIGITS / "testset.npz", "--labels", "labels")
INPUT = ("--input", DIGITS / "images" / "7.npy")
JSON = ("--format", "json")


def load_schema(name: str) -> Any:
    return json.loads((PUBLISHED / f"{name}.json").read_text(encoding="utf-8"))


def check(name: str, data: Any) -> None:
    jsonschema.Draft202012Validator(load_schema(name)).validate(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    run("compile", *NET, "-o", folder / "net.bin")
    run("compile", *FLOAT, "-o", folder / "float.bin")
    for engine in ("reference", "compiled"):
        words = ("--engine", engine, *JSON, "-o", folder / f"{engine}.json")
        run("run", folder / "net.bin", *INPUT, "--trace", folder / f"{engine}.trace", *words)
    (folder / "few.toml").write_text("[limits]\ncycles = 50\n")
    return folder


def run(*words: object) -> None:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.name)
def test_a_published_schema_is_the_definition(document):
    text = (PUBLISHED / f"{document.name}.json").read_text(encoding="utf-8")
    assert text == format_schema(document), "python -m nmpsim.views.schemas nmpsim/schemas"
    jsonschema.Draft202012Validator.check_schema(json.loads(text))


def test_no_other_schema_is_published():
    assert {path.stem for path in PUBLISHED.iterdir()} == {one.name for one in DOCUMENTS}


def test_every_document_has_a_version():
    """But for the trace, whose format is another's, and the scales, which have no version."""
    names = [load_schema(one.name).get("$id") for one in DOCUMENTS]
    assert names.count(None) == 2
    assert all(re.fullmatch(r"nmpsim-[a-z]+-\d+", name) for name in names if name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("compile", ("compile", *NET, "-o", "again.bin", "--rescale-bias")),
        ("compile", ("compile", *NET, "-o", "again.bin", "--explain-tiling")),
        ("runs", ("run", "net.bin", "--input", DIGITS / "images" / "[67].npy")),
        ("inspect", ("inspect", "net.bin")),
        ("inspect", ("inspect", "float.bin")),
        ("device", ("device",)),
        ("lint", ("lint", *NET)),
        ("lint", ("lint", "float.bin")),
        ("explain", ("explain", "net.bin")),
        ("explain", ("explain", "net.bin", "conv1", "--all-channels")),
        ("explain", ("explain", "--scale", "0.0123")),
        ("explain", ("explain", "--scale", "1e-30")),
        ("explain", ("explain", "--range", "-1.5", "2")),
        ("diff", ("diff", "reference.json", "compiled.json")),
        ("report", ("run", "net.bin", *INPUT, "--max-cycles", "9000", "--histogram", "all")),
        ("report", ("run", "net.bin", *INPUT, "--shadow", "--timeline", "--sensitivity")),
        ("check", ("check", "net.bin", *INPUT, "--top1", "3")),
        (
            "debug",
            ("debug", "net.bin", *INPUT, "-c", "step", "-c", "layers", "-c", "break layer conv2"),
        ),
        (
            "sweep",
            ("sweep", *NET, *INPUT, "--set", "cores.count=1,4", "--jobs", "1", "-o", "s.csv"),
        ),
        ("eval", ("eval", "net.bin", *SAMPLES, "--limit", "2", "--top", "1,3", "--jobs", "1")),
        ("quantize", ("quantize", *FLOAT, "--calibration", DIGITS / "images", "--compare")),
    ],
    ids=str,
)
def test_printed_documents_are_valid(name, words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, [*map(str, words), *JSON])
    assert result.stdout.startswith("{"), result.stderr
    check(name, json.loads(result.stdout))


def test_documents_of_a_run_are_valid(folder):
    for engine in ("reference", "compiled"):
        check("report", json.loads((folder / f"{engine}.json").read_text()))
        check("trace", json.loads((folder / f"{engine}.trace").read_text()))


@pytest.mark.parametrize(
    ("name", "words", "file"),
    [
        (
            "baseline",
            ("check", "net.bin", *INPUT, "--baseline", "b.json", "--update-baseline"),
            "b.json",
        ),
        (
            "eval",
            ("eval", "net.bin", *SAMPLES, "--limit", "1", "--jobs", "1", "-o", "e.json"),
            "e.json",
        ),
        (
            "patch",
            ("debug", "net.bin", *INPUT, "-c", "change conv2 out_post 15", "-c", "export p.json"),
            "p.json",
        ),
        (
            "tensors",
            ("quantize", *FLOAT, "--calibration", DIGITS / "images", "-o", "q.lir"),
            "q.tensors.json",
        ),
        (
            "repro",
            ("reduce", "net.bin", *INPUT, "--device", "few.toml", "-o", "part"),
            "part/repro.json",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_written_documents_are_valid(name, words, file, folder, monkeypatch):
    monkeypatch.chdir(folder)
    run(*words)
    check(name, json.loads((folder / file).read_text()))


def test_documents_in_bundles_and_core_files_are_valid(folder, monkeypatch):
    monkeypatch.chdir(folder)
    image = (folder / "net.bin").read_bytes()
    sections = ElfFile(memoryview(image), "net.bin").sections
    for name, section in (("metadata", META), ("module", LIR_INDEX)):
        place = sections[section]
        check(name, json.loads(image[place.offset : place.offset + place.nbytes]))
    run("debug", "net.bin", *INPUT, "-c", "step", "-c", "core kept.core.npz")
    with np.load(folder / "kept.core.npz") as stored:
        check("core", json.loads(stored["about"].tobytes()))


def test_wrong_documents_are_invalid(folder):
    """A schema that allows everything would say nothing."""
    for document in DOCUMENTS:
        for data in ([], {"schema": load_schema(document.name).get("$id", "")}, {"x": 1}):
            with pytest.raises(jsonschema.ValidationError):
                check(document.name, data)
