"""``nmpsim device``: the numbers of a device, each with where it is from."""

from __future__ import annotations

from pathlib import Path

import click

from nmpsim.cli.options import FILE, Command, format_option, load_device, show


@click.command("device", cls=Command)
@click.argument("device", metavar="[D.toml]", type=FILE, required=False)
@format_option
def command(device: Path | None, style: str) -> None:
    """Show all settings of a device; without a file, those of the NMP."""
    from nmpsim.config import default_device
    from nmpsim.views.device_table import device_json, print_device

    config = load_device(device) or default_device()
    show(style, lambda: device_json(config), lambda console: print_device(config, console))
