"""Numerics profiles: from the scales of a program to the words of descriptors.

:mod:`~nmpsim.compiler.numerics.profile` defines their interface,
:mod:`~nmpsim.compiler.numerics.ratios` the forms of a factor.
"""

from __future__ import annotations

from nmpsim.compiler.numerics.float import FloatEncoder
from nmpsim.compiler.numerics.glow import GlowEncoder, GlowIntEncoder, NmpEncoder
from nmpsim.compiler.numerics.profile import (
    ChannelBias,
    ProfileEncoder,
    Requantization,
    WeightedLayerScales,
    Words,
)
from nmpsim.compiler.numerics.q31 import Q31Encoder
from nmpsim.compiler.numerics.torch import QnnpackEncoder, TorchEncoder
from nmpsim.compiler.operations import Operation
from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.isa.profiles import DEFAULT_NUMERICS, NUMERICS_NAMES
from nmpsim.lir.opcode import HostProfiles
from nmpsim.lir.opcodes import OPCODES

_PROFILES: tuple[ProfileEncoder, ...] = (
    GlowIntEncoder("glow-int"),
    GlowEncoder("glow-float"),
    NmpEncoder("nmp"),
    Q31Encoder("q31"),
    FloatEncoder("float"),
    TorchEncoder("float-fbgemm"),
    QnnpackEncoder("float-qnnpack"),
    TorchEncoder("float-onednn"),
)
PROFILES: dict[str, ProfileEncoder] = make_exhaustive_table(
    f"{__name__}.PROFILES", {profile.name: profile for profile in _PROFILES}, NUMERICS_NAMES
)
"""Profiles by name, in the order of ``--numerics``."""

EXACT = frozenset({"cpumaxsplat", "softmax"}).union(
    name for name, row in OPCODES.items() if row.profiles is HostProfiles.EXACT
)
"""Operations with the same result in every profile; Int8 softmax is always Glow's."""


def find_effective_profile(numerics: str, op: Operation) -> str:
    """Return the name of the profile that computes an operation when ``numerics`` is requested.

    Of Glow's compiled kernels only the one that rescales supports Int16; its Interpreter has all.
    """
    wide = any(view.type.elem == "i16" for view in op.operands[:1])
    lacks = wide and op.instruction.opcode != "rescalequantized"
    return "glow-float" if numerics == "glow-int" and lacks else numerics


def get_profile(op: Operation) -> ProfileEncoder:
    """Return the encoder of an operation's numerics profile."""
    profile = PROFILES[find_effective_profile(op.numerics, op)]
    is_changed = op.factors and profile.name == op.numerics
    return profile.with_factors(op.factors) if is_changed else profile


def get_profile_name(op: Operation) -> str:
    """Return the name of an operation's profile, or '' if all profiles give the same result."""
    quantized = any(view.type.quant is not None for view in op.operands)
    if op.instruction.opcode in EXACT or not quantized:
        return ""
    return get_profile(op).name


__all__ = [
    "DEFAULT_NUMERICS",
    "EXACT",
    "PROFILES",
    "ChannelBias",
    "ProfileEncoder",
    "Requantization",
    "WeightedLayerScales",
    "Words",
    "find_effective_profile",
    "get_profile",
    "get_profile_name",
]
