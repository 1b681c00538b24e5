"""Steps by source lines, and variables of programs in C."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import attrs
import pytest

from nmpsim.array_files import ArrayFile
from nmpsim.bundle import read_bundle
from nmpsim.ckit.flags import FOLDER, KitOptions, make_flags
from nmpsim.config import default_device
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.results import CommandResult
from nmpsim.debugger.commands.shell import Shell
from nmpsim.diagnostics import UserError

SOURCE = Path(__file__).with_name("variables.c")
COMPILER = "riscv64-unknown-elf-gcc"
pytestmark = pytest.mark.skipif(shutil.which(COMPILER) is None, reason="GCC is not installed")


CONFIG = attrs.evolve(default_device(), cores_count=1)


def compile_program(folder: Path, options: str) -> Path:
    """Compile the program with options of GCC; return the ELF file."""
    path = folder / "variables.elf"
    flags = make_flags(KitOptions(), CONFIG, FOLDER)
    command = [COMPILER, *flags, "-g", *options.split(), str(SOURCE), "-o", str(path)]
    subprocess.run(command, check=True)
    return path


def open_shell(path: Path) -> Shell:
    debugger = Debugger(read_bundle(path), {}, config=CONFIG, engine="reference")

    def refuse(path: Path) -> ArrayFile:
        raise AssertionError(path)

    return Shell(debugger, refuse)


@pytest.fixture(scope="module")
def unoptimized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("c"), "-O0")


@pytest.fixture
def shell(unoptimized: Path) -> Shell:
    return open_shell(unoptimized)


def find_line(text: str) -> int:
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def get_place(result: CommandResult) -> str:
    """Return function and line of a stop, such as ``sum:29``."""
    name, line = re.fullmatch(
        r"(\w+) \(\w+\.\w+:(\d+)\)", result.data["location"]["source"]
    ).groups()
    return f"{name}:{line}"


@pytest.mark.parametrize(
    "options", ["-O0", "-Og", pytest.param("-O2", marks=pytest.mark.slow),
                pytest.param("-O0 -gdwarf-3 -gstrict-dwarf", marks=pytest.mark.slow)],
)  # fmt: skip
def test_variables_of_all_types_are_printed(tmp_path: Path, options: str) -> None:
    shell = open_shell(compile_program(tmp_path, options))
    shell.execute("break main")
    shell.execute("continue")
    printed = re.findall(r"// PRINT (.+?) = (.+)", SOURCE.read_text(encoding="utf-8"))
    assert len(printed) == 15
    for expression, text in printed:
        line, *_ = shell.execute(f"print {expression}").lines
        assert re.sub("0x[0-9a-f]{8}", "0x........", line) == f"{expression} = {text}"


def test_steps_go_to_the_next_line_into_calls_and_out_of_them(shell: Shell) -> None:
    first, loop = find_line("sink = sum("), find_line("for (int")
    assert shell.execute(f"tbreak variables.c:{first}").data["breakpoint"]["temporary"]
    assert get_place(shell.execute("continue")) == f"main:{first}"
    assert shell.execute("breakpoints").data["breakpoints"] == []
    places = [get_place(shell.execute(line)) for line in ("step", "next", "next", "step", "step")]
    body = find_line("doubled = n")
    assert places == [
        f"sum:{loop - 1}", f"sum:{loop}", f"sum:{loop + 1}", f"twice:{body}", f"twice:{body + 1}",
    ]  # fmt: skip
    assert get_place(shell.execute("finish")) == f"sum:{loop + 1}"
    assert get_place(shell.execute("back line")) == f"twice:{body + 2}"
    assert get_place(shell.execute("back 2 over")) == f"twice:{body}"
    assert [one.split()[0] for one in shell.execute("variables").lines[1:]] == ["int", "volatile"]


def test_a_step_over_a_recursive_call_stays_in_its_frame(shell: Shell) -> None:
    line = find_line("return n * factorial")
    shell.execute(f"break variables.c:{line}")
    shell.execute("continue")
    shell.execute("delete")
    assert shell.execute("print n").data["variable"]["value"] == 3
    assert get_place(shell.execute("step")) == f"factorial:{line - 2}"
    assert shell.execute("print n").data["variable"]["value"] == 2
    assert shell.execute("print n frame 1").data["variable"]["value"] == 3
    shell.execute("finish")
    assert get_place(shell.execute("next")) == f"factorial:{line + 1}"
    assert shell.execute("print n").data["variable"]["value"] == 3


def test_a_value_that_is_unavailable_has_a_reason(shell: Shell) -> None:
    shell.execute("break sum")
    shell.execute("continue")
    found = shell.execute("print n").data["variable"]
    assert not found["is_available"] and found["value"] is None
    assert "not stored yet" in found["text"]
    shell.execute("step line")
    assert shell.execute("print n").text.startswith("n = 3\n  int at 0x2000")
    found = shell.execute("print nodes[1].next[1].value").text
    assert found == "nodes[1].next[1].value: not available: there is no memory at 0x14\n  int\n"


@pytest.mark.parametrize(
    ("expression", "code"),
    [("nothing", "DEBUG002"), ("matrix[2]", "DEBUG002"), ("text.x", "DEBUG002"),
     ("*ratio", "DEBUG002"), ("ratio[0]", "DEBUG002"), ("matrix[x]", "DEBUG001"),
     ("matrix[", "DEBUG001"), ("1 + 1", "DEBUG001"), ("nodes frame 9", "DEBUG001")],
)  # fmt: skip
def test_wrong_expressions_are_refused(shell: Shell, expression: str, code: str) -> None:
    shell.execute("break main")
    shell.execute("continue")
    with pytest.raises(UserError) as error:
        shell.execute(f"print {expression}")
    assert error.value.diagnostics[0].code == code
