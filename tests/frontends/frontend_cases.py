"""Recorded cases of the front ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy.typing as npt

Array = npt.NDArray[Any]


@attrs.frozen(eq=False)
class RecordedModel:
    """Model file with recorded inputs and outputs in the model's order."""

    name: str
    model: Path
    inputs: list[Array]
    outputs: list[Array]


Operations = Callable[[str], list[RecordedModel]]
"""Function that returns the recorded cases of an operation and its types (``ADD_int8``)."""
