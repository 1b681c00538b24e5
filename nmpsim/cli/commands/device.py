"""``nmpsim device``: show the settings of a device and their sources."""

from __future__ import annotations

from nmpsim.cli.loading import load_device
from nmpsim.cli.options import FORMAT_OPTION, Format
from nmpsim.cli.output import write_result
from nmpsim.cli.parameters import InputFile, define_argument, define_command
from nmpsim.records import frozen


@frozen(kw_only=True)
class DeviceOptions:
    """Options of ``nmpsim device``."""

    device: InputFile | None = define_argument("[D.toml]")
    format: Format = FORMAT_OPTION


@define_command
def command(options: DeviceOptions) -> None:
    """Show all settings of a device; without a file, the settings of the NMP."""
    from nmpsim.config import resolve_device
    from nmpsim.views.device_table import DeviceDocument, print_device

    config = resolve_device(load_device(options.device))
    write_result(options.format, DeviceDocument, print_device, config)
