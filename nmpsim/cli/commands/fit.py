"""``nmpsim fit``: adjust assumed settings of a device file to measured cycles of layers."""

from __future__ import annotations

from nmpsim.cli.guard import print_message
from nmpsim.cli.loading import load_device
from nmpsim.cli.options import FORMAT_OPTION, Format, make_output_option
from nmpsim.cli.output import check_outputs, show_progress, write_result, write_text
from nmpsim.cli.parameters import InputFile, OutputFile, define_argument, define_command
from nmpsim.config import resolve_device
from nmpsim.records import frozen


@frozen(kw_only=True)
class FitOptions:
    """Options of ``nmpsim fit``."""

    device: InputFile = define_argument("D.toml")
    measured: InputFile = define_argument("MEASURED.csv")
    format: Format = FORMAT_OPTION
    output: OutputFile = make_output_option("FITTED.toml", "The fitted device file.")


@define_command
def command(options: FitOptions) -> None:
    """Fit the assumed settings of a device file to measured cycles of layers.

    MEASURED.csv has the columns program, layer and cycles. Settings that the measurements determine
    become measured; the others stay assumed. The command names the layers to measure next.

    \b
      nmpsim fit D.toml MEASURED.csv -o FITTED.toml
    """
    check_outputs([options.output], [options.device, options.measured])
    from nmpsim.fitting.device_text import format_device_file
    from nmpsim.fitting.fit import FitResult, fit_device
    from nmpsim.fitting.measurements import read_measurements
    from nmpsim.views.fit_text import print_fit

    device = resolve_device(load_device(options.device))
    measurements = read_measurements(options.measured)
    with show_progress() as progress:
        result = fit_device(device, measurements, progress)
    write_text(format_device_file(result.device, result.make_notes()), options.output)
    print_message(f"wrote {options.output}")
    write_result(options.format, FitResult, print_fit, result)
