"""Types of arrays and shapes in signatures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
"""NumPy array of any dtype and shape."""
Arrays: TypeAlias = Mapping[str, Array]
"""Arrays by name."""
Shape: TypeAlias = tuple[int, ...]
"""Sizes of an array's or tensor's dimensions."""
