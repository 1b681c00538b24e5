"""The values of each tensor instruction: code that is compiled apart, when it is first needed.

A program needs a few instructions only: what it does not use, it does not wait for.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from nmpsim.core.compiled.copies import do_load, do_store
from nmpsim.core.compiled.mac import do_conv, do_dwconv, do_gemm
from nmpsim.core.compiled.vector import (
    do_avgpool,
    do_eltwise,
    do_fill,
    do_lut,
    do_maxpool,
    do_rescale,
    do_transpose,
)
from nmpsim.core.compiled.workplace import words_at, workplace_at
from nmpsim.core.decode import OP
from nmpsim.core.state import Int64s
from nmpsim.host_memory import check_compiling
from nmpsim.isa.table import INSTRUCTIONS, Kind, of_kind
from nmpsim.isa.total import check_total
from nmpsim.kernels.jit import is_cached, jit_apart, uncollected


def load(places: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.load`` on addresses."""
    do_load(workplace_at(places, core), words_at(words), layer)
    return 0


def store(places: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.store`` on addresses."""
    do_store(workplace_at(places, core), words_at(words), layer)
    return 0


def conv(places: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.conv`` on addresses."""
    do_conv(workplace_at(places, core), words_at(words), layer)
    return 0


def dwconv(places: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.dwconv`` on addresses."""
    do_dwconv(workplace_at(places, core), words_at(words), layer)
    return 0


def gemm(places: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.gemm`` on addresses."""
    do_gemm(workplace_at(places, core), words_at(words), layer)
    return 0


def maxpool(places: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.maxpool`` on addresses."""
    do_maxpool(workplace_at(places, core), words_at(words), layer)
    return 0


def avgpool(places: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.avgpool`` on addresses."""
    do_avgpool(workplace_at(places, core), words_at(words), layer)
    return 0


def eltwise(places: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.eltwise`` on addresses."""
    do_eltwise(workplace_at(places, core), words_at(words), layer)
    return 0


def rescale(places: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.rescale`` on addresses."""
    do_rescale(workplace_at(places, core), words_at(words), layer)
    return 0


def fill(places: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.fill`` on addresses."""
    do_fill(workplace_at(places, core), words_at(words), layer)
    return 0


def lut(places: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.lut`` on addresses."""
    do_lut(workplace_at(places, core), words_at(words), layer)
    return 0


def transpose(places: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.transpose`` on addresses."""
    do_transpose(workplace_at(places, core), words_at(words), layer)
    return 0


def _check(name: str, table: Iterable[int]) -> None:
    given = (INSTRUCTIONS[number].mnemonic for number in table)
    check_total(f"{__name__}.{name}", given, of_kind(Kind.TENSOR))


APART: dict[int, Callable[..., Any]] = {
    OP.nmp_load: load,
    OP.nmp_store: store,
    OP.nmp_conv: conv,
    OP.nmp_dwconv: dwconv,
    OP.nmp_gemm: gemm,
    OP.nmp_maxpool: maxpool,
    OP.nmp_avgpool: avgpool,
    OP.nmp_eltwise: eltwise,
    OP.nmp_rescale: rescale,
    OP.nmp_fill: fill,
    OP.nmp_lut: lut,
    OP.nmp_transpose: transpose,
}
_check("APART", APART)
"""Instruction number -> function that is compiled apart."""
UNCOMPILED: dict[int, Callable[..., Any]] = {
    OP.nmp_load: do_load,
    OP.nmp_store: do_store,
    OP.nmp_conv: do_conv,
    OP.nmp_dwconv: do_dwconv,
    OP.nmp_gemm: do_gemm,
    OP.nmp_maxpool: do_maxpool,
    OP.nmp_avgpool: do_avgpool,
    OP.nmp_eltwise: do_eltwise,
    OP.nmp_rescale: do_rescale,
    OP.nmp_fill: do_fill,
    OP.nmp_lut: do_lut,
    OP.nmp_transpose: do_transpose,
}
_check("UNCOMPILED", UNCOMPILED)
"""The same where nothing is compiled: functions of a workplace, a descriptor and a layer."""


@functools.cache
def compiled_apart(number: int) -> Any:
    """What is compiled for an instruction; this process keeps it."""
    return jit_apart(APART[number])


def _no_wait() -> None:
    """There is no other process."""


class Apart:
    """The compiled code of tensor instructions, as far as it was needed."""

    def __init__(self) -> None:
        self.addresses: Int64s = np.zeros(len(INSTRUCTIONS), np.int64)
        """[instructions] of their code; 0 for what was not needed yet."""
        self.seconds = 0.0
        """What compiling it, or reading it from the cache, took."""
        self.failure: BaseException | None = None
        """Why the last one could not be compiled."""
        self.when_compiling: Callable[[], None] | None = None
        """Called before something is compiled that no process has kept."""
        self.wait_beside: Callable[[], None] = _no_wait
        """Waits for another process that may be compiling the same."""
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(self._prepare)
        self.prepare = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        """Address of a function that compiles what an instruction needs."""

    def compile(self, number: int) -> None:
        """Compile what an instruction needs, or read it from the cache."""
        begin = time.perf_counter()
        self.announce(APART[number])
        if not is_cached(APART[number]):
            self.wait_beside()
        with uncollected():
            self.addresses[number] = compiled_apart(number).address
        self.seconds += time.perf_counter() - begin

    def announce(self, function: Callable[..., Any]) -> None:
        """Say that a function is compiled, if no process has kept it; MEM002 if it cannot be."""
        if is_cached(function):
            return
        check_compiling()
        if self.when_compiling:
            self.when_compiling()

    def _prepare(self, number: int) -> int:
        try:
            self.compile(number)
        except BaseException as error:  # it is raised again behind compiled code
            self.failure = error
        return 0
