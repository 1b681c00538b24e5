"""docs/quantize.md does what it says."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nmpsim.cli.app import app
from nmpsim.quantization import SCHEMAS
from nmpsim.quantization.parameters import RANGE_METHODS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "quantize.md").read_text(encoding="utf-8")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Copy the page's files to a folder and make it the current one."""
    (tmp_path / "programs").mkdir()
    shutil.copytree(ROOT / "programs" / "digits", tmp_path / "programs" / "digits")
    monkeypatch.chdir(tmp_path)


def shell(block: str) -> list[Result]:
    results = []
    for line in block.replace("\\\n", " ").strip().splitlines():
        program, *arguments = shlex.split(line)
        assert program == "nmpsim"
        results.append(CliRunner().invoke(app, arguments))
        assert results[-1].exit_code == 0, results[-1].stderr
    return results


def blocks(kind: str) -> list[str]:
    return re.findall(rf"<!-- run -->\n```{kind}\n(.*?)```", PAGE, re.S)


def find_output(first_words: str) -> str:
    (text,) = re.findall(rf"```\n({re.escape(first_words)}.*?)```", PAGE, re.S)
    return text


def test_commands_of_the_page_run(repository):
    quantized, _, ran = shell(blocks("sh")[0])
    assert quantized.stdout == find_output("7 of 8 results")
    assert " fc  " in ran.stdout
    assert Path("digits.tensors.json").exists()


@pytest.mark.slow
def test_the_table_of_the_page_is_current(repository):
    (compared,) = shell(blocks("sh")[1])
    assert compared.stdout == find_output("errors against the float program")


def test_the_python_of_the_page_runs(repository):
    (code,) = blocks("python")
    names: dict[str, object] = {}
    exec(compile(code, "quantize.md", "exec"), names)
    assert Path("digits16.lir").exists()


def test_every_range_method_and_schema_is_explained():
    rows = re.findall(r"^\| `([\w-]+)` \|", PAGE, re.M)
    assert rows == [*RANGE_METHODS, *SCHEMAS]
