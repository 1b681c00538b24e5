"""The command group and its global options; each command is imported when it is asked for."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from nmpsim import __version__
from nmpsim.cli.guard import CommandInterruptedError, PipeClosedError, answering, run_guarded
from nmpsim.cli.kernels import set_kernels
from nmpsim.host_memory import check_libraries

COMMANDS: dict[str, str] = {
    "quantize": "Quantize a float network.",
    "compile": "Compile a network to a bundle.",
    "run": "Run a bundle: answer, cycles, saturation.",
    "report": "Make an HTML report of runs, with figures.",
    "history": "Keep reports, and draw them over commits.",
    "check": "Check answers and costs, for CI.",
    "debug": "Stop a run, inspect it, step back.",
    "eval": "Run a classifier on a data set: accuracy.",
    "sweep": "Run a network on a grid of devices.",
    "diff": "Find the first difference of two runs, layer by layer.",
    "reduce": "Shrink a failing program to what fails.",
    "inspect": "Show what is in a bundle or a model.",
    "explain": "Explain the integers that a scale becomes.",
    "lint": "Find what will go wrong, before it does.",
    "disasm": "Show a bundle as assembly text.",
    "asm": "Assemble a program to a bundle.",
    "device": "Show the settings of a device.",
}
"""Name of each command, in the order of the help -> what the help says of it."""


@contextmanager
def _kept_from_click() -> Iterator[None]:
    """Click's ``main`` must not see what it would report its own way."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise CommandInterruptedError from error
    except EOFError as error:  # click takes it for Ctrl-D at a prompt of its own, of which none is
        raise RuntimeError(f"unexpected end of a file {error}".rstrip()) from error
    except BrokenPipeError as error:
        raise PipeClosedError from error


class _Commands(click.Group):
    """A group that imports its commands late and whose ``main`` never shows a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        check_libraries()
        set_kernels()
        module = importlib.import_module(f"nmpsim.cli.commands.{cmd_name}")
        command: click.Command = module.command
        command.short_help = COMMANDS[cmd_name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of the help, for which no command is imported."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it; an unknown name is answered with the nearest known one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            also = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{also}")
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the arguments; this is also where ``--help`` is answered."""
        with _kept_from_click(), answering():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _kept_from_click():
            return super().invoke(ctx)

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:
        """Run the command line and leave with its exit code."""
        words = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in words or os.environ.get("NMPSIM_DEBUG", "") not in ("", "0")
        run = super().main
        extra |= {"prog_name": "nmpsim", "standalone_mode": False}
        sys.exit(run_guarded(lambda: run(words, **extra), debug=debug))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="nmpsim %(version)s", help="Print the version and exit.")
@click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    help="Show the traceback of an internal error (also: NMPSIM_DEBUG=1).",
)
def app() -> None:
    """Simulate the NeuroMorphic Processor (NMP): same bits, and cycles layer by layer.

    \b
      nmpsim compile NET.lir --weights W.npz -o NET.bin
      nmpsim run NET.bin --input X.npy

    Exit codes: 0 fine, 1 the run trapped, 2 something given cannot be used, 3 a bug of nmpsim;
    each command's own help has the rest.
    """
