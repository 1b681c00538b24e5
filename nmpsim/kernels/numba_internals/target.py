"""The processor that Numba compiles for."""

from __future__ import annotations

from numba.core.codegen import JITCPUCodegen
from numba.core.registry import cpu_target

from nmpsim.kernels.amx_features import without_refused
from nmpsim.kernels.arm_features import with_implied

_NEEDED = (JITCPUCodegen.magic_tuple,)


def target_features() -> frozenset[str]:
    """Features of the processor that kernels are compiled for, as LLVM names them."""
    triple, name, features = cpu_target.target_context.codegen().magic_tuple()
    return without_refused(with_implied(frozenset(features.split(",")), triple, name))
