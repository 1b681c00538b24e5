"""Scripts of gdb itself against a server."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gdb_clients import (
    GDB,
    RunningServer,
    compile_c,
    needs_gcc,
    needs_gdb,
    run_gdb,
    start_server,
)
from small_sessions import HALT, make_debugger
from small_sessions import make_shell as small_shell

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.shell import Shell

ROOT = Path(__file__).parents[2]
BARRIER = ROOT / "programs" / "assembly" / "barrier.s"
RACE = ROOT / "programs" / "debugging" / "race.c"
HALVES = 0xA0000080


def make_shell(data: bytes, path: Path, **inputs: np.ndarray) -> Shell:
    path.write_bytes(data)
    debugger = Debugger(parse_bundle(data, str(path)), inputs)
    return Shell(debugger, lambda path: pytest.fail(f"nobody reads {path}"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gdb")


@pytest.fixture(scope="module")
def barrier(folder: Path) -> Iterator[tuple[RunningServer, Path, Shell]]:
    device = nmpsim.default_device().settings()
    data = assemble(BARRIER.read_text(encoding="utf-8"), "barrier.s", device).build_bundle()
    shell = make_shell(data, folder / "barrier.bin", first=np.arange(16, dtype=np.int8))
    with start_server(shell) as server:
        yield server, folder / "barrier.bin", shell


@pytest.fixture
def race(folder: Path) -> Iterator[tuple[RunningServer, Path]]:
    path = compile_c(RACE, folder / "race.elf")
    with start_server(make_shell(path.read_bytes(), path)) as server:
        yield server, path


def expect_in_order(text: str, *patterns: str) -> None:
    at = 0
    for pattern in patterns:
        found = re.compile(pattern).search(text, at)
        assert found, f"no {pattern!r} after {text[:at][-200:]!r} in\n{text}"
        at = found.end()


@needs_gdb
def test_instructions_threads_and_registers(barrier: tuple[RunningServer, Path, Shell]) -> None:
    server, program, shell = barrier
    shell.debugger.restart()
    text = run_gdb(
        server.port,
        ["info threads", "x/4i $pc", "stepi", "nexti", "reverse-stepi", "thread 5", "stepi",
         "p $mhartid", "reverse-stepi", "display/i $pc", "tbreak *meet", "continue",
         "hbreak *done", "continue", "info breakpoints", "delete", "reverse-continue",
         "p $t0 = 99", "p $a0 = 5", "p $mhartid = 3", "p *(int*)0x5000", "monitor help step",
         "monitor nonsense", "info mem", "load", "disconnect"],
        program,
    )  # fmt: skip
    expect_in_order(
        text, r"_start \(\)", r"\* 1 +Thread 1 \"core 0\" \(running, cycle 0\)",
        r"32 +Thread 32", r"=> 0x80000200 <_start>:\s+csrr\s+s0,mhartid", r"0x80000204 in _start",
        r"0x80000208 in _start", r"0x80000204 in _start", r"Switching to thread 5",
        r"0x80000208", r"= 4", r"0x80000204 in _start",
        r"hit Temporary breakpoint 1, .*in meet", r"1: x/i \$pc", r"hit Breakpoint 2, .*in done",
        r"hw breakpoint +keep y +0x80000280 <done>", r"the start of the run",
        r"No more reverse-execution history", r"= 99", r"= 5", r"Could not write register",
        r"Cannot access memory at address 0x5000", r"step \[layer", r"error\[DEBUG001\]",
        r"0x80000000 0x80000\w+ rw", r"Loading section \.text",
    )  # fmt: skip


@needs_gdb
def test_watchpoints_on_dram_and_scratchpads(barrier: tuple[RunningServer, Path, Shell]) -> None:
    server, program, shell = barrier
    shell.debugger.restart()
    text = run_gdb(
        server.port,
        [f"watch *(int*){HALVES:#x}", "continue", "x/i $pc", "reverse-continue", "x/i $pc",
         "continue", "delete", f"rwatch *(char*){HALVES + 16:#x}", "continue", "delete",
         "awatch *(char*)0x20000010", "continue", "delete", "continue", "reverse-stepi",
         f"set var *(int*){HALVES:#x} = 1", f"p *(int*){HALVES:#x}", "stepi",
         "monitor restart", "maintenance flush register-cache", f"p *(int*){HALVES:#x}",
         "disconnect"],
        program,
    )  # fmt: skip
    expect_in_order(
        text, r"core 0 nmp.store at 0x80000228 writes dram", r"Old value = 0",
        r"New value = 50462976", r"=> 0x8000022c", r"Old value = 50462976", r"New value = 0",
        r"=> 0x80000228", r"New value = 50462976", r"nmp.load at 0x80000268 reads dram",
        r"hit Hardware read watchpoint 2", r"Value = 77", r"hit Hardware access",
        r"No more reverse-execution history", r"\$1 = 1", r"\$2 = 0",
    )  # fmt: skip
    shell.debugger.apply_edits(())


@needs_gdb
@needs_gcc
def test_source_lines_and_functions_of_a_c_program(race: tuple[RunningServer, Path]) -> None:
    server, program = race
    text = run_gdb(
        server.port,
        ["monitor disable 1", "tbreak increment", "continue", "backtrace 2", "finish",
         "info locals", "thread 2", "until", "step", "delete", "watch counter", "continue",
         "reverse-continue", "delete", "reverse-next", "reverse-next", "reverse-step",
         "reverse-finish", "p increment(41)", "disconnect"],
        program,
    )  # fmt: skip
    expect_in_order(
        text, r"_start \(\) at .*race.c", r"breakpoint 1, increment \(value=0\) at",
        r"#1 .* in work \(\)", r"Value returned is \$1 = 1", r"round = 0",
        r"Switching to thread 2", r"for \(int round", r"counter = increment", r"Old value = 1",
        r"New value = 2", r"Old value = 2", r"New value = 1", r"counter = increment",
        r"for \(int round", r"increment \(value=0\)", r"0x8000004c in work", r"\$2 = 42",
    )  # fmt: skip


@needs_gdb
@needs_gcc
def test_the_tutorial_shows_what_gdb_prints(folder: Path) -> None:
    page = (ROOT / "docs" / "tutorials" / "race-with-gdb.md").read_text(encoding="utf-8")
    blocks = re.findall(r"<!-- gdb( output)? -->\n```text\n(.*?)```", page, re.S)
    commands = [line for is_output, text in blocks if not is_output for line in text.splitlines()]
    lines = [line for is_output, text in blocks if is_output for line in text.splitlines()]
    flags = re.findall(r"riscv64-unknown-elf-gcc (.*?) programs", page.replace("\\\n", ""), re.S)
    path = compile_c(RACE, folder / "tutorial.elf", flags[0].split())
    with start_server(make_shell(path.read_bytes(), path)) as server:
        text = run_gdb(server.port, [*commands[1:], "disconnect"], path)
    assert commands[0].startswith("target remote")
    expect_in_order(text, *map(re.escape, lines))


@needs_gdb
@needs_gcc
def test_a_session_of_vs_code(race: tuple[RunningServer, Path]) -> None:
    """Execute the MI commands that the C/C++ extension sends for a breakpoint and a step."""
    server, program = race
    launch = json.loads((RACE.parent / "launch.json").read_text(encoding="utf-8"))
    (configuration,) = launch["configurations"]
    assert configuration["MIMode"] == "gdb" and configuration["stopAtEntry"]
    commands = [
        "-gdb-set target-async on", "-enable-pretty-printing", f"-file-exec-and-symbols {program}",
        f"-target-select remote 127.0.0.1:{server.port}", "-break-insert -f race.c:15",
        "-thread-info", '-interpreter-exec console "monitor disable 1"', "-exec-continue",
        "-stack-list-frames --thread 1 0 5",
        "-stack-list-variables --thread 1 --frame 0 --simple-values", "-var-create - * counter",
        "-break-delete 1", "-exec-next", "-data-list-register-values x 32",
        "-interpreter-exec console reverse-step",
        "-data-disassemble -s $pc -e $pc+8 -- 0", "-target-disconnect", "-gdb-exit",
    ]  # fmt: skip
    text = run_mi(commands)
    assert "^error" not in text
    expect_in_order(
        text, r"\^connected", r"\^done,bkpt=\{number=\"1\"", r'name="core 31"',
        r'reason="breakpoint-hit"', r'func="work"', r'name="round",', r'name="var1"',
        r'reason="end-stepping-range"', r'number="32",value="0x8', r"asm_insns=",
    )  # fmt: skip


def run_mi(commands: list[str]) -> str:
    """Return the output of gdb's machine interface for commands.

    After an execution, the next command waits for a stop, or for the text after ``=>``.
    """
    assert GDB is not None
    gdb = subprocess.Popen(
        [GDB, "-nx", "-q", "--interpreter=mi2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert gdb.stdin is not None and gdb.stdout is not None
    lines = []
    watchdog = threading.Timer(60, gdb.kill)
    watchdog.start()
    with gdb:
        for line in commands:
            command, _, awaited = line.partition(" => ")
            gdb.stdin.write(f"{command}\n")
            gdb.stdin.flush()
            is_run = command.startswith("-exec-") or "reverse" in command
            awaited = awaited or ("*stopped" if is_run else "^")
            for answer in gdb.stdout:
                lines.append(answer)
                if answer.startswith(("^error", awaited)):
                    break
    watchdog.cancel()
    return "".join(lines)


@needs_gdb
@pytest.mark.slow
def test_an_extended_session_restarts_the_program(folder: Path) -> None:
    program = folder / "endless.bin"
    program.write_bytes(bytes(make_debugger(" nop\n" + HALT).bundle.file))
    with start_server(small_shell(" nop\n" + HALT)) as server:
        commands = [
            f"target extended-remote 127.0.0.1:{server.port}", "continue", "continue", "run",
            "stepi", "kill", "run", "x/i $pc", "detach",
        ]  # fmt: skip
        text = run_gdb(server.port, ["disconnect", *commands], program)
        server.thread.join(10)
        assert not server.thread.is_alive(), "detach ends the server"
    expect_in_order(
        text, r"No more reverse-execution history", r"exited normally", r"killed", r"=> 0x",
        r"detached",
    )  # fmt: skip


@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("last", ["kill", "detach"])
def test_the_client_ends_the_server(folder: Path, last: str) -> None:
    program = folder / "halt.bin"
    program.write_bytes(bytes(make_debugger(HALT).bundle.file))
    with start_server(small_shell(HALT)) as server:
        run_gdb(server.port, [last], program)
        server.thread.join(10)
        assert not server.thread.is_alive()


@needs_gdb
@pytest.mark.slow
def test_gdb_interrupts_an_endless_program() -> None:
    with start_server(small_shell("again:\n j again\n")) as server:
        text = run_mi(
            ["-gdb-set mi-async on", f"-target-select remote 127.0.0.1:{server.port}",
             "-exec-continue => ^running", "-exec-interrupt", "-target-disconnect", "-gdb-exit"],
        )  # fmt: skip
    expect_in_order(text, r'signal-name="SIGINT"', r"\^done")
