"""How kernels are compiled, and where compiled code is kept between processes."""

from __future__ import annotations

import atexit
import gc
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numba
import platformdirs
from numba.extending import register_jitable

from nmpsim.kernels.host import FLAVOUR
from nmpsim.kernels.parts import PartCompiler

_numba: Any = numba  # its types, where it ships any, do not know all that is used here
_F = TypeVar("_F", bound=Callable[..., Any])

COMPILED_SOURCES = (
    "core/compiled/*.py",
    "core/decode.py",
    "core/engine.py",
    "core/state.py",
    "core/stops.py",
    "isa/*.py",
    "kernels/*.py",
    "memory/*.py",
    "timing/*.py",
)
"""What compiled code is made of, its constants included."""


def compiled_sources() -> list[Path]:
    """The files that COMPILED_SOURCES names."""
    root = Path(__file__).parents[1]
    return [path for pattern in COMPILED_SOURCES for path in sorted(root.glob(pattern))]


def _source_digest() -> str:
    """Digest of all sources that compiled code is made of.

    Numba's cache notices an edit of the file that a function stands in, not of the files that the
    function calls into; so each state of the sources gets a folder of its own.
    """
    digest = hashlib.sha256(f"{numba.__version__} {FLAVOUR}".encode())
    for path in compiled_sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _is_writable(folder: Path) -> bool:
    """True if the folder is there, or can be made, and can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _choose_cache() -> Path:
    chosen = os.environ.get("NUMBA_CACHE_DIR") or platformdirs.user_cache_dir("nmpsim")
    folder = Path(chosen) / f"kernels-{_source_digest()}"
    if not _is_writable(folder):
        # A folder of this process alone: code from one that others can write is not to be run.
        folder = Path(tempfile.mkdtemp(prefix="nmpsim-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _numba.config.CACHE_DIR = str(folder)
    return folder


CACHE = _choose_cache()
"""Folder of compiled kernels."""


def is_cached(function: Callable[..., Any]) -> bool:
    """True if this or an earlier process has kept a function compiled."""
    module = function.__module__.split(".")[-1]
    return any(CACHE.rglob(f"{module}.{function.__qualname__}-*.nbi"))


_PART = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": PartCompiler,
}
"""An entry from Python would unpack the whole machine: most of compiling would be that."""


def jit(function: _F) -> _F:
    """Compile a function that only compiled code calls; integer arithmetic as NumPy's, no checks.

    It counts no references: counting those of the machine's arrays at every call would take longer
    than most calls. So it can neither make arrays nor return one.
    """
    compiled: _F = _numba.njit(**_PART, _nrt=False)(function)
    return compiled


def jit_allocating(function: _F) -> _F:
    """As ``jit``, for a function that makes arrays, and so counts references."""
    compiled: _F = _numba.njit(**_PART, _nrt=True)(function)
    return compiled


def jit_inlined(function: _F) -> _F:
    """As ``jit``, but compiled as a part of each caller; for a function that chooses an array."""
    compiled: _F = _numba.njit(**_PART, _nrt=False, inline="always")(function)
    return compiled


def jit_pure(function: Callable[..., Any]) -> None:
    """Make a plain Python function callable from compiled code, as a ``jit`` function is."""
    register_jitable(**_PART, _nrt=False)(function)


def jit_entry(function: _F) -> _F:
    """Compile a function that Python calls, and keep it with all that it calls in the cache."""
    compiled: _F = _numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled


def jit_apart(function: Callable[..., Any]) -> Any:
    """Compile a function of 64-bit integers, which compiled code calls by its ``address``, now.

    It is kept in the cache with all that it calls. The address is good as long as the answer lives.
    """
    count = function.__code__.co_argcount
    signature = _numba.int64(*[_numba.int64] * count)
    return _numba.cfunc(signature, cache=True, error_model="numpy")(function)


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection while much is compiled: Numba keeps most of what it makes."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
