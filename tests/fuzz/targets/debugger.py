"""Scripts of debugger commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import chdir, suppress

from nmpsim.array_files import ArrayFile
from nmpsim.config import make_device_config
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.command import split_line
from nmpsim.debugger.commands.shell import COMMANDS, Shell, find_command
from nmpsim.debugger.script import ScriptLine, make_debug_document, run_script
from nmpsim.diagnostics import UserError

from .. import programs
from ..engines import limit_cycles, warm
from ..mutate import FLOATS, INTEGERS, make_text_mutator
from ..target import ROOT, Target, allow_errors, get_folder

MAX_LINES = 16
MAX_MEBIBYTES = 16
FILES = ("a.npz", "fix.json", "core.npz")
"""File names that a script may use."""
PIECES = (
    *map(str, (*INTEGERS, *FLOATS)), *(word for c in COMMANDS for word in (c.name, *c.aliases)),
    *(word for c in COMMANDS for word in c.usage.split()), *FILES, "conv", "image", "result",
    "core", "0", "if", "==", "<", "(", ")", "and", "not", "$a0", "pc", "cycles(conv)", "value(",
    "saturation(conv)", "register(0, a0)", "'", '"', "#", "back", "hazard", "\0", "0x80000000",
)  # fmt: skip


def run(data: bytes) -> None:
    """Execute each line as a script of its own until a command ends the session."""
    warm()
    program, inputs = programs.one_conv()
    config = limit_cycles(make_device_config(program.metadata.device))
    debugger = Debugger(program, inputs, config=config, budget_mib=MAX_MEBIBYTES)
    shell = Shell(debugger, ArrayFile)
    text = data.decode("utf-8", "replace")
    with chdir(get_folder()):
        for number, line in enumerate(text.splitlines()[:MAX_LINES], 1):
            if _touches_other_files(line):
                continue
            with allow_errors(""):
                outcome = run_script(shell, [ScriptLine(line, "a.dbg", number)])
                make_debug_document(outcome)
                if outcome.answers and outcome.answers[-1].result.ends:
                    break


def _touches_other_files(line: str) -> bool:
    with suppress(UserError):
        words = split_line(line)
        if words and "<file>" in find_command(words[0]).completions:
            return any(word not in FILES for word in words[1:])
    return False


def seeds() -> Iterator[bytes]:
    """Yield the example scripts for this program, and the usage of every command."""
    for path in sorted((ROOT / "programs" / "debugging").glob("*.dbg")):
        yield path.read_bytes().replace(b"conv2", b"conv").replace(b"conv1", b"conv")
    yield "\n".join(command.name for command in COMMANDS).encode()
    for command in COMMANDS:
        yield command.usage.lower().encode()
    yield b"step\nstep tile\nstep back\nbreak conv\ncontinue\nwhy conv 0 0 0\nuntil end\nregs 0\n"


TARGET = Target(run, seeds, make_text_mutator(PIECES), seconds=30, most_bytes=1 << 11)
