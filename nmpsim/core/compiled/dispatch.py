"""The table of kernels, one function for each tensor instruction, compiled when first needed.

The event loop and the replay call a kernel by its address, so a program waits only for the kernels
that it uses.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import numpy as np

from nmpsim.core.compiled.entries import KERNELS
from nmpsim.core.engine import Compilation
from nmpsim.core.state import Int64s
from nmpsim.host_memory import check_compile_memory
from nmpsim.isa.table import INSTRUCTIONS
from nmpsim.kernels.entries import AddressedKernel, CompiledEntry, pause_garbage_collection


def _no_wait() -> None:
    pass


class KernelTable:
    """Table of kernel addresses; each kernel is compiled at its first use."""

    def __init__(self, compilation: Compilation | None = None) -> None:
        self.compilation = compilation or Compilation()
        self.addresses: Int64s = np.zeros(len(INSTRUCTIONS), np.int64)
        """[instructions] addresses of kernels; 0 for those that were not needed yet."""
        self.failure: BaseException | None = None
        """Exception of the last kernel that could not be compiled."""
        self.wait_for_warmup: Callable[[], None] = _no_wait
        """Waits for another process that may be compiling the same kernels."""
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(self._prepare)
        self.prepare = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        """Address of a function that compiles the kernel of an instruction."""

    def compile(self, number: int) -> None:
        """Compile the kernel of an instruction, or load it from the cache; store its address."""
        begin = time.perf_counter()
        kernel = KERNELS[number]
        self.notify_compiling(kernel)
        if not kernel.is_cached():
            self.wait_for_warmup()
        with pause_garbage_collection():
            self.addresses[number] = kernel.address()
        self.compilation.seconds += time.perf_counter() - begin

    def notify_compiling(self, function: CompiledEntry | AddressedKernel) -> None:
        """Notify the listener unless ``function`` is cached; raise UserError if memory is short."""
        if function.is_cached():
            return
        check_compile_memory()
        if self.compilation.listener:
            self.compilation.listener()

    def _prepare(self, number: int) -> int:
        try:
            self.compile(number)
        except BaseException as error:  # raised again once compiled code has returned
            self.failure = error
        return 0
