"""``nmpsim debug``: stop a run, look into it, turn it back."""

from __future__ import annotations

import importlib
import math
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from nmpsim.cli.ahead import engine_for
from nmpsim.cli.files import emit
from nmpsim.cli.guard import say
from nmpsim.cli.input_options import input_option
from nmpsim.cli.interrupt import conversation, line_of_conversation
from nmpsim.cli.loading import load_program
from nmpsim.cli.memory import max_memory_option
from nmpsim.cli.options import (
    FILE,
    OUTPUT,
    Command,
    device_option,
    engine_option,
    format_option,
    limit_options,
    load_device,
    patch_option,
)
from nmpsim.diagnostics import EXIT_OK, EXIT_WORSE, Place, UserError, fail
from nmpsim.input_files import read_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from nmpsim.cli.input_options import GivenInputs
    from nmpsim.core.limits import Limits
    from nmpsim.debugger.commands.shell import Shell
    from nmpsim.debugger.corefile import Core
    from nmpsim.debugger.debugger import Debugger
    from nmpsim.debugger.position import Location
    from nmpsim.debugger.script import Answer, Line

MAX_SCRIPT_BYTES = 1 << 20


@attrs.frozen(kw_only=True)
class _Request:
    """What the command line asks for."""

    bundle: Path
    inputs: GivenInputs
    device: Path | None
    patch: Path | None
    engine: str
    reference: Path | None
    script: Path | None
    commands: tuple[str, ...]
    record: Path | None
    plain: bool
    serve: int | None
    host: str | None
    budget: int
    max_memory: int | None
    max_cycles: int | None
    timeout: float | None
    style: str


_SERVED = "TEXTUAL_DRIVER"
"""What textual-serve sets for a session in a browser."""
_ESCAPE_MILLISECONDS = "25"
"""How long Textual takes Esc for the beginning of another key; it waits for 100 by itself."""


@click.command("debug", cls=Command)
@click.argument("bundle", metavar="NET.bin|MODEL|CORE", type=FILE)
@input_option("As for `nmpsim run`.")
@device_option("the device that the bundle was made for")
@patch_option
@engine_option("Both stop at the same places.")
@click.option(
    "--reference",
    metavar="R.npz",
    type=FILE,
    help="Outputs that layers should have: a saved run, a recorded run of Glow, or floats.",
)
@click.option("--script", metavar="FILE", type=FILE, help="Do the commands of this file.")
@click.option(
    "--command",
    "-c",
    "commands",
    metavar="TEXT",
    multiple=True,
    help="Do this command; several are done in order, after the script.",
)
@click.option("--plain", is_flag=True, help="Ask for commands line by line, without a screen.")
@click.option(
    "--serve",
    metavar="PORT",
    type=click.IntRange(1, 65535),
    help="Show the screen in a browser, at this port of this machine.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    help="With --serve: listen at this address instead of 127.0.0.1.",
)
@click.option("--record", metavar="FILE", type=OUTPUT, help="Keep the commands, for --script.")
@click.option(
    "--budget",
    metavar="MIB",
    type=click.IntRange(1, 1 << 20),
    default=512,
    show_default=True,
    help="Memory for going back quickly.",
)
@max_memory_option
@limit_options("each command")
@format_option
def command(**arguments: Any) -> int:
    """Step through a run by layers, tiles or instructions, forwards and backwards.

    \b
    With --script or --command, or with commands on standard input, nothing is asked:
      nmpsim debug NET.bin --input X.npy --reference R.npz -c diverge -c "why conv1 0 3 5 2"
    Otherwise a screen shows layers, LIR, program, tensors, time and memory, with --serve in a
    browser; ? lists its keys, and `help` the commands.

    Exit codes: 0 fine, 1 a run trapped or an `expect` does not hold, 2 something given, or a
    command, cannot be used, 124 a command took longer than --timeout.
    """
    return _debug(_Request(**arguments))


def _debug(request: _Request) -> int:
    from nmpsim.cli.files import check_outputs

    check_outputs([request.record], [request.bundle, request.script, request.reference])
    lines = list(_given_lines(request))
    is_served = _SERVED in os.environ
    if (request.serve is not None or request.host is not None) and not is_served:
        return _serve(request)
    has_screen = not (lines or request.plain) and (is_served or _is_terminal())
    if has_screen:
        if not is_served:
            say(f"opening {request.bundle.name} ...")  # the screen needs a second or more
        from nmpsim.tui import check_screen, run_tui

        if not is_served:
            check_screen(os.environ.get("TERM", ""))
        os.environ.setdefault("ESCDELAY", _ESCAPE_MILLISECONDS)
    shell = _shell(request)
    try:
        if not has_screen and (lines or not _is_terminal()):
            return _script(request, shell, lines or _standard_input())
        with conversation():
            if has_screen:
                return run_tui(shell, _layout_file(), {} if is_served else os.environ)
            return _converse(request, shell)
    finally:
        _record(request, shell)


