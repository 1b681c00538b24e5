"""What compiled code is made of, which names the folder that it is kept in."""

from __future__ import annotations

import functools
import hashlib
import sys
from importlib.util import find_spec
from pathlib import Path

from nmpsim.extras import incomplete

COMPILED_SOURCES = (
    "compiler/tiling/compiled/*.py",
    "core/compiled/*.py",
    "core/instruction_tables.py",
    "core/engine.py",
    "core/access_cache.py",
    "core/contract_events.py",
    "core/state.py",
    "core/stop_conditions.py",
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


def _version(package: str) -> str:
    """What tells an installed package's versions apart; it need not be imported for that.

    PKG001 if it is not installed.

    Its folder of metadata is named by its version. `importlib.metadata` says the same, of any way
    to install a package, but takes longer than all the rest of a digest.
    """
    spec = find_spec(package)
    if spec is not None and spec.origin is not None:
        site = Path(spec.origin).parents[1]
        if names := sorted(path.name for path in site.glob(f"{package}-*.dist-info")):
            return ", ".join(names)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        raise incomplete(package) from None


def source_digest(*chosen: str) -> str:
    """Digest of sources, of the compilers' versions, and of what was chosen for the host.

    It is the same in all environments of a machine that have the same of these.
    """
    made_of = (sys.implementation.cache_tag, *map(_version, COMPILERS), *chosen, _digest())
    return hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]


@functools.cache
def _digest() -> str:
    """Of the sources, which are read once."""
    digest = hashlib.sha256()
    for path in compiled_sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()
