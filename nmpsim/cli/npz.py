"""An ``.npz`` file as the debugger wants it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpsim.cli.arrays import ArrayFile

if TYPE_CHECKING:
    import numpy.typing as npt


class NpzFile:
    """Its arrays, each read when somebody wants it."""

    def __init__(self, path: Path) -> None:
        """Raises :class:`~nmpsim.diagnostics.UserError` FILE001 or INPUT003."""
        self._file = ArrayFile(path)

    @property
    def keys(self) -> Sequence[str]:
        """Names of the arrays."""
        return self._file.keys

    def read(self, key: str) -> npt.NDArray[Any]:
        """One of them."""
        return self._file.array(key).read()
