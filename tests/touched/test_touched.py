"""The selection of test files, on a small repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.touched import __main__ as command
from tests.touched import selection

FILES = {
    "nmpsim/__init__.py": '_HOMES = {"compile": "nmpsim.lir.parse"}',
    "nmpsim/lir/parse.py": "def f():\n    from nmpsim.lir import lexer",
    "nmpsim/lir/lexer.py": "if TYPE_CHECKING:\n    import nmpsim.lir.printer",
    "nmpsim/lir/printer.py": "",
    "nmpsim/cli/app.py": "import nmpsim",
    "tests/lir/lir_samples.py": "from nmpsim.lir.lexer import token",
    "tests/lir/test_lexer.py": "import lir_samples",
    "tests/lir/test_parser.py": "import nmpsim",
    "tests/lir/test_printer.py": "from nmpsim.lir import printer",
    "tests/cli/test_app.py": "from nmpsim.cli import app",
    "tests/cli/test_samples.py": "import lir_samples",
    "tests/docs/test_pages.py": "",
    "tests/project/test_files.py": "",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    {
        # Through a lazy import, a module's name in a string, or a helper; elsewhere directly.
        "nmpsim/lir/lexer.py": "cli/test_samples lir/test_lexer lir/test_parser",
        # What is imported for types only is not reached.
        "nmpsim/lir/printer.py": "lir/test_printer",
        # Nothing is known to reach a new module: all of its package.
        "nmpsim/lir/new.html": "lir/test_lexer lir/test_parser lir/test_printer",
        "tests/lir/lir_samples.py": "cli/test_samples lir/test_lexer",
        "tests/lir/test_parser.py": "lir/test_parser",
        "tests/lir/test_deleted.py": "lir/test_lexer lir/test_parser lir/test_printer",
        "tests/cli/conftest.py": "cli/test_app cli/test_samples",
        "docs/isa.md": "docs/test_pages project/test_files",
        "pyproject.toml": "project/test_files",
    }.items(),
)
def test_tests_of_a_changed_file_are_listed(changed: str, tests: str, repository: Path) -> None:
    found = selection.select([changed], repository)
    assert found == [f"tests/{name}.py" for name in tests.split()]


def test_only_the_closest_tests_of_other_packages_are_listed(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "tests/cli/test_less.py").write_text("from nmpsim.lir import lexer")
    monkeypatch.setattr(selection, "MOST_ELSEWHERE", 1)
    found = selection.select(["nmpsim/lir/lexer.py"], repository)
    assert [name for name in found if "/cli/" in name] == ["tests/cli/test_less.py"]


def test_the_command_includes_uncommitted_changes(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=nmpsim", "-c", "user.email=nmpsim@localhost")
        subprocess.run(["git", *who, *words], cwd=repository, check=True)

    git("init", "-q", "-b", "main")
    git("add", "tests/lir")
    git("commit", "-q", "-m", "Begin")
    git("checkout", "-q", "-b", "work")
    git("add", ".")
    git("commit", "-q", "-m", "Change")
    (repository / "tests/lir/test_lexer.py").write_text("")
    (repository / "tests/lir/test_new.py").write_text("")
    monkeypatch.setattr(command, "ROOT", repository)
    assert command.main(["--list", "--base", "work"]) == 0
    listed = ["tests/lir/test_lexer.py", "tests/lir/test_new.py"]
    assert capsys.readouterr().out.split() == listed
    assert command.main(["--list"]) == 0
    assert {*listed, "tests/docs/test_pages.py"} < {*capsys.readouterr().out.split()}
