"""``nmpsim disasm``: the program of a bundle as assembly text."""

from __future__ import annotations

from pathlib import Path

import click

from nmpsim.cli.files import check_outputs, emit
from nmpsim.cli.loading import load_program
from nmpsim.cli.options import Command, bundle_argument, output_option


@click.command("disasm", cls=Command)
@bundle_argument
@click.option(
    "--data",
    is_flag=True,
    help="With constants, symbols and metadata, so that `nmpsim asm` makes the same bundle of it.",
)
@output_option("PROG.s", "Write the text here instead of to stdout.", required=False)
def command(bundle: Path, data: bool, output: Path | None) -> None:
    """Show the program of a bundle as assembly text."""
    check_outputs([output], [bundle])
    from nmpsim.bundle.assembly import disassemble_bundle

    emit(disassemble_bundle(load_program(bundle), data), output)
