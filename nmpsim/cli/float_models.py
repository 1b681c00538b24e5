"""What is said of a float network where a quantized one is wanted."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from nmpsim.cli.guard import say

if TYPE_CHECKING:
    from nmpsim.bundle import Metadata


def say_if_float(metadata: Metadata, model: Path) -> None:
    """Warn that no layer is quantized, with the command that quantizes the model."""
    from nmpsim.views.elements import nothing_quantized
    from nmpsim.views.inspect_text import NOTHING_QUANTIZED

    if nothing_quantized(metadata):
        say(f"warning: {NOTHING_QUANTIZED}")
        command = f"nmpsim quantize {shlex.quote(str(model))} --calibration FILE -o NET.bin"
        say(f"  hint: quantize it first: {command}")
