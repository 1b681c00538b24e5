"""``nmpsim asm``: assembly text becomes a bundle."""

from __future__ import annotations

from pathlib import Path

import click

from nmpsim.atomic import write_file
from nmpsim.cli.files import check_outputs
from nmpsim.cli.guard import say
from nmpsim.cli.options import FILE, Command, device_option, load_device, output_option
from nmpsim.diagnostics import Place, fail


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
    image = assemble(_read_text(source), str(source), settings).bundle()
    bundle_from_bytes(image, str(output))  # what could not be loaded is not written
    write_file(output, lambda file: file.write(image))
    say(f"wrote {output}: {len(image):,} bytes")


def _read_text(path: Path) -> str:
    """The text, whatever its line ends; Python's universal newlines see to that."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        message = f"cannot read the program: {error.strerror or error}"
        raise fail("FILE001", message, place=Place(str(path))) from error
    except UnicodeDecodeError as error:
        raise fail(
            "ASM001",
            "the program is not text in UTF-8",
            place=Place(str(path), offset=error.start),
            found=f"byte {error.object[error.start]:#04x}",
        ) from error
