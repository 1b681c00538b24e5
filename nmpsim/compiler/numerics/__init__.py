"""Whose arithmetic a layer follows: from the scales in a program to the words of descriptors.

One module for each row of ``NUMERICS``; ``profile.py`` says what it is asked, ``glow.py`` and
``torch.py`` have what several share, ``ratios.py`` the forms in which a factor is carried.
"""

from __future__ import annotations

from importlib import import_module

from nmpsim.compiler.numerics.profile import Average, Bias, Profile, Requantization, Sums, Words
from nmpsim.compiler.operations import Operation
from nmpsim.isa.profiles import DEFAULT_NUMERICS, NUMERICS
from nmpsim.kernels.hostops import MOVES_OR_COMPARES

PROFILES: dict[str, Profile] = {
    row.name: import_module(f"{__name__}.{row.module}").PROFILE for row in NUMERICS
}
"""Name, as ``--numerics`` has it -> profile, that of the module with its name."""

EXACT = MOVES_OR_COMPARES | frozenset(
    {
        "copy",
        "transpose",
        "inserttensor",
        "extracttensor",
        "touch",
        "maxpool",
        "maxpoolwithargmax",
        "cpumaxsplat",
        "intlookuptable",
        "resizenearest",
        "softmax",
        "dequantize",
    }
)
"""Operations whose answer no profile changes; Int8 softmax is always Glow's."""


def effective_profile(numerics: str, op: Operation) -> str:
    """The profile that an operation takes where ``numerics`` is asked for.

    Of Glow's compiled kernels only the one that rescales knows Int16; its Interpreter has all.
    """
    wide = any(view.type.elem == "i16" for view in op.operands[:1])
    lacks = wide and op.instruction.opcode != "rescalequantized"
    return "glow-float" if numerics == "glow-int" and lacks else numerics


def get_profile(op: Operation) -> Profile:
    """The arithmetic of an operation."""
    return PROFILES[effective_profile(op.numerics, op)]


def profile_name(op: Operation) -> str:
    """The profile of an operation for a report; empty where none applies."""
    quantized = any(view.type.quant is not None for view in op.operands)
    if op.instruction.opcode in EXACT or not quantized:
        return ""
    return get_profile(op).name


__all__ = [
    "DEFAULT_NUMERICS",
    "EXACT",
    "PROFILES",
    "Average",
    "Bias",
    "Profile",
    "Requantization",
    "Sums",
    "Words",
    "effective_profile",
    "profile_name",
    "get_profile",
]
