"""Names for what results depend on, so that results of different things are never mixed."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import nmpsim

_SEEN_ONLY = (
    "__main__.py",
    "checking",
    "cli",
    "debugger",
    "pytest_plugin.py",
    "tui",
    "views",
)
"""What shows, judges or looks into results and does not make them."""


@functools.cache
def code_version() -> str:
    """nmpsim's version and a digest of its sources: an edit may change what comes out."""
    return f"{nmpsim.__version__}+{digest_of_sources(Path(__file__).parents[1])[:8]}"


def digest_of_sources(root: Path) -> str:
    """Digest of the sources in a package's folder that make results; line ends do not count."""
    sources = [*root.rglob("*.py"), *root.rglob("*.toml")]
    names = {path.relative_to(root).as_posix(): path for path in sources}
    return digest_of(
        part
        for name in sorted(names)
        if name.split("/")[0] not in _SEEN_ONLY
        for part in (name.encode(), names[name].read_bytes().replace(b"\r\n", b"\n"))
    )


def digest_of(parts: Iterable[bytes | memoryview]) -> str:
    """SHA-256 of the parts, 16 hexadecimal digits; where one ends and the next begins counts."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.hexdigest()[:16]


def digest_of_network(
    outputs: Iterable[tuple[str, str, tuple[int, ...]]],
    layers: Iterable[tuple[str, str, tuple[int, ...]]],
) -> str:
    """Return what a network is known by, whatever its file and its layers are called.

    Parameters
    ----------
    outputs
        Name, element type and shape of each output of the program, in any order.
    layers
        Opcode, element type and shape of each layer, in their order.

    Returns
    -------
    str
        16 hexadecimal digits. Weights and scales do not count.
    """
    parts = (*sorted(outputs), ("layers", "", ()), *layers)
    return digest_of(repr((name, elem, list(shape))).encode() for name, elem, shape in parts)


def digest_of_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Digest of named arrays: names, types, shapes, values."""
    return digest_of(
        part
        for name, array in sorted(arrays.items())
        for part in (
            f"{name} {array.dtype.str} {array.shape}".encode(),
            np.ascontiguousarray(array).reshape(-1).view(np.uint8).data,
        )
    )
