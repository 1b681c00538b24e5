"""Compiled functions that Python calls, and kernels that compiled code calls by their address.

Each is cached in a file, with all functions that it calls. A process that finds it there imports
neither Numba nor the modules of the function.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import index
from typing import Any

import numpy as np

from nmpsim.kernels.array_types import Kind
from nmpsim.kernels.cache_folder import open_cache_folder
from nmpsim.kernels.cpu_features import PROCESSOR, TARGET
from nmpsim.kernels.machine_code import load_object_file
from nmpsim.kernels.numba_settings import IS_JIT_DISABLED, read_settings
from nmpsim.kernels.sources import compute_kernel_digest

CACHE = open_cache_folder(
    f"kernels-{compute_kernel_digest(TARGET)}",
    read_settings("NUMBA_CACHE_DIR").get("NUMBA_CACHE_DIR", ""),
)
"""Folder of compiled kernels; None if nothing can be cached."""
_LOCK = threading.RLock()
"""Held while something is compiled or loaded."""

Source = Callable[[], Callable[..., Any]]


class _CachedFunction:
    """A compiled function in the cache."""

    def __init__(self, name: str, source: Source) -> None:
        self.name = name
        """Name of the kernel in file names: ``event_loop.run``."""
        self._source = source

    def is_cached(self) -> bool:
        """Return whether this process or an earlier one has cached it."""
        return CACHE is not None and CACHE.has_entry_with_prefix(f"{self.name}-")

    def _code(self, kinds: tuple[Kind, ...] | int) -> bytes | None:
        """Return its object file, cached or compiled now; None if Numba cannot make one."""
        made_for = f"{_describe_kinds(kinds)} {PROCESSOR}"
        name = f"{self.name}-{hashlib.sha256(made_for.encode()).hexdigest()[:16]}.kernel"
        if CACHE is None:
            return self._compiled(kinds)
        code = CACHE.read(name)
        if code is None:
            with CACHE.lock_entry(name):
                code = CACHE.read(name)  # another process may have compiled it meanwhile
                if code is None:
                    code = self._compiled(kinds)
                    if code is not None:
                        CACHE.write(name, code)
        return code

    def _compiled(self, kinds: tuple[Kind, ...] | int) -> bytes | None:
        from nmpsim.kernels.jit import compile_object_file

        return compile_object_file(self._source(), kinds)


class CompiledEntry(_CachedFunction):
    """Compiled function that Python calls with integers, contiguous arrays and named tuples.

    Arrays must be contiguous. It returns an integer.
    """

    def __init__(self, name: str, source: Source) -> None:
        super().__init__(name, source)
        self._known: dict[tuple[Kind, ...], Callable[..., int]] = {}

    def __call__(self, *arguments: Any) -> int:
        """Call the function; no other thread may move the arrays meanwhile."""
        if IS_JIT_DISABLED:
            return int(self._source()(*arguments))
        words, kinds = _pack_arguments(arguments)
        native = self._known.get(kinds) or self._prepared(kinds)
        return native(words, arguments)

    def compile_for(self, *arguments: Any) -> None:
        """Compile or load the function for the types of ``arguments`` without calling it."""
        if not IS_JIT_DISABLED:
            _, kinds = _pack_arguments(arguments)
            self._prepared(kinds)

    def _prepared(self, kinds: tuple[Kind, ...]) -> Callable[..., int]:
        with _LOCK:
            if kinds not in self._known:
                self._known[kinds] = self._native(kinds)
            return self._known[kinds]

    def _native(self, kinds: tuple[Kind, ...]) -> Callable[..., int]:
        code = self._code(kinds)
        if code is None:
            from nmpsim.kernels.jit import compile_with_numba

            dispatcher = compile_with_numba(self._source())
            return lambda _, arguments: int(dispatcher(*arguments))
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(load_object_file(code))

        def call(words: list[int], _: tuple[Any, ...]) -> int:
            table = array("q", words)
            return int(function(table.buffer_info()[0]))

        return call


class AddressedKernel(_CachedFunction):
    """Compiled function of 64-bit integers that other compiled code calls by its address."""

    def __init__(self, name: str, source: Source, arguments: int) -> None:
        super().__init__(name, source)
        self._arguments = arguments
        self._address = 0
        self._callback: Any = None

    def address(self) -> int:
        """Compile or load the code and return its address, valid until the process ends."""
        with _LOCK:
            if not self._address:
                code = self._code(self._arguments)
                if code is None:
                    from nmpsim.kernels.jit import make_cfunc

                    self._callback = make_cfunc(self._source(), self._arguments)
                    self._address = self._callback.address
                else:
                    self._address = load_object_file(code)
            return self._address


def _pack_arguments(arguments: tuple[Any, ...]) -> tuple[list[int], tuple[Kind, ...]]:
    """Return the 64-bit words of arguments, and their types."""
    words: list[int] = []
    kinds: list[Kind] = []
    _pack(arguments, words, kinds)
    return words, tuple(kinds)


def _pack(values: tuple[Any, ...], words: list[int], kinds: list[Kind]) -> None:
    for value in values:
        if isinstance(value, np.ndarray):
            if not value.flags.c_contiguous:
                raise ValueError("a kernel was given an array with gaps")
            words.append(value.ctypes.data)
            words += value.shape
            kinds.append((value.dtype, value.ndim))
        elif isinstance(value, tuple):
            kinds.append(type(value))
            _pack(value, words, kinds)
        else:
            words.append(index(value))
            kinds.append(int)


def _describe_kinds(kinds: tuple[Kind, ...] | int) -> str:
    """Return a text that identifies the types of arguments, the same in each process."""
    if isinstance(kinds, int):
        return str(kinds)
    return " ".join(
        kind.__qualname__ if isinstance(kind, type) else f"{kind[0].descr}{kind[1]}"
        for kind in kinds
    )


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Disable garbage collection in a context, because Numba keeps most objects it creates."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
