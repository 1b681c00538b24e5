"""Compiled functions that Python calls, and kernels that compiled code calls by their address.

Each is kept in a file, with all that it calls. Who finds it there imports neither Numba nor what
it is made of; both are imported where it has to be compiled.
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
from nmpsim.kernels.cache_folder import cache_folder
from nmpsim.kernels.cpu_features import PROCESSOR, TARGET
from nmpsim.kernels.machine_code import load_object_file
from nmpsim.kernels.numba_settings import IS_PLAIN, read_settings
from nmpsim.kernels.sources import source_digest

CACHE = cache_folder(
    f"kernels-{source_digest(TARGET)}", read_settings("NUMBA_CACHE_DIR").get("NUMBA_CACHE_DIR", "")
)
"""Where compiled kernels are kept; None if nothing can be."""
_LOCK = threading.RLock()
"""Held while something is compiled, or loaded."""

Source = Callable[[], Callable[..., Any]]


class _Kept:
    """A function in the cache."""

    def __init__(self, name: str, source: Source) -> None:
        self.name = name
        """Of the files: ``event_loop.run``."""
        self._source = source

    def is_kept(self) -> bool:
        """True if this or an earlier process has kept it compiled."""
        return CACHE is not None and CACHE.has(f"{self.name}-")

    def _code(self, kinds: tuple[Kind, ...] | int) -> bytes | None:
        """Its object file, of the cache or compiled now; None if Numba cannot make one."""
        made_for = f"{_named(kinds)} {PROCESSOR}"
        name = f"{self.name}-{hashlib.sha256(made_for.encode()).hexdigest()[:16]}.kernel"
        if CACHE is None:
            return self._compiled(kinds)
        code = CACHE.read(name)
        if code is None:
            with CACHE.locked(name):
                code = CACHE.read(name)  # another process may have compiled it meanwhile
                if code is None:
                    code = self._compiled(kinds)
                    if code is not None:
                        CACHE.write(name, code)
        return code

    def _compiled(self, kinds: tuple[Kind, ...] | int) -> bytes | None:
        from nmpsim.kernels.jit import compiled

        return compiled(self._source(), kinds)


class Entry(_Kept):
    """A function that Python calls with arrays, integers, and named tuples of both.

    Arrays lie in memory without gaps. It returns an integer.
    """

    def __init__(self, name: str, source: Source) -> None:
        super().__init__(name, source)
        self._known: dict[tuple[Kind, ...], Callable[..., int]] = {}

    def __call__(self, *arguments: Any) -> int:
        """Call it; nobody else may move the arrays meanwhile."""
        if IS_PLAIN:
            return int(self._source()(*arguments))
        words, kinds = _packed(arguments)
        native = self._known.get(kinds) or self._prepared(kinds)
        return native(words, arguments)

    def prepare(self, *arguments: Any) -> None:
        """Compile it for such arguments, or load it; nothing is called."""
        if not IS_PLAIN:
            _, kinds = _packed(arguments)
            self._prepared(kinds)

    def _prepared(self, kinds: tuple[Kind, ...]) -> Callable[..., int]:
        with _LOCK:
            if kinds not in self._known:
                self._known[kinds] = self._native(kinds)
            return self._known[kinds]

    def _native(self, kinds: tuple[Kind, ...]) -> Callable[..., int]:
        code = self._code(kinds)
        if code is None:
            from nmpsim.kernels.jit import as_numba_does

            dispatcher = as_numba_does(self._source())
            return lambda _, arguments: int(dispatcher(*arguments))
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(load_object_file(code))

        def call(words: list[int], _: tuple[Any, ...]) -> int:
            table = array("q", words)
            return int(function(table.buffer_info()[0]))

        return call


class Kernel(_Kept):
    """A function of 64-bit integers, which compiled code calls by its address."""

    def __init__(self, name: str, source: Source, arguments: int) -> None:
        super().__init__(name, source)
        self._arguments = arguments
        self._address = 0
        self._callback: Any = None

    def address(self) -> int:
        """Where its code is, as long as the process lives: of the cache, or compiled now."""
        with _LOCK:
            if not self._address:
                code = self._code(self._arguments)
                if code is None:
                    from nmpsim.kernels.jit import cfunc_of

                    self._callback = cfunc_of(self._source(), self._arguments)
                    self._address = self._callback.address
                else:
                    self._address = load_object_file(code)
            return self._address


def _packed(arguments: tuple[Any, ...]) -> tuple[list[int], tuple[Kind, ...]]:
    """The words that arguments are made of, and what they are."""
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


def _named(kinds: tuple[Kind, ...] | int) -> str:
    """What tells arguments of other kinds apart, the same in each process."""
    if isinstance(kinds, int):
        return str(kinds)
    return " ".join(
        kind.__qualname__ if isinstance(kind, type) else f"{kind[0].descr}{kind[1]}"
        for kind in kinds
    )


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
