"""Find the code blocks of a page and run them in order, as a reader would."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
from click.testing import CliRunner

_BLOCK = re.compile(
    r"^(?:<!-- (?P<remark>[^\n]*) -->\n)?(?P<indent> *)```(?P<language>\w*)[^\n]*\n"
    r"(?P<text>.*?)^(?P=indent)```$",
    re.M | re.S,
)
_EXIT = re.compile(r"\s+# exit code (\d+)$")
_SHELL_SIGNS = re.compile(r"[|<>;&$]")
_GUARD = 'if __name__ == "__main__":'
PRELUDE = """
import numpy as np
import nmpsim
x = np.load("X.npy")
samples = np.load("programs/digits/testset.npz")
images, labels = samples["x"][:4], samples["labels"][:4]
"""
"""Prepended to a block that is a complete script."""
METAVARIABLES = {"LAYER": "conv1__2"}
"""Placeholders of command lines; placeholders for files name files of the folder."""


@attrs.frozen
class Block:
    """Fenced block of a page."""

    language: str
    text: str
    line: int
    remark: str = ""
    """The HTML comment before it. ``not run: REASON`` and ``test``, the line that runs the tests,
    keep it from being run."""

    @property
    def runs(self) -> bool:
        """Return whether this module runs the block or compares it with output."""
        is_code = self.language in ("sh", "python")
        is_excluded = self.remark == "test" or self.remark.startswith("not run: ")
        return self.remark == "output" or (is_code and not is_excluded)


def parse_blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page's text."""
    return [
        Block(
            found["language"],
            re.sub(f"^{found['indent']}", "", found["text"], flags=re.M),
            page.count("\n", 0, found.start("language")) + 1,
            found["remark"] or "",
        )
        for found in _BLOCK.finditer(page)
    ]


def run_block(block: Block, names: dict[str, Any], where: str, path: str) -> str:
    """Run a block in the current folder and return the output of its commands.

    ``path`` is the shell's PATH.
    """
    if _GUARD in block.text:  # its worker processes import it again, so it must be a file
        Path("script.py").write_text(PRELUDE + block.text, encoding="utf-8")
        return _run_command(f"{sys.executable} script.py", f"{where}:{block.line}", path)
    if block.language == "python":
        exec(compile("\n" * block.line + block.text, where, "exec"), names)
        return ""
    said = [_run_command(one, f"{where}:{block.line}", path) for one in _commands(block.text)]
    return "".join(said)


def check_output(block: Block, said: str) -> None:
    """Assert that the preceding block printed each line of a block."""
    lines = set(said.splitlines())
    for line in block.text.splitlines():
        assert line in lines, f"{line!r} is not in\n{said}"


def _commands(text: str) -> Iterator[str]:
    """Yield commands: lines, joined with continuation lines and here-documents."""
    text = text.replace("\\\n", " ")
    for found in re.finditer(r"^(?:.*<<'END'\n(?:.*\n)*?END$|.+)$", text, re.M):
        yield found[0]


def _run_command(command: str, where: str, path: str) -> str:
    expected = _EXIT.search(command)
    words = shlex.split(command.split("\n")[0], comments=True)
    if not words:
        return ""
    if words[0] == "nmpsim" and not _SHELL_SIGNS.search(command):
        code, said = run_here([METAVARIABLES.get(word, word) for word in words[1:]])
    else:
        done = subprocess.run(
            ["bash", "-euc", command],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=100,
        )
        code, said = done.returncode, done.stdout + done.stderr
    usual = (0, 1) if "NET." in command else (0,)  # the result of a reader's own network is unknown
    assert code in ((int(expected[1]),) if expected else usual), f"{where}: {command}\n{said}"
    return said


def run_here(words: Sequence[object]) -> tuple[int, str]:
    """Run a command in this process, where everything is imported already."""
    from nmpsim.cli.app import app

    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


def command_lines(page: str) -> list[str]:
    """Return the command lines of a page: in blocks, tables and sentences."""
    blocks = [b.text.replace("\\\n", " ") for b in parse_blocks(page) if b.language == "sh"]
    lines = [line for text in blocks for line in text.splitlines()]
    return [
        line.strip()
        for line in [*lines, *re.findall(r"`(nmpsim [^`]+)`", page)]
        if line.strip().startswith("nmpsim ")
    ]


def pages(repository: Path) -> list[Path]:
    """Return the pages whose commands a reader may run."""
    programs = sorted((repository / "programs").rglob("README.md"))
    return [repository / "README.md", *sorted((repository / "docs").rglob("*.md")), *programs]
