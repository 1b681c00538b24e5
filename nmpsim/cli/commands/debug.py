"""``nmpsim debug``: step through a run, forwards and backwards."""

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
from typing import TYPE_CHECKING, Annotated, Any

import click

from nmpsim.cli.environment import choose_engine
from nmpsim.cli.guard import print_message
from nmpsim.cli.interrupt import interactive_command, interactive_session
from nmpsim.cli.loading import load_device, load_program, print_chain_note
from nmpsim.cli.options import (
    ENGINE_OPTION,
    FORMAT_OPTION,
    LIMITS,
    PATCH_OPTION,
    Engine,
    Format,
    InputOptions,
    LimitOptions,
    make_device_option,
)
from nmpsim.cli.output import check_outputs, show_progress, write_json, write_text
from nmpsim.cli.parameters import (
    InputFile,
    OutputFile,
    define_argument,
    define_command,
    define_option,
    get_given_arguments,
)
from nmpsim.cli.recorded_runs import MatchingOptions
from nmpsim.diagnostics import EXIT_OK, EXIT_WORSE, UserError, fail, refuse_options
from nmpsim.input_files import read_bytes, read_first_bytes
from nmpsim.records import frozen

if TYPE_CHECKING:
    from rich.console import Console

    from nmpsim.debugger.commands.shell import Shell
    from nmpsim.debugger.core_dump import CoreDump
    from nmpsim.debugger.debugger import Debugger
    from nmpsim.debugger.position import RunLocation
    from nmpsim.debugger.script import ScriptLine, ScriptLineResult

MAX_SCRIPT_BYTES = 1 << 20
_SERVED = "TEXTUAL_DRIVER"
"""Variable that textual-serve sets for a session in a browser."""
_ESCAPE_MILLISECONDS = "25"
"""Time after which Textual takes Esc for a key of its own; its default is 100."""
_SCREEN = "Screen"


@frozen(kw_only=True)
class DebugOptions:
    """Options of ``nmpsim debug``."""

    bundle: InputFile = define_argument("NET.bin|MODEL|CORE")
    inputs: InputOptions
    device: InputFile | None = make_device_option("the bundle's")
    reference: InputFile | None = define_option("Expected outputs of layers.", "R.npz|MODEL")
    matching: MatchingOptions
    script: InputFile | None = define_option("Execute the commands of this file.", "FILE")
    commands: tuple[str, ...] = define_option(
        "Execute a command, after the script.", "TEXT", names="--command -c"
    )
    record: OutputFile | None = define_option("Write the commands to a file for --script.", "FILE")
    patch: InputFile | None = PATCH_OPTION
    format: Format = FORMAT_OPTION
    plain: bool = define_option(
        "Use a line prompt instead of the full-screen interface.", group=_SCREEN
    )
    serve: Annotated[int, click.IntRange(1, 65535)] | None = define_option(
        "Show the screen in a browser, on this port.", "PORT", group=_SCREEN
    )
    host: str | None = define_option(
        "Address for --serve, instead of 127.0.0.1.", "ADDRESS", group=_SCREEN
    )
    gdb: Annotated[int, click.IntRange(0, 65535)] | None = define_option(
        "Wait for gdb on this port of 127.0.0.1 (0: any free port).", "PORT", group=_SCREEN
    )
    engine: Engine = ENGINE_OPTION
    limits: LimitOptions
    budget: Annotated[int, click.IntRange(1, 1 << 20)] = define_option(
        "Memory for reverse steps, in MiB.",
        "MIB",
        group=LIMITS,
        default=512,
    )


