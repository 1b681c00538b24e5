"""The table of kernels: one function for each tensor instruction, compiled when first needed.

The event loop and the replay call a kernel by its address. So a program waits only for the kernels
that it uses.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from nmpsim.core.compiled import copies, mac, vector
from nmpsim.core.compiled.kernel_context import context_at, words_at
from nmpsim.core.state import Int64s
from nmpsim.host_memory import check_compiling
from nmpsim.isa.table import INSTRUCTIONS, Kind, of_kind
from nmpsim.isa.total import total
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import is_cached, jit_cfunc, uncollected

KERNEL_OF = total(
    f"{__name__}.KERNEL_OF",
    {**copies.KERNELS, **mac.KERNELS, **vector.KERNELS},
    of_kind(Kind.TENSOR),
)
PYTHON_KERNELS: dict[int, Callable[..., Any]] = {
    number: KERNEL_OF[i.mnemonic] for number, i in enumerate(INSTRUCTIONS) if i.kind is Kind.TENSOR
}
"""Instruction number -> function of a kernel context, a descriptor and a layer."""


def _on_addresses(number: int) -> Callable[..., Any]:
    """The kernel of an instruction as a function of addresses."""
    kernel = PYTHON_KERNELS[number]

    def on_addresses(context: Int, core: Int, layer: Int, words: Int) -> Any:
        kernel(context_at(context, core), words_at(words), layer)
        return 0

    # Compiled code is kept by this name.
    on_addresses.__qualname__ = INSTRUCTIONS[number].mnemonic.removeprefix("nmp.")
    return on_addresses


KERNELS = {number: _on_addresses(number) for number in PYTHON_KERNELS}
"""Instruction number -> function of addresses, which is compiled by itself."""


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