def _serve(request: _Request) -> int:
    """Serve this very command: each page that is opened is a session of its own."""
    from nmpsim.cli.options import given_words
    from nmpsim.cli.stdin import reads_pipes
    from nmpsim.tui import check_serving

    if request.serve is None:
        raise fail("ARG001", "--host is for --serve", hint=f"--serve 8000 --host {request.host}")
    ctx = click.get_current_context()
    alone = {"--script": request.script, "--command": request.commands, "--plain": request.plain,
             "--record": request.record}  # fmt: skip
    for option, value in alone.items():
        if value:
            raise fail("ARG001", f"{option} and --serve exclude each other")
    if reads_pipes(ctx):
        raise fail(
            "ARG001", "--serve reads its files again for each page",
            found="standard input or a pipe", hint="save it in a file and name that",
        )  # fmt: skip
    check_serving()
    _shell(request)  # what cannot be debugged is told here, not in a browser
    from nmpsim.tui.serving import LOOPBACK, serve

    command = [sys.executable, "-m", "nmpsim", "debug", *given_words(ctx)]
    with conversation():
        serve(
            command, request.host or LOOPBACK, request.serve, f"nmpsim {request.bundle.name}", say
        )
    return EXIT_OK


def _layout_file() -> Path:
    """Where the screen keeps its layouts."""
    import platformdirs

    return platformdirs.user_config_path("nmpsim") / "layout.toml"


def _given_lines(request: _Request) -> Iterator[Line]:
    if request.script is None and not request.commands:
        return  # without the half second that the import takes
    from nmpsim.debugger.script import Line

    if request.script is not None:
        text = _read_script(request.script)
        for number, line in enumerate(text.splitlines(), 1):
            yield Line(line, str(request.script), number)
    for number, line in enumerate(request.commands, 1):
        yield Line(line, "--command", number)


def _read_script(path: Path) -> str:
    data = read_bytes(path, "script", MAX_SCRIPT_BYTES)
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _standard_input() -> Iterable[Line]:
    from nmpsim.debugger.script import Line

    if sys.stdin is None:
        return
    for number, text in enumerate(sys.stdin, 1):
        yield Line(text.rstrip("\r\n"), "standard input", number)


def _shell(request: _Request) -> Shell:
    from nmpsim.cli.npz import NpzFile
    from nmpsim.debugger.commands.shell import Shell

    opened = _open_core(request) if _is_archive(request.bundle) else None
    debugger = _debugger(request) if opened is None else _debugger_of(request, opened)
    if opened is not None:
        with _in_time(request, debugger), _showing_progress(debugger):
            _go_where_it_stopped(debugger, opened)
    shell = Shell(debugger, NpzFile)
    if request.reference is not None:
        shell.load_reference(request.reference)
    return shell


@contextmanager
def _showing_progress(debugger: Debugger) -> Iterator[None]:
    """A bar for what lasts; it is gone when a command is done."""
    from nmpsim.core.run import Progress
    from nmpsim.views.progress import RunProgress, stderr_console

    with RunProgress(stderr_console()) as progress:
        if not debugger.execution.engine.is_ready():
            progress(Progress("compiling"))

        def done(at: Location) -> None:
            progress(Progress("layer", at.layers_done, at.layers, at.layer_display_name))

        debugger.progress = done
        try:
            yield
        finally:
            debugger.progress = None


def _debugger(request: _Request) -> Debugger:
    from nmpsim import session
    from nmpsim.cli.inputs import fitting_inputs
    from nmpsim.debugger import Debugger

    device = load_device(request.device)
    bundle = load_program(
        request.bundle, request.patch, device=device, inputs=request.inputs.arguments
    )
    config = _limits(request).of_device(device or session.device_of(bundle))
    arrays = fitting_inputs(request.inputs, bundle.metadata)
    return Debugger(
        bundle,
        arrays,
        config=config,
        engine=engine_for(request.engine),
        budget_mib=request.budget,
        max_memory=request.max_memory,
    )