@define_command
def command(options: DebugOptions) -> int:
    """Step forwards and backwards through a run by layers, tiles or instructions.

    \b
    With --script, --command or piped commands, the commands run without a prompt:
      nmpsim debug NET.bin --input X.npy --reference R.npz -c diverge -c "why conv1 0 3 5 2"
    Otherwise a full-screen interface opens; --serve shows it in a browser. Press ? for its keys;
    `help` lists the commands. --gdb lets gdb control the run.

    A reference is a saved run, a recorded run of Glow, float outputs, or a model, which runs in its
    own runtime.

    Exit codes: 0 success, 1 a run trapped or an `expect` failed, 2 unusable arguments, files or
    commands, 124 a command took longer than --timeout.
    """
    check_outputs([options.record], [options.bundle, options.script, options.reference])
    lines = list(_given_lines(options))
    if options.gdb is not None:
        return _serve_gdb(options, options.gdb)
    is_served = _SERVED in os.environ
    if (options.serve is not None or options.host is not None) and not is_served:
        return _serve(options)
    has_screen = not (lines or options.plain) and (is_served or _is_terminal())
    if has_screen:
        if not is_served:
            print_message(f"opening {options.bundle.name} ...")  # the screen needs a second or more
        from nmpsim.tui import check_screen, run_tui

        if not is_served:
            check_screen(os.environ.get("TERM", ""))
        os.environ.setdefault("ESCDELAY", _ESCAPE_MILLISECONDS)
    shell = _make_shell(options)
    try:
        if not has_screen and (lines or not _is_terminal()):
            return _run_script(options, shell, lines or _read_stdin())
        with interactive_session():
            if has_screen:
                return run_tui(shell, _layout_file(), {} if is_served else os.environ)
            return _prompt(options, shell)
    finally:
        _write_record(options, shell)


def _serve(options: DebugOptions) -> int:
    """Serve this command; each page that is opened is a separate session."""
    from nmpsim.cli.stdin import has_read_pipes
    from nmpsim.tui import require_textual_serve

    if options.serve is None:
        raise fail(
            "ARG001", "--host requires --serve", hint=f"Pass --serve 8000 --host {options.host}."
        )
    ctx = click.get_current_context()
    excluded = {"--script": options.script, "--command": options.commands, "--plain": options.plain,
                "--record": options.record}  # fmt: skip
    refuse_options(excluded, "with --serve", "Leave out the options, or --serve.")
    if has_read_pipes(ctx):
        raise fail(
            "ARG001", "--serve requires files, because it reads them for each page",
            found="standard input or a pipe", hint="Save the data in a file and pass its name.",
        )  # fmt: skip
    require_textual_serve()
    _make_shell(options)  # errors are reported here, not in a browser
    from nmpsim.tui.serving import LOOPBACK, serve_screen

    words = [sys.executable, "-m", "nmpsim", "debug", *get_given_arguments(ctx)]
    with interactive_session():
        serve_screen(
            words,
            options.host or LOOPBACK,
            options.serve,
            f"nmpsim {options.bundle.name}",
            print_message,
        )
    return EXIT_OK


def _serve_gdb(options: DebugOptions, port: int) -> int:
    """Serve gdb until a client ends the program or detaches."""
    excluded = {"--script": options.script, "--command": options.commands, "--plain": options.plain,
                "--serve": options.serve, "--host": options.host}  # fmt: skip
    hint = "Leave out the options. From another machine, forward the port with `ssh -L`."
    refuse_options(excluded, "with --gdb", hint)
    from nmpsim.gdbserver.server import listen, serve_gdb

    with listen(port) as listener:
        shell = _make_shell(options)
        try:
            seconds = options.limits.timeout
            serve_gdb(shell, listener, print_message, math.inf if seconds is None else seconds)
        finally:
            _write_record(options, shell)
    return EXIT_OK


def _layout_file() -> Path:
    """Return the file of the screen's layouts."""
    import platformdirs

    return platformdirs.user_config_path("nmpsim") / "layout.toml"


