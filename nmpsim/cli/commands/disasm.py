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
from nmpsim.diagnostics import Place, fail
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

    bundle = load_program(options.bundle)
    if options.data and not bundle.has_metadata:
        raise fail(
            "ARG001",
            "the data of an ELF program cannot be written as assembly",
            place=Place(bundle.path),
            found="--data",
            hint="Leave out --data, or use `riscv64-unknown-elf-objdump -s`.",
        )
    write_text(disassemble_bundle(bundle, options.data), options.output)
