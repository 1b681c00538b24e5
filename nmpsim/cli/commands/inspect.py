"""``nmpsim inspect``: show the contents of a bundle or a model."""

from __future__ import annotations

from nmpsim.cli.loading import announce_loading, print_warnings
from nmpsim.cli.options import Format, ShapeOptions, format_option
from nmpsim.cli.output import write_result
from nmpsim.cli.parameters import InputFile, argument, define_command
from nmpsim.records import frozen


@frozen(kw_only=True)
class Request:
    """Parameters of ``nmpsim inspect``."""

    file: InputFile = argument("FILE")
    shapes: ShapeOptions
    format: Format = format_option()


@define_command
def command(request: Request) -> None:
    """Show the contents of a bundle: inputs, outputs, where each layer runs, sizes.

    FILE may also be a model that `nmpsim compile` accepts; it is compiled in memory.
    """
    from nmpsim import session
    from nmpsim.bundle import read_bundle
    from nmpsim.views.inspect_text import inspect_json, print_bundle

    if session.is_model(request.file):
        compiled = session.compile(
            request.file, input_shapes=request.shapes.parse(), slicing="simple"
        )
        print_warnings(compiled.warnings)
        contents = compiled.bundle
    else:
        with announce_loading(request.file):
            contents = read_bundle(request.file)
    write_result(
        request.format,
        lambda: inspect_json(contents),
        lambda console: print_bundle(contents, console),
    )
