"""What a recorded case of a front end is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy.typing as npt

Array = npt.NDArray[Any]


@attrs.frozen(eq=False)
class Recorded:
    """One model, its inputs and answers in the model's order."""

    name: str
    model: Path
    inputs: list[Array]
    outputs: list[Array]
