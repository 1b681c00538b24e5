"""Which vector instructions the kernels use: the host's best, or what any host has.

Numba may be told to compile for another processor (``NUMBA_CPU_NAME``, ``NUMBA_CPU_FEATURES``), so
it is asked what it compiles for. ``NMPSIM_KERNELS`` forces one; all give the same bytes.
"""

from __future__ import annotations

import os

from numba.core.registry import cpu_target

from nmpsim.diagnostics import fail

SETTING = "NMPSIM_KERNELS"
FLAVOURS = {"vnni": ("+avx512f", "+avx512bw", "+avx512vnni"), "portable": ()}
"""Name -> features that it needs, the best one first."""


def host_features() -> frozenset[str]:
    """Features of the processor that kernels are compiled for, as LLVM names them."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return frozenset(features.split(","))


def choose_flavour(setting: str | None, features: frozenset[str]) -> str:
    """The flavour that is set, or else the best that the features allow.

    Raises ``UserError`` (ENV001) if there is none of that name, or if the host cannot run it.
    """
    possible = [name for name, needed in FLAVOURS.items() if features.issuperset(needed)]
    if not setting:
        return possible[0]
    if setting in possible:
        return setting
    known = setting in FLAVOURS
    raise fail(
        "ENV001",
        f"{SETTING} asks for instructions that this host lacks"
        if known
        else f"{SETTING} is set to an unknown kind of kernels",
        found=repr(setting),
        expected=" or ".join(possible),
        hint="unset it to have the best kernels for this host",
    )


FLAVOUR = choose_flavour(os.environ.get(SETTING), host_features())
"""What this process uses."""
