"""Object files of compiled functions, loaded by LLVM alone: who only runs them needs no Numba."""

from __future__ import annotations

import sys

from llvmlite import binding

from nmpsim.kernels.target import initialize

ENTRY = "nmpsim_entry"
"""The function that an object file is there for."""
_C_LIBRARY = ("memset", "memcpy", "memmove", "malloc", "free", "abort")
KNOWN = frozenset((*_C_LIBRARY, "SwitchToThread" if sys.platform == "win32" else "sched_yield"))
"""What it may call besides its own functions: every process has these."""

_loaded: list[binding.ExecutionEngine] = []
"""Code lives as long as its engine."""


def load(contents: bytes) -> int:
    """Address of the entry of an object file, which stays in memory as long as the process."""
    initialize()
    machine = binding.Target.from_triple(binding.get_process_triple()).create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(contents))
    engine.finalize_object()
    _loaded.append(engine)
    return int(engine.get_function_address(ENTRY))