def _given_lines(options: DebugOptions) -> Iterator[ScriptLine]:
    if options.script is None and not options.commands:
        return  # the import takes half a second
    from nmpsim.debugger.script import ScriptLine

    if options.script is not None:
        text = _read_script(options.script)
        for number, line in enumerate(text.splitlines(), 1):
            yield ScriptLine(line, str(options.script), number)
    for number, line in enumerate(options.commands, 1):
        yield ScriptLine(line, "--command", number)


def _read_script(path: Path) -> str:
    data = read_bytes(path, "script", MAX_SCRIPT_BYTES)
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _read_stdin() -> Iterable[ScriptLine]:
    from nmpsim.debugger.script import ScriptLine

    if sys.stdin is None:
        return
    for number, text in enumerate(sys.stdin, 1):
        yield ScriptLine(text.rstrip("\r\n"), "standard input", number)


def _make_shell(options: DebugOptions) -> Shell:
    from nmpsim.array_files import ArrayFile
    from nmpsim.cli.recorded_runs import run_live_reference
    from nmpsim.debugger.commands.shell import Shell

    is_core = read_first_bytes(options.bundle, 2) == b"PK"  # core files are archives
    core = _open_core(options) if is_core else None
    debugger = _make_debugger(options, core)
    if core is not None:
        with _apply_timeout(options, debugger), _show_progress(debugger):
            _go_to_stop(debugger, core)
    metadata, inputs = debugger.bundle.metadata, debugger.inputs
    limits = options.limits.timeout, options.limits.max_memory
    shell = Shell(
        debugger,
        lambda path: run_live_reference(path, metadata, inputs, *limits) or ArrayFile(path),
    )
    shell.reference_names = options.matching.read_names()
    shell.reference_layout = options.matching.reference_layout
    if options.reference is not None:
        shell.load_reference(options.reference)
    return shell


@contextmanager
def _show_progress(debugger: Debugger) -> Iterator[None]:
    """Show a progress bar until the end of the context."""
    from nmpsim.core.run import Progress

    with show_progress() as progress:
        compilation = debugger.engine.compilation
        compilation.listener = lambda: progress(Progress("compiling"))

        def show(at: RunLocation) -> None:
            progress(Progress("layer", at.layers_done, at.layers, at.layer_display_name))

        debugger.progress, debugger.search_progress = show, progress
        try:
            yield
        finally:
            debugger.progress = debugger.search_progress = compilation.listener = None


def _make_debugger(options: DebugOptions, core: CoreDump | None) -> Debugger:
    from nmpsim import session
    from nmpsim.cli.inputs import load_inputs
    from nmpsim.debugger import Debugger

    if core is not None:
        bundle, arrays = core.load_bundle(str(options.bundle)), core.inputs
        config, engine = core.config, core.engine
    else:
        device, arguments = load_device(options.device), options.inputs.arguments
        bundle = load_program(options.bundle, options.patch, device=device, inputs=arguments)
        config = device or session.get_device(bundle)
        arrays = load_inputs(options.inputs, bundle.metadata)
        engine = choose_engine(options.engine)
    debugger = Debugger(
        bundle,
        arrays,
        config=options.limits.make_limits().apply_to_device(config),
        engine=engine,
        budget_mib=options.budget,
        max_memory=options.limits.max_memory,
        removes_chains=core is None,  # positions of a core file are those of its program
    )
    if core is None:
        print_chain_note(bundle, debugger.bundle)
    return debugger


def _open_core(options: DebugOptions) -> CoreDump:
    from nmpsim.array_files import ArrayFile
    from nmpsim.debugger.core_dump import read_core_file

    given = {
        "--input": options.inputs.arguments,
        "--device": options.device,
        "--patch": options.patch,
    }
    hint = "Leave out the options: the core file contains inputs, device and changes."
    refuse_options(given, "with a core file", hint, options.bundle)
    return read_core_file(options.bundle, ArrayFile(options.bundle))


def _go_to_stop(debugger: Debugger, core: CoreDump) -> None:
    debugger.apply_edits(core.edits)
    if core.position is None:
        debugger.run_to_end()
    else:
        debugger.go_to(core.position)


