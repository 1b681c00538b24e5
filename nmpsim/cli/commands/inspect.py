"""``nmpsim inspect``: what is in a bundle, or what a model would become."""

from __future__ import annotations

from pathlib import Path

import click

from nmpsim.cli.loading import say_warning, told_of_loading
from nmpsim.cli.options import FILE, Command, format_option, shapes_option, show


@click.command("inspect", cls=Command)
@click.argument("file", metavar="FILE", type=FILE)
@shapes_option
@format_option
def command(file: Path, shapes: dict[str, tuple[int, ...]], style: str) -> None:
    """Show what is in a bundle: inputs, outputs, where each layer runs, sizes.

    FILE may also be a model that `nmpsim compile` takes by itself; then it is compiled in memory.
    """
    from nmpsim import session
    from nmpsim.bundle import read_bundle
    from nmpsim.views.inspect_text import inspect_json, print_bundle

    if session.is_model(file):
        compiled = session.compile(file, input_shapes=shapes, slicing="simple")
        for warning in compiled.warnings:
            say_warning(warning)
        contents = compiled.bundle
    else:
        with told_of_loading(file):
            contents = read_bundle(file)
    show(style, lambda: inspect_json(contents), lambda console: print_bundle(contents, console))
