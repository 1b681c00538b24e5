"""Machine code in memory: object files and LLVM IR, loaded by LLVM without Numba."""

from __future__ import annotations

import sys

from llvmlite import binding

from nmpsim.kernels.host_cpu import initialize_llvm

ENTRY = "nmpsim_entry"
"""Name of the function for which an object file was compiled."""
_C_LIBRARY = ("memset", "memcpy", "memmove", "malloc", "free", "abort")
EXTERNAL_FUNCTIONS = frozenset(
    (*_C_LIBRARY, "SwitchToThread" if sys.platform == "win32" else "sched_yield")
)
"""Functions that an object file may call besides its own; every process has these."""

_engines: list[binding.ExecutionEngine] = []
"""Code stays in memory as long as its engine."""


def load_object_file(contents: bytes) -> int:
    """Load an object file; return the address of its entry, valid until the process ends."""
    initialize_llvm()
    machine = binding.Target.from_triple(binding.get_process_triple()).create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(contents))
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address(ENTRY))


def compile_function(module: str, name: str, cpu: str, features: str) -> int:
    """Compile an LLVM module; return a function's address, valid until the process ends."""
    target = binding.Target.from_default_triple()
    machine = target.create_target_machine(cpu=cpu, features=features)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(module), machine)
    _engines.append(engine)
    return int(engine.get_function_address(name))
