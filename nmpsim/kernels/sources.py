"""What compiled code is made of, which names the folder that it is kept in."""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import version
from pathlib import Path

COMPILED_SOURCES = (
    "compiler/tiling/compiled/*.py",
    "core/compiled/*.py",
    "core/decode.py",
    "core/engine.py",
    "core/seen.py",
    "core/shown.py",
    "core/state.py",
    "core/stops.py",
    "isa/*.py",
    "kernels/*.py",
    "kernels/numba_internals/*.py",
    "memory/*.py",
    "timing/*.py",
)
"""What compiled code is made of, its constants included."""
COMPILERS = ("numpy", "numba", "llvmlite")
"""Packages on whose versions compiled code depends, too."""


def compiled_sources() -> list[Path]:
    """The files that COMPILED_SOURCES names."""
    root = Path(__file__).parents[1]
    return [path for pattern in COMPILED_SOURCES for path in sorted(root.glob(pattern))]


def source_digest(*chosen: str) -> str:
    """Digest of sources, of the compilers' versions, and of what was chosen for the host.

    It is the same in all environments of a machine that have the same of these.
    """
    made_of = (sys.implementation.cache_tag, *map(version, COMPILERS), *chosen)
    digest = hashlib.sha256(repr(made_of).encode())
    for path in compiled_sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
