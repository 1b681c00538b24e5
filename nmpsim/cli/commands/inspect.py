"""``nmpsim inspect``: show the contents of a bundle or a model."""

from __future__ import annotations

from nmpsim.cli.loading import print_warnings, report_slow_loading
from nmpsim.cli.options import FORMAT_OPTION, Format, ShapeOptions
from nmpsim.cli.output import write_result
from nmpsim.cli.parameters import InputFile, define_argument, define_command
from nmpsim.records import frozen


@frozen(kw_only=True)
class InspectOptions:
    """Options of ``nmpsim inspect``."""

    file: InputFile = define_argument("FILE")
    shapes: ShapeOptions
    format: Format = FORMAT_OPTION


@define_command
def command(options: InspectOptions) -> None:
    """Show the contents of a bundle: inputs, outputs, layers and sizes.

    FILE may also be a model that `nmpsim compile` accepts; it is compiled in memory.
    """
    from nmpsim import session
    from nmpsim.bundle import read_bundle
    from nmpsim.views.inspect_text import InspectDocument, print_bundle

    if session.is_model(options.file):
        compiled = session.compile(
            options.file, input_shapes=options.shapes.parse_shapes(), tiling="simple"
        )
        print_warnings(compiled.warnings)
        contents = compiled.bundle
    else:
        with report_slow_loading(options.file):
            contents = read_bundle(options.file)
    write_result(options.format, InspectDocument, print_bundle, contents)
