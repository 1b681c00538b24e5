"""The processor that Numba compiles for."""

from __future__ import annotations

from numba.core.codegen import JITCPUCodegen
from numba.core.registry import cpu_target

_NEEDED = (JITCPUCodegen.magic_tuple,)


def target_features() -> frozenset[str]:
    """Features of the processor that kernels are compiled for, as LLVM names them."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return frozenset(features.split(","))
