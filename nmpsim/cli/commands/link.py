"""``nmpsim link``: make a bundle with tensors and layers from an ELF program."""

from __future__ import annotations

from nmpsim.atomic import write_file
from nmpsim.cli.guard import print_message
from nmpsim.cli.loading import load_device
from nmpsim.cli.options import make_device_option
from nmpsim.cli.output import check_outputs
from nmpsim.cli.parameters import (
    InputFile,
    OutputFile,
    define_argument,
    define_command,
    define_option,
)
from nmpsim.records import frozen


@frozen(kw_only=True)
class LinkOptions:
    """Options of ``nmpsim link``."""

    program: InputFile = define_argument("PROG.elf")
    input: tuple[str, ...] = define_option("Input in a variable.", "NAME:TYPE[SHAPE]")
    output: tuple[str, ...] = define_option("Output in a variable.", "NAME:TYPE[SHAPE]")
    layer: tuple[str, ...] = define_option("Layer that the next barrier ends.", "NAME[:OUTPUT]")
    device: InputFile | None = make_device_option("the NMP")
    bundle: OutputFile = define_option("The bundle to write.", "NET.bin", names="-o --bundle")


@define_command
def command(options: LinkOptions) -> None:
    """Make a bundle with inputs, outputs and layers from an ELF program.

    Example: nmpsim link prog.elf --input x:i8[1x16] --output y:i8[1x16] -o net.bin
    """
    check_outputs([options.bundle], [options.program, options.device])
    from nmpsim.bundle.link import link_program
    from nmpsim.bundle.read import read_bundle
    from nmpsim.config import resolve_device

    device = resolve_device(load_device(options.device))
    data = link_program(
        read_bundle(options.program),
        options.input,
        options.output,
        options.layer,
        device.settings(),
    )
    write_file(options.bundle, data)
    print_message(f"wrote {options.bundle}: {len(data):,} bytes")
