"""The command group and its global options; each command is imported when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from nmpsim import __version__
from nmpsim.cli.environment import set_kernel_target
from nmpsim.cli.guard import (
    CommandInterruptedError,
    PipeClosedError,
    convert_write_errors,
    run_guarded,
)
from nmpsim.diagnostics import did_you_mean
from nmpsim.host_memory import check_import_memory

COMMANDS: dict[str, str] = {
    "quantize": "Quantize a float network.",
    "compile": "Compile a network to a bundle.",
    "run": "Run a network: outputs, cycles, saturation.",
    "report": "Write an HTML report of runs, with figures.",
    "history": "Store reports and show them over commits.",
    "check": "Check outputs and costs, for CI.",
    "debug": "Step through a run, forwards and backwards.",
    "eval": "Measure the accuracy of a classifier on a data set.",
    "sweep": "Run a network on a grid of devices.",
    "diff": "Compare two runs layer by layer.",
    "verify": "Compare every layer with the model in its own runtime.",
    "identify": "Name the arithmetic of a device from its dumps.",
    "reduce": "Reduce a failing program to the part that fails.",
    "inspect": "Show the contents of a bundle or a model.",
    "explain": "Show how scales become integers.",
    "lint": "Check a program for numerical problems without running it.",
    "disasm": "Disassemble a bundle.",
    "asm": "Assemble a bundle.",
    "c-flags": "Print compiler and linker flags for C programs.",
    "link": "Make a bundle with tensors and layers from an ELF program.",
    "device": "Show the settings of a device.",
    "fit": "Fit assumed settings of a device to measured cycles.",
}
"""Name -> short help of each command, in the order of the help."""


@contextmanager
def _hide_from_click() -> Iterator[None]:
    """Replace exceptions that click's ``main`` would report in its own way."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise CommandInterruptedError from error
    except EOFError as error:  # click takes it for Ctrl-D at a prompt
        raise RuntimeError(f"unexpected end of a file {error}".rstrip()) from error
    except BrokenPipeError as error:
        raise PipeClosedError from error


class _Commands(click.Group):
    """A group that imports a command when it is called and never shows a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        check_import_memory()
        set_kernel_target()
        module = importlib.import_module(f"nmpsim.cli.commands.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        command.short_help = COMMANDS[cmd_name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; suggest the nearest name for an unknown one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = did_you_mean(args[0], COMMANDS)
            ctx.fail(f"No such command {args[0]!r}.{f' {hint}' if hint else ''}")
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the arguments and return the context, or print ``--help``."""
        with _hide_from_click(), convert_write_errors():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _hide_from_click():
            return super().invoke(ctx)

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:
        """Run the command line and exit."""
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
    """Simulate the NeuroMorphic Processor (NMP): bit-exact results and per-layer cycle counts.

    \b
      nmpsim compile NET.lir --weights W.npz -o NET.bin
      nmpsim run NET.bin --input X.npy

    Exit codes: 0 success, 1 the run trapped, 2 unusable arguments or files, 3 a bug in nmpsim.
    """
