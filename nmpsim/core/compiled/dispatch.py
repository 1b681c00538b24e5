"""The table of kernels: one function for each tensor instruction, compiled when first needed.

The event loop and the replay call a kernel by its address. So a program waits only for the kernels
that it uses.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from nmpsim.core.compiled.copies import do_load, do_store
from nmpsim.core.compiled.kernel_context import context_at, words_at
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
from nmpsim.core.decode import OP
from nmpsim.core.state import Int64s
from nmpsim.host_memory import check_compiling
from nmpsim.isa.table import INSTRUCTIONS, Kind, of_kind
from nmpsim.isa.total import check_total
from nmpsim.kernels.jit import is_cached, jit_cfunc, uncollected


def load(context: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.load`` on addresses."""
    do_load(context_at(context, core), words_at(words), layer)
    return 0


def store(context: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.store`` on addresses."""
    do_store(context_at(context, core), words_at(words), layer)
    return 0


def conv(context: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.conv`` on addresses."""
    do_conv(context_at(context, core), words_at(words), layer)
    return 0


def dwconv(context: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.dwconv`` on addresses."""
    do_dwconv(context_at(context, core), words_at(words), layer)
    return 0


def gemm(context: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.gemm`` on addresses."""
    do_gemm(context_at(context, core), words_at(words), layer)
    return 0


def maxpool(context: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.maxpool`` on addresses."""
    do_maxpool(context_at(context, core), words_at(words), layer)
    return 0


def avgpool(context: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.avgpool`` on addresses."""
    do_avgpool(context_at(context, core), words_at(words), layer)
    return 0


def eltwise(context: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.eltwise`` on addresses."""
    do_eltwise(context_at(context, core), words_at(words), layer)
    return 0


def rescale(context: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.rescale`` on addresses."""
    do_rescale(context_at(context, core), words_at(words), layer)
    return 0


def fill(context: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.fill`` on addresses."""
    do_fill(context_at(context, core), words_at(words), layer)
    return 0


def lut(context: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.lut`` on addresses."""
    do_lut(context_at(context, core), words_at(words), layer)
    return 0


def transpose(context: Any, core: Any, layer: Any, words: Any) -> Any:
    """``nmp.transpose`` on addresses."""
    do_transpose(context_at(context, core), words_at(words), layer)
    return 0


def _check(name: str, table: Iterable[int]) -> None:
    given = (INSTRUCTIONS[number].mnemonic for number in table)
    check_total(f"{__name__}.{name}", given, of_kind(Kind.TENSOR))


KERNELS: dict[int, Callable[..., Any]] = {
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
_check("KERNELS", KERNELS)
"""Instruction number -> function of addresses, which is compiled by itself."""
PYTHON_KERNELS: dict[int, Callable[..., Any]] = {
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
_check("PYTHON_KERNELS", PYTHON_KERNELS)
"""The same without compiling: functions of a kernel context, a descriptor and a layer."""


@functools.cache
def compiled_kernel(number: int) -> Any:
    """The compiled kernel of an instruction; this process keeps it."""
    return jit_cfunc(KERNELS[number])


def _no_wait() -> None:
    """There is no other process."""


class KernelTable:
    """The compiled kernels that were needed so far."""

    def __init__(self) -> None:
        self.addresses: Int64s = np.zeros(len(INSTRUCTIONS), np.int64)
        """[instructions] addresses of kernels; 0 for those that were not needed yet."""
        self.seconds = 0.0
        """Time spent on compiling, or on reading from the cache."""
        self.failure: BaseException | None = None
        """Why the last kernel could not be compiled."""
        self.when_compiling: Callable[[], None] | None = None
        """Called before something is compiled that is not in the cache."""
        self.wait_for_warmup: Callable[[], None] = _no_wait
        """Waits for another process that may be compiling the same."""
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(self._prepare)
        self.prepare = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        """Address of a function that compiles the kernel of an instruction."""

    def compile(self, number: int) -> None:
        """Compile the kernel of an instruction, or read it from the cache."""
        begin = time.perf_counter()
        self.announce(KERNELS[number])
        if not is_cached(KERNELS[number]):
            self.wait_for_warmup()
        with uncollected():
            self.addresses[number] = compiled_kernel(number).address
        self.seconds += time.perf_counter() - begin

    def announce(self, function: Callable[..., Any]) -> None:
        """Announce that a function is compiled, unless it is cached; MEM002 if it cannot be."""
        if is_cached(function):
            return
        check_compiling()
        if self.when_compiling:
            self.when_compiling()

    def _prepare(self, number: int) -> int:
        try:
            self.compile(number)
        except BaseException as error:  # raised again once compiled code has returned
            self.failure = error
        return 0
