"""Files of arrays, as a caller opens them for the debugger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt


class Arrays(Protocol):
    """A file of arrays by their names."""

    @property
    def keys(self) -> Sequence[str]:
        """Names of the arrays."""
        ...

    def read(self, key: str) -> npt.NDArray[Any]:
        """One of them."""
        ...


OpenArrays = Callable[[Path], Arrays]
"""Opens an ``.npz`` file that nobody vouches for."""
