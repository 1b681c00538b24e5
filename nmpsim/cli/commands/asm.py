"""``nmpsim asm``: assemble a bundle."""

from __future__ import annotations

from nmpsim.atomic import write_file
from nmpsim.cli.guard import print_message
from nmpsim.cli.loading import load_device
from nmpsim.cli.options import make_device_option, make_output_option
from nmpsim.cli.output import check_outputs
from nmpsim.cli.parameters import InputFile, OutputFile, define_argument, define_command
from nmpsim.input_files import read_text
from nmpsim.records import frozen


@frozen(kw_only=True)
class AsmOptions:
    """Options of ``nmpsim asm``."""

    source: InputFile = define_argument("PROG.s")
    device: InputFile | None = make_device_option("the NMP")
    output: OutputFile = make_output_option("PROG.bin", "The bundle to write.")


@define_command
def command(options: AsmOptions) -> None:
    """Assemble a bundle; the inverse of `nmpsim disasm --data`."""
    source, output = options.source, options.output
    check_outputs([output], [source, options.device])
    config = load_device(options.device)
    from nmpsim.bundle import parse_bundle
    from nmpsim.bundle.assembly import assemble
    from nmpsim.config import resolve_device

    text = read_text(source, "program", code="ASM001")
    image = assemble(text, str(source), resolve_device(config).settings()).build_bundle()
    parse_bundle(image, str(output))  # a bundle that cannot be loaded is not written
    write_file(output, image)
    print_message(f"wrote {output}: {len(image):,} bytes")