def _run_script(options: DebugOptions, shell: Shell, lines: Iterable[ScriptLine]) -> int:
    from nmpsim.debugger.script import make_debug_document, run_script
    from nmpsim.escape import escape

    @contextmanager
    def limit_command() -> Iterator[None]:
        with _apply_timeout(options, shell.debugger), _show_progress(shell.debugger):
            yield

    is_text = options.format == "text"
    outcome = run_script(
        shell,
        lines,
        _print if is_text else lambda _: None,
        limit_command,
    )
    if is_text:
        write_text(escape("".join(f"{line}\n" for line in outcome.never_hit)))
    else:
        write_json(make_debug_document(outcome))
    return EXIT_WORSE if outcome.is_worse else EXIT_OK


def _print(answer: ScriptLineResult) -> None:
    _emit_lines(f"> {answer.line.text.strip()}\n{answer.result.text}")


def _emit_lines(text: str) -> None:
    """Print lines, wrapped on a terminal."""
    from nmpsim.escape import escape

    if sys.stdout is None or not sys.stdout.isatty():
        write_text(escape(text))
        return
    from nmpsim.views.console import print_line, render_text  # slow imports

    def view(console: Console) -> None:
        for one in text.splitlines():
            print_line(console, one)

    write_text(render_text(view, terminal=True))


def _prompt(options: DebugOptions, shell: Shell) -> int:
    """Prompt for commands on a terminal."""
    from nmpsim.debugger.script import describe_missed_breakpoints

    _enable_completion(shell)
    _emit_lines(f"{shell.execute('where').text}`help` lists the commands\n")
    while True:
        try:
            line = input("(nmpsim) ")
            with (
                interactive_command(),
                _interruptible(options, shell),
                _show_progress(shell.debugger),
            ):
                result = shell.execute(line)
        except EOFError:
            break
        except UserError as error:
            for diagnostic in error.diagnostics:
                print_message(str(diagnostic))
            continue
        except KeyboardInterrupt:
            print_message("interrupted; `quit` ends the session")
            continue
        _emit_lines(result.text)
        if result.ends:
            break
    _emit_lines("".join(f"{line}\n" for line in describe_missed_breakpoints(shell)))
    return EXIT_OK


@contextmanager
def _apply_timeout(options: DebugOptions, debugger: Debugger) -> Iterator[None]:
    """Raise UserError for a command of a script that exceeds --timeout."""
    if options.limits.timeout is None:
        yield
        return
    from nmpsim.core.limits import TimeBudget

    with debugger.limit_time(TimeBudget(options.limits.make_limits(), subject="the command")):
        yield


@contextmanager
def _interruptible(options: DebugOptions, shell: Shell) -> Iterator[None]:
    """Stop the run between two steps at Ctrl-C or --timeout, so that it stays usable."""
    signals: list[bool] = []
    seconds = options.limits.timeout
    end = math.inf if seconds is None else time.perf_counter() + seconds
    shell.debugger.is_interrupted = lambda: bool(signals) or time.perf_counter() > end
    before = signal.signal(signal.SIGINT, lambda *_: signals.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _enable_completion(shell: Shell) -> None:
    """Enable completion and history, where readline is available."""
    try:
        readline: Any = importlib.import_module("readline")
    except ImportError:  # on Windows
        return

    def complete(_: str, state: int) -> str | None:
        found = shell.complete(readline.get_line_buffer()[: readline.get_endidx()])
        return found[state] if state < len(found) else None

    readline.set_completer_delims(" ")
    readline.set_completer(complete)
    is_libedit = "libedit" in (readline.__doc__ or "")  # as on macOS
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")


def _write_record(options: DebugOptions, shell: Shell) -> None:
    if options.record is not None:
        from nmpsim.atomic import write_file

        text = "".join(f"{line}\n" for line in shell.history)
        write_file(options.record, text)
