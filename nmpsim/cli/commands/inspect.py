"""``nmpsim inspect``: what is in a bundle."""

from __future__ import annotations

from pathlib import Path

import click

from nmpsim.cli.options import Command, bundle_argument, format_option, show


@click.command("inspect", cls=Command, short_help="Show what is in a bundle.")
@bundle_argument
@format_option
def command(bundle: Path, style: str) -> None:
    """Show what is in a bundle: inputs, outputs, where each layer runs, sizes."""
    from nmpsim.bundle import read_bundle
    from nmpsim.views.inspect_text import inspect_json, print_bundle

    contents = read_bundle(bundle)
    show(style, lambda: inspect_json(contents), lambda console: print_bundle(contents, console))
