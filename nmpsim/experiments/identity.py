"""Digests that identify what results depend on, so that different results are never mixed."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import nmpsim
from nmpsim.arrays import Arrays, Shape
from nmpsim.diagnostics import UserError, fail

_SEEN_ONLY = (
    "__main__.py",
    "checking",
    "ckit",
    "cli",
    "debugger",
    "gdbserver",
    "pytest_plugin.py",
    "runtime",
    "torch_backend.py",
    "tui",
    "verification",
    "views",
)
"""Modules that show or judge results and do not compute them."""


def make_results_error(
    path: Path, message: str, found: object = None, expected: object = None
) -> UserError:
    """Return a UserError (RESULT001) about a results file that cannot be used."""
    return fail(
        "RESULT001",
        message,
        place=path,
        found=found,
        expected=expected,
        hint="Pass another file, or delete this one.",
    )


@functools.cache
def get_code_version() -> str:
    """Return nmpsim's version and a digest of its sources, such as ``0.1.0+0123abcd``."""
    return f"{nmpsim.__version__}+{compute_source_digest(Path(__file__).parents[1])[:8]}"


def compute_source_digest(root: Path) -> str:
    """Compute the digest of the source files of a package that compute results."""
    sources = [*root.rglob("*.py"), *root.rglob("*.toml")]
    names = {path.relative_to(root).as_posix(): path for path in sources}
    return compute_digest(
        part
        for name in sorted(names)
        if name.split("/")[0] not in _SEEN_ONLY
        for part in (name.encode(), names[name].read_bytes().replace(b"\r\n", b"\n"))
    )


def compute_digest(parts: Iterable[bytes | memoryview]) -> str:
    """Return the first 16 hexadecimal digits of a SHA-256 of all byte strings and their lengths."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.hexdigest()[:16]


def compute_network_digest(
    outputs: Iterable[tuple[str, str, Shape]],
    layers: Iterable[tuple[str, str, Shape]],
) -> str:
    """Compute a digest of a network's outputs and layers, independent of layer names and weights.

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
    return compute_digest(repr((name, elem, list(shape))).encode() for name, elem, shape in parts)


def compute_array_digest(arrays: Arrays) -> str:
    """Compute a digest of the names, dtypes, shapes and values of arrays."""
    return compute_digest(
        part
        for name, array in sorted(arrays.items())
        for part in (
            f"{name} {array.dtype.str} {array.shape}".encode(),
            np.ascontiguousarray(array).reshape(-1).view(np.uint8).data,
        )
    )
