"""What each arithmetic profile makes of an operation's factors: the words of its descriptor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import attrs
import numpy as np

from nmpsim.analysis.weighted import WEIGHTED, scales_of, values_of
from nmpsim.compiler.numerics import PROFILES, Bias, Profile, Sums, Words, effective
from nmpsim.compiler.resolve import place_of
from nmpsim.compiler.tiling.channelwise import average_of
from nmpsim.compiler.tiling.elementwise import BINARY
from nmpsim.compiler.work import Operation
from nmpsim.diagnostics import Place, UserError
from nmpsim.isa.profiles import PROFILES as DEVICE_PROFILES
from nmpsim.kernels.scale import IntegerScale
from nmpsim.lir.nodes import Module

Kind: TypeAlias = Literal["integers", "fixed point", "float32"]
"""integers: shift right, multiply, shift right. fixed point: shift left, times a multiplier of
2^-31, shift right. float32: the multiplier's bits."""

_INTEGERS = {"glow_int", "nmp"}
_PREFIXES = ("bias", "lhs", "rhs", "out", "leaky")


@attrs.frozen
class ProfileForm:
    """One factor as a profile has it."""

    stage: str
    kind: Kind
    forms: tuple[IntegerScale, ...]
    """One, or one a channel; of float32 ``mul`` holds the bits."""

    def values(self) -> tuple[float, ...]:
        """The real factors that the forms stand for."""
        return tuple(_value(self.kind, form) for form in self.forms)


def _value(kind: Kind, form: IntegerScale) -> float:
    if kind == "integers":
        return math.ldexp(form.mul, -form.pre - form.post)
    if kind == "fixed point":
        return math.ldexp(form.mul, form.pre - form.post - 31)
    return float(np.uint32(form.mul).view(np.float32))


@attrs.frozen
class ProfileFacts:
    """An operation in one profile."""

    name: str
    """As ``--numerics`` has it."""
    forms: tuple[ProfileForm, ...]
    refused: str = ""
    """Why the profile cannot do it; empty if it can."""


def profile_facts(module: Module, op: Operation) -> tuple[ProfileFacts, ...]:
    """The factors of a quantized operation in every profile; empty where nothing is rescaled."""
    ask = _question(module, op)
    if ask is None or any(view.type.quant is None for view in op.operands[:2]):
        return ()
    return tuple(_facts(name, op, ask) for name in PROFILES)


_Answer: TypeAlias = tuple[str, Mapping[str, tuple[IntegerScale, ...]]]
"""The descriptor's profile, and the forms of each stage."""
_Question: TypeAlias = Callable[[Profile], _Answer]


def _facts(name: str, op: Operation, ask: _Question) -> ProfileFacts:
    profile = PROFILES[effective(name, op)]
    try:
        device, stages = ask(profile)
    except UserError as error:
        problem = error.diagnostics[0]
        found = f": {problem.found}" if problem.found else ""
        return ProfileFacts(name, (), f"{problem.message}{found}")
    forms = (
        ProfileForm(stage, _kind(device, op), scales)
        for stage, scales in stages.items()
        if any(scale.mul for scale in scales)
    )
    return ProfileFacts(name, tuple(forms))


def _kind(device: str, op: Operation) -> Kind:
    if device in _INTEGERS or (device == "qnnpack" and op.instruction.opcode in BINARY):
        return "integers"
    return "fixed point" if device == "q31" else "float32"


def _question(module: Module, op: Operation) -> _Question | None:
    opcode, place = op.instruction.opcode, place_of(op.instruction, module.file)
    if opcode in WEIGHTED:
        sums = _sums(module, op)
    else:
        ask = _WORDS.get(opcode)
        return None if ask is None else lambda profile: _of_words(ask(profile, op, place))
    return None if sums is None else lambda profile: _of_sums(profile, sums)


def _sums(module: Module, op: Operation) -> Sums | None:
    """The layer's scales as the compiler hands them to a profile; a bias not known counts as 0."""
    scales = scales_of(module, op)
    if scales is None:
        return None
    target, source, _, view = op.operands[:4]
    channels = view.type.elements
    payload = values_of(module, view)
    one_each = np.ones(channels, np.float32)
    return Sums(
        source=source,
        target=target,
        weight_scales=one_each * scales.weights,
        by_channel=len(op.operands) > 4,
        bias=Bias(
            np.zeros(channels, view.type.dtype) if payload is None else payload.reshape(-1),
            one_each if scales.bias is None else one_each * scales.bias,
            np.broadcast_to(scales.bias_offsets, (channels,)),
        ),
        opcode=op.instruction.opcode,
        place=place_of(op.instruction, module.file),
    )


def _of_sums(profile: Profile, sums: Sums) -> _Answer:
    made = profile.sums(sums)
    several = slice(None) if sums.by_channel else slice(1)
    stages = {"bias": made.bias_scales[several], "out": made.out_scales[several]}
    return DEVICE_PROFILES[made.profile], stages


def _of_words(words: Words) -> _Answer:
    stages = {prefix: (_form(words, prefix),) for prefix in _PREFIXES if f"{prefix}_mul" in words}
    if words.get("result_scale"):
        stages["result"] = (IntegerScale(0, 0, words["result_scale"]),)
    return DEVICE_PROFILES[words["profile"]], stages


def _form(words: Words, prefix: str) -> IntegerScale:
    """The factor of a stage; where sums have no factor of their own, their shift belongs to it."""
    shift = 0 if "out_mul" in words else words.get("out_post", 0)
    post = words[f"{prefix}_post"] + shift
    return IntegerScale(words[f"{prefix}_pre"], post, words[f"{prefix}_mul"])


def _pair(profile: Profile, op: Operation, place: Place) -> Words:
    target, lhs, rhs = op.operands
    return profile.pair(op.instruction.opcode, (target, lhs, rhs), place)


def _matmul(profile: Profile, op: Operation, place: Place) -> Words:
    target, lhs, rhs = op.operands
    return profile.matmul(lhs, rhs, target, place)


def _unary(profile: Profile, op: Operation, place: Place) -> Words:
    target, source = op.operands
    alpha = op.instruction.attributes.get("Alpha")
    return profile.unary(source, target, None if alpha is None else float(str(alpha)), place)


def _average(profile: Profile, op: Operation, place: Place) -> Words:
    return profile.average(average_of(op, place))


_WORDS: dict[str, Callable[[Profile, Operation, Place], Words]] = {
    **dict.fromkeys(BINARY, _pair),
    **dict.fromkeys(("relu", "clip", "rescalequantized", "leakyrelu"), _unary),
    "matmul": _matmul,
    "avgpool": _average,
}
