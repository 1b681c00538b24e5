"""Loading a program, with a line for whoever waits at a terminal."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nmpsim.cli.guard import say

if TYPE_CHECKING:
    from nmpsim.bundle import Bundle
    from nmpsim.config import DeviceConfig

PATIENCE_SECONDS = 1.0
"""What takes no longer needs no word."""


def load_program(
    path: Path,
    patch: Path | None = None,
    *,
    device: DeviceConfig | None = None,
    inputs: Sequence[str] = (),
) -> Bundle:
    """As :func:`nmpsim.session.load`; if it lasts, a terminal is told what is waited for.

    ``inputs`` are arguments of ``--input``; a model's open dimensions are taken from the first
    array of each. Warnings about a model are printed.
    """
    from nmpsim import session

    with told_of_loading(path):
        if not session.is_model(path):
            return session.load(path, patch)
        from nmpsim.cli.inputs import sample_shapes

        shapes = sample_shapes(inputs)
        return session.load(path, patch, device=device, sample_shapes=shapes, warn=say_warning)


def say_warning(warning: str) -> None:
    """Print a warning about a model, once in a command."""
    context = click.get_current_context(silent=True)
    told = set() if context is None else context.meta.setdefault(__name__, set())
    if warning not in told:
        told.add(warning)
        say(f"warning: {warning}")


@contextmanager
def told_of_loading(path: Path) -> Iterator[None]:
    """While a file is read: if it lasts, a terminal is told so, once."""
    timer = threading.Timer(PATIENCE_SECONDS, _say_loading, (path,))
    timer.daemon = True
    if sys.stderr is not None and sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@functools.cache
def _say_loading(path: Path) -> None:
    with suppress(OSError):
        say(f"loading {path} ({path.stat().st_size / 1e6:,.0f} MB)")