def _is_archive(path: Path) -> bool:
    """A core file is an archive, a bundle is not; who opens it says if it cannot be read."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(2) == b"PK"
    except OSError:
        return False


def _open_core(request: _Request) -> Core:
    from nmpsim.cli.npz import NpzFile
    from nmpsim.debugger.corefile import load_core

    if request.inputs.arguments or request.device or request.patch:
        raise fail(
            "ARG001",
            "a core file has its inputs, device and changes with it",
            place=Place(str(request.bundle)),
            hint="leave out --input, --device and --patch",
        )
    return load_core(request.bundle, NpzFile(request.bundle))


def _debugger_of(request: _Request, core: Core) -> Debugger:
    from nmpsim.debugger import Debugger

    return Debugger(
        core.bundle(str(request.bundle)),
        core.inputs,
        config=_limits(request).of_device(core.config),
        engine=core.engine,
        budget_mib=request.budget,
        max_memory=request.max_memory,
    )


def _go_where_it_stopped(debugger: Debugger, core: Core) -> None:
    debugger.change(core.edits)
    if core.position is None:
        debugger.run_to_end()
    else:
        debugger.go_to(core.position)


def _script(request: _Request, shell: Shell, lines: Iterable[Line]) -> int:
    from nmpsim.debugger.script import document, run_script
    from nmpsim.visible import visible

    @contextmanager
    def each() -> Iterator[None]:
        with _in_time(request, shell.debugger), _showing_progress(shell.debugger):
            yield

    is_text = request.style == "text"
    outcome = run_script(
        shell,
        lines,
        _print if is_text else lambda _: None,
        each,
    )
    if is_text:
        emit(visible("".join(f"{line}\n" for line in outcome.never_hit)))
    else:
        from nmpsim.report.json import json_text

        emit(json_text(document(outcome)))
    return EXIT_WORSE if outcome.is_worse else EXIT_OK


def _print(answer: Answer) -> None:
    _emit_lines(f"> {answer.line.text.strip()}\n{answer.result.text}")


def _emit_lines(text: str) -> None:
    """Print lines; on a terminal each on as many as its width needs."""
    from nmpsim.visible import visible

    if sys.stdout is None or not sys.stdout.isatty():
        emit(visible(text))
        return
    from nmpsim.views.console import line, text_of  # slow to import

    def view(console: Console) -> None:
        for one in text.splitlines():
            line(console, one)

    emit(text_of(view, terminal=True))


def _converse(request: _Request, shell: Shell) -> int:
    """Ask for commands on a terminal."""
    from nmpsim.debugger.script import never_hit

    _complete_with(shell)
    _emit_lines(f"{shell.execute('where').text}`help` lists the commands\n")
    while True:
        try:
            line = input("(nmpsim) ")
            with (
                line_of_conversation(),
                _interruptible(request, shell),
                _showing_progress(shell.debugger),
            ):
                result = shell.execute(line)
        except EOFError:
            break
        except UserError as error:
            for diagnostic in error.diagnostics:
                say(str(diagnostic))
            continue
        except KeyboardInterrupt:
            say("interrupted; `quit` ends the session")
            continue
        _emit_lines(result.text)
        if result.ends:
            break
    _emit_lines("".join(f"{line}\n" for line in never_hit(shell)))
    return EXIT_OK


def _limits(request: _Request) -> Limits:
    from nmpsim.core.limits import Limits

    return Limits(request.max_cycles, request.timeout)


@contextmanager
def _in_time(request: _Request, debugger: Debugger) -> Iterator[None]:
    """A command of a script that runs for longer than it may is an error."""
    if request.timeout is None:
        yield
        return
    from nmpsim.core.limits import TimeBudget

    with debugger.execution.within(TimeBudget(_limits(request), subject="the command")):
        yield


@contextmanager
def _interruptible(request: _Request, shell: Shell) -> Iterator[None]:
    """Ctrl-C, or the end of its time, stops the run between two moves and leaves it usable."""
    asked: list[bool] = []
    end = math.inf if request.timeout is None else time.perf_counter() + request.timeout
    shell.debugger.interrupted = lambda: bool(asked) or time.perf_counter() > end
    before = signal.signal(signal.SIGINT, lambda *_: asked.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _complete_with(shell: Shell) -> None:
    """Completion and history, where the terminal can do it."""
    try:
        readline: Any = importlib.import_module("readline")
    except ImportError:  # not on Windows
        return

    def complete(_: str, state: int) -> str | None:
        found = shell.complete(readline.get_line_buffer()[: readline.get_endidx()])
        return found[state] if state < len(found) else None

    readline.set_completer_delims(" ")
    readline.set_completer(complete)
    is_libedit = "libedit" in (readline.__doc__ or "")  # as on macOS
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")


def _record(request: _Request, shell: Shell) -> None:
    if request.record is not None:
        from nmpsim.atomic import write_file

        text = "".join(f"{line}\n" for line in shell.history)
        write_file(request.record, lambda file: file.write(text.encode()))
