"""Loading of programs, with messages for a user who waits at a terminal."""

from __future__ import annotations

import functools
import shlex
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nmpsim.cli.guard import print_message

if TYPE_CHECKING:
    from nmpsim.bundle import Bundle, Metadata
    from nmpsim.config import DeviceConfig

ANNOUNCE_SECONDS = 1.0
"""Loading that takes longer is announced."""


def load_program(
    path: Path,
    patch: Path | None = None,
    *,
    device: DeviceConfig | None = None,
    inputs: Sequence[str] = (),
) -> Bundle:
    """Load a bundle or compile a model; print progress and warnings.

    ``inputs`` are arguments of ``--input``; a model's open dimensions are taken from the first
    array of each. Warnings about a model are printed.
    """
    from nmpsim import session

    with report_slow_loading(path):
        if not session.is_model(path):
            return session.load(path, patch)
        from nmpsim.cli.inputs import read_sample_shapes

        shapes = read_sample_shapes(inputs)
        return session.load(path, patch, device=device, sample_shapes=shapes, warn=print_warning)


def print_chain_note(bundle: Bundle, unchained: Bundle) -> None:
    """Print a note if ``unchained`` is another program because ``bundle`` has chains."""
    if unchained is not bundle:
        print_message(
            "note: compiled the program again without chains, which keep outputs of layers in"
            " scratchpads; the cycles differ from those with chains"
        )


def load_device(path: Path | None) -> DeviceConfig | None:
    """Load the device file of ``--device``, or return None if ``path`` is None."""
    if path is None:
        return None
    from nmpsim.config import load_device as load

    return load(path)


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings about a model, each once in a command."""
    for warning in warnings:
        print_warning(warning)


def print_warning(warning: str) -> None:
    """Print a warning about a model, once in a command."""
    context = click.get_current_context(silent=True)
    printed = set() if context is None else context.meta.setdefault(__name__, set())
    if warning not in printed:
        printed.add(warning)
        print_message(f"warning: {warning}")


def warn_if_unquantized(metadata: Metadata, model: Path) -> None:
    """Print a warning if no layer of a model is quantized."""
    from nmpsim.views.element_types import is_unquantized

    if is_unquantized(metadata):
        from nmpsim.views.inspect_text import NOTHING_QUANTIZED

        print_message(f"warning: {NOTHING_QUANTIZED}")
        command = f"nmpsim quantize {shlex.quote(str(model))} --calibration FILE -o NET.bin"
        print_message(f"  hint: Quantize the model with `{command}`.")


@contextmanager
def report_slow_loading(path: Path) -> Iterator[None]:
    """Print a message on a terminal if loading a file takes more than a second."""
    timer = threading.Timer(ANNOUNCE_SECONDS, _print_loading, (path,))
    timer.daemon = True
    if sys.stderr is not None and sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@functools.cache
def _print_loading(path: Path) -> None:
    with suppress(OSError):
        print_message(f"loading {path} ({path.stat().st_size / 1e6:,.0f} MB)")
