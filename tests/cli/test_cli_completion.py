"""Completion in the shells that docs/howto/shell-completion.md names, as they do it themselves."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner

from nmpsim.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "shell-completion.md"


def shell(name: str) -> str:
    """Return the path of an installed shell."""
    path = shutil.which(name)
    return path or pytest.skip(f"there is no {name} here")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return environment variables for a folder with a bundle and this nmpsim."""
    (tmp_path / "a_network.bin").touch()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(tmp_path), "TERM": "vt100"}


def source(name: str) -> str:
    result = CliRunner().invoke(app, [], env={"_NMPSIM_COMPLETE": f"{name}_source"})
    assert result.exit_code == 0, result.output
    return result.stdout


CASES = [
    ("nmpsim comp", "compile"),
    ("nmpsim debug --ser", "--serve"),
    ("nmpsim run a_network.bin --engine ref", "reference"),
    ("nmpsim run a_net", "a_network.bin"),
]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_commands_options_and_values_are_offered(name: str) -> None:
    kind = get_completion_class(name)
    assert kind is not None
    complete = kind(app, {}, "nmpsim", "_NMPSIM_COMPLETE")

    def offered(*words: str) -> list[str]:
        return [one.value for one in complete.get_completions(list(words[:-1]), words[-1])]

    assert {"compile", "run", "debug"} <= set(offered(""))
    assert offered("debug", "--ser") == ["--serve"]
    assert offered("run", "net.bin", "--engine", "") == ["auto", "compiled", "reference"]
    (path,) = complete.get_completions(["run"], "a_net")
    assert path.type == "file"


def test_the_page_shows_working_lines() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in ("bash", "zsh", "fish"):
        assert f"_NMPSIM_COMPLETE={name}_source nmpsim" in page
        assert "_nmpsim_completion" in source(name)


def test_bash_completes_commands(environment: dict[str, str], tmp_path: Path) -> None:
    words = "debug --ser"
    script = f"{source('bash')}\nCOMP_WORDS=(nmpsim {words}); COMP_CWORD=2\n"
    script += '_nmpsim_completion nmpsim; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        [shell("bash"), "--norc", "-c", script],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["--serve"]


def test_fish_completes_commands(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "nmpsim.fish").write_text(source("fish"), encoding="utf-8")
    asked = "; ".join(f"complete -C '{line}'" for line, _ in CASES)
    done = subprocess.run(
        [shell("fish"), "-c", f"source nmpsim.fish; {asked}"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [word for _, word in CASES]


def test_zsh_completes_commands(environment: dict[str, str], tmp_path: Path) -> None:
    """It completes on a terminal only."""
    import pty

    zsh = shell("zsh")
    (tmp_path / "nmpsim.zsh").write_text(source("zsh"), encoding="utf-8")
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        os.execve(zsh, [zsh, "-f", "-i"], environment)

    def until(text: str) -> str:
        seen, end = "", time.monotonic() + 30
        while text not in seen and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 4096).decode(errors="replace")
        return seen

    try:
        os.write(
            terminal, b"PS1=; autoload -U compinit; compinit -u -D; . ./nmpsim.zsh; echo re''ady\n"
        )
        assert "ready" in until("ready")
        for line, word in CASES:
            os.write(terminal, f"{line}\t".encode())
            assert word in until(word)
            os.write(terminal, b"\x15")
    finally:
        os.write(terminal, b"\x15exit\n")
        os.close(terminal)
        os.waitpid(process, 0)
