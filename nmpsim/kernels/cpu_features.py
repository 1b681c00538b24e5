"""Which vector instructions the kernels use: the host's best, or what any host has.

Numba may be told to compile for another processor (``NUMBA_CPU_NAME``, ``NUMBA_CPU_FEATURES``), so
it is asked what it compiles for. All kinds of kernels give the same bytes.
"""

from __future__ import annotations

from numba.core.registry import cpu_target

from nmpsim.kernels.flavours import choose_flavour


def host_features() -> frozenset[str]:
    """Features of the processor that kernels are compiled for, as LLVM names them."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return frozenset(features.split(","))


FLAVOUR = choose_flavour(None, host_features())
"""What this process uses."""
