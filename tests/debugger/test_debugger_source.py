"""Breakpoints on source lines, backtraces and code with source lines."""

from pathlib import Path

import attrs
import pytest

from nmpsim.bundle import parse_bundle, read_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.config import default_device
from nmpsim.debugger import Debugger
from nmpsim.debugger.backtrace import list_stack_frames
from nmpsim.debugger.commands.shell import Shell
from nmpsim.debugger.inspect import disassemble
from nmpsim.diagnostics import UserError

FIR = Path(__file__).parents[1] / "debuginfo" / "programs" / "fir.elf"
CONFIG = attrs.evolve(default_device(), cores_count=2)
CODE = 0x8000_0000


def refuse_arrays(path: Path) -> None:
    raise AssertionError(path)


@pytest.fixture
def shell() -> Shell:
    debugger = Debugger(read_bundle(FIR), {}, config=CONFIG, engine="reference")
    return Shell(debugger, refuse_arrays)


def test_a_breakpoint_on_a_line_stops_before_its_first_instruction(shell: Shell) -> None:
    shell.execute("break fir.c:15")
    stopped = shell.execute("continue")
    assert "breakpoint 1: core 0 at fir (fir.c:15)" in stopped.text
    assert stopped.data["location"]["pc"] == CODE + 0x2C
    assert stopped.data["location"]["source"] == "fir (fir.c:15)"
    shell.execute("continue")
    assert shell.debugger.get_breakpoint(1).hits == 2


def test_a_line_without_code_stands_for_the_next_one(shell: Shell) -> None:
    shell.execute("break fir.c:10 core 0")
    assert shell.execute("continue").data["location"]["pc"] == CODE + 0x18


def test_functions_and_labels_are_breakpoints(shell: Shell) -> None:
    shell.execute("break main")
    assert shell.execute("continue").data["location"]["pc"] == CODE + 0x50


@pytest.mark.parametrize(
    ("text", "code"),
    [("fir.c:99", "DEBUG002"), ("fire.c:1", "DEBUG002"), ("mainly", "DEBUG001")],
)
def test_unknown_places_are_refused(shell: Shell, text: str, code: str) -> None:
    with pytest.raises(UserError) as error:
        shell.execute(f"break {text}")
    assert error.value.diagnostics[0].code == code


def test_a_backtrace_lists_inlined_calls_and_callers(shell: Shell) -> None:
    shell.execute(f"break address {CODE + 0x34}")
    shell.execute("continue")
    assert shell.execute("backtrace").lines == (
        "#0   0x80000034  multiply (fir.c:8), inlined",
        "#1   0x80000034  fir (fir.c:15)",
        "#2   0x8000007c  main (fir.c:21)",
        "#3   0x80000014  _start (start.S:8)",
    )


def test_backtraces_equal_the_call_stacks_at_every_instruction() -> None:
    debugger = Debugger(read_bundle(FIR), {}, config=CONFIG, engine="reference")
    callers = {"_start": None, "halt": None, "main": "_start", "fir": "main"}
    for _ in range(110):
        debugger.step("instruction")
        core = debugger.find_next_core()
        if core is None:
            break
        frames = [one.function for one in list_stack_frames(debugger, core) if not one.is_inlined]
        expected = [frames[0]]
        while (caller := callers[expected[-1]]) is not None:
            expected.append(caller)
        assert frames == expected


def test_code_has_source_lines_with_their_text(shell: Shell) -> None:
    lines = {one.address: one for one in disassemble(shell.debugger, 0, CODE + 0x2C)}
    assert lines[CODE + 0x2C].source == "fir.c:15"
    assert lines[CODE + 0x2C].source_text.strip() == "sum += multiply(x[i], taps[i]);"
    assert lines[CODE + 0x20].source == ""
    assert lines[CODE + 0x50].symbol == "main"


def test_without_unwind_rules_the_caller_comes_from_ra() -> None:
    text = "_start: jal ra, work\nnmp.halt\nwork: nop\nret\n"
    bundle = parse_bundle(assemble(text, "t.s", CONFIG.settings()).build_bundle())
    debugger = Debugger(bundle, {}, config=CONFIG, engine="reference")
    debugger.step("instruction", core=0)
    frames = list_stack_frames(debugger, 0)
    assert [one.function for one in frames] == ["work", "_start"]
    debugger.step("instruction", 2, core=0)
    assert [one.function for one in list_stack_frames(debugger, 0)] == ["_start"]


def test_programs_without_a_module_have_display_names(shell: Shell) -> None:
    assert shell.get_display_name("fir") == "fir"
    assert shell.complete("tensor f") == ["fir"]
    assert shell.execute("layer 0").data["name"] == "fir"
