"""``nmpsim asm``: assembly text becomes a bundle."""

from __future__ import annotations

from pathlib import Path

import click

from nmpsim.atomic import write_file
from nmpsim.cli.files import check_outputs
from nmpsim.cli.guard import say
from nmpsim.cli.options import FILE, Command, device_option, load_device, output_option
from nmpsim.input_files import read_text


@click.command("asm", cls=Command)
@click.argument("source", metavar="PROG.s", type=FILE)
@device_option("the NMP (`nmpsim device`)")
@output_option("PROG.bin", "The bundle to write.", required=True)
def command(source: Path, device: Path | None, output: Path) -> None:
    """Assemble a program; the inverse of `nmpsim disasm --data`."""
    check_outputs([output], [source, device])
    config = load_device(device)
    from nmpsim.bundle import bundle_from_bytes
    from nmpsim.bundle.assembly import assemble
    from nmpsim.config import default_device

    settings = (config or default_device()).settings()
    text = read_text(source, "program", code="ASM001")
    image = assemble(text, str(source), settings).bundle()
    bundle_from_bytes(image, str(output))  # what could not be loaded is not written
    write_file(output, lambda file: file.write(image))
    say(f"wrote {output}: {len(image):,} bytes")
