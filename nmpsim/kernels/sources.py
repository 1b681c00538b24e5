"""Digest of the sources of compiled code, which names the folder of cached kernels."""

from __future__ import annotations

import functools
import hashlib
import sys
from importlib.util import find_spec
from pathlib import Path

from nmpsim.extras import make_missing_package_error

COMPILED_SOURCES = (
    "compiler/tiling/compiled/*.py",
    "core/compiled/*.py",
    "core/instruction_tables.py",
    "core/engine.py",
    "core/access_cache.py",
    "core/code_regions.py",
    "core/contract_events.py",
    "core/descriptor_data.py",
    "core/host_registers.py",
    "core/state.py",
    "core/stop_conditions.py",
    "core/watch.py",
    "isa/*.py",
    "isa/*.toml",
    "kernels/*.py",
    "kernels/numba_internals/*.py",
    "memory/*.py",
    "timing/*.py",
)
"""Patterns of the files that compiled code, with its constants, consists of."""
COMPILERS = ("numpy", "numba", "llvmlite")
"""Packages on whose versions compiled code depends."""


def list_compiled_sources() -> list[Path]:
    """Return the paths of all source files that compiled code depends on."""
    root = Path(__file__).parents[1]
    return [path for pattern in COMPILED_SOURCES for path in sorted(root.glob(pattern))]


def _installed_version(package: str) -> str:
    """Return a text that identifies an installed package's version, without importing the package.

    The name of its metadata folder contains the version. `importlib.metadata` supports all ways to
    install a package but takes longer than all the rest of a digest.

    Raises
    ------
    UserError
        PKG001 if the package is not installed.
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
        raise make_missing_package_error(package) from None


def compute_kernel_digest(*chosen: str) -> str:
    """Compute a digest of the kernel sources, the compilers' versions and the texts ``chosen``.

    All environments of a machine in which these are equal share it.
    """
    made_of = (
        sys.implementation.cache_tag,
        *map(_installed_version, COMPILERS),
        *chosen,
        _digest(),
    )
    return hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]


@functools.cache
def _digest() -> str:
    """Return the digest of the sources, which are read once."""
    digest = hashlib.sha256()
    for path in list_compiled_sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()
