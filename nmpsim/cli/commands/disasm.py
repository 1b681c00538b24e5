"""``nmpsim disasm``: disassemble a bundle."""

from __future__ import annotations

from nmpsim.cli.loading import load_program
from nmpsim.cli.options import make_output_option
from nmpsim.cli.output import check_outputs, write_text
from nmpsim.cli.parameters import (
    InputFile,
    OutputFile,
    define_argument,
    define_command,
    define_option,
)
from nmpsim.records import frozen


@frozen(kw_only=True)
class DisasmOptions:
    """Options of ``nmpsim disasm``."""

    bundle: InputFile = define_argument("NET.bin|MODEL")
    data: bool = define_option("Include all data that `nmpsim asm` needs.")
    output: OutputFile | None = make_output_option(
        "PROG.s", "Write to this file.  [default: stdout]"
    )


@define_command
def command(options: DisasmOptions) -> None:
    """Show the program of a bundle as assembly text.

    With --data the text includes constants, symbols and metadata.
    """
    check_outputs([options.output], [options.bundle])
    from nmpsim.bundle.assembly import disassemble_bundle

    write_text(disassemble_bundle(load_program(options.bundle), options.data), options.output)
