"""``nmpsim device``: show the settings of a device and their sources."""

from __future__ import annotations

from nmpsim.cli.loading import load_device
from nmpsim.cli.options import Format, format_option
from nmpsim.cli.output import write_result
from nmpsim.cli.parameters import InputFile, argument, define_command
from nmpsim.records import frozen


@frozen(kw_only=True)
class Request:
    """Parameters of ``nmpsim device``."""

    device: InputFile | None = argument("[D.toml]")
    format: Format = format_option()


@define_command
def command(request: Request) -> None:
    """Show all settings of a device; without a file, those of the NMP."""
    from nmpsim.config import resolve_device
    from nmpsim.views.device_table import device_json, print_device

    config = resolve_device(load_device(request.device))
    write_result(
        request.format, lambda: device_json(config), lambda console: print_device(config, console)
    )
