"""Rescale factors of an operation in each numerics profile, from the words of its descriptor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs
import numpy as np

from nmpsim.analysis.weighted import WEIGHTED, constant_values, layer_scales
from nmpsim.compiler.numerics import (
    PROFILES,
    AveragePool,
    Bias,
    Pair,
    Profile,
    WeightedScales,
    Words,
    effective_profile,
)
from nmpsim.compiler.operations import Operation
from nmpsim.compiler.resolve import instruction_place
from nmpsim.compiler.tiling.elementwise import BINARY
from nmpsim.diagnostics import Place, UserError
from nmpsim.isa.profiles import (
    FBGEMM,
    FLOAT64,
    ONEDNN,
    ROWS,
    ScaleForm,
    ScaleKind,
    float64_scale,
    real_factor,
)
from nmpsim.kernels.scale import IntegerScale
from nmpsim.lir.nodes import Module

_PREFIXES = ("bias", "lhs", "rhs", "out", "leaky")


@attrs.frozen
class ProfileForm:
    """A factor in a numerics profile."""

    stage: str
    scale_form: ScaleForm
    forms: tuple[IntegerScale, ...]
    """One form, or one per channel; for float32 ``mul`` has the bits."""

    @property
    def kind(self) -> ScaleKind:
        """Kind of the forms."""
        return self.scale_form.kind

    def values(self) -> tuple[float, ...]:
        """Real factors that the forms represent."""
        return tuple(real_factor(self.kind, s.pre, s.mul, s.post) for s in self.forms)


@attrs.frozen
class ProfileFacts:
    """An operation in a numerics profile."""

    name: str
    """Name of the profile, as for ``--numerics``."""
    forms: tuple[ProfileForm, ...]
    refused: str = ""
    """Why the profile refuses the operation; empty if it does not."""


def explain_profiles(module: Module, op: Operation) -> tuple[ProfileFacts, ...]:
    """Return the factors of a quantized operation in every profile; empty without rescaling."""
    ask = _question(module, op)
    if ask is None or any(view.type.quant is None for view in op.operands[:2]):
        return ()
    return tuple(_facts(name, op, ask) for name in PROFILES)


def find_float_bias_forms(
    module: Module, op: Operation
) -> tuple[int, float, Mapping[str, float]] | None:
    """Return the largest float bias and its form in each profile.

    The result is the channel, the bias, and the value in the channel's record of each profile: an
    integer or, for fbgemm and onednn, a real number. None if the bias is not float or not known.
    """
    sums = _sums(module, op) if op.instruction.opcode in WEIGHTED else None
    if sums is None or not sums.bias.is_float or constant_values(module, op.operands[3]) is None:
        return None
    channel = int(np.argmax(np.abs(sums.bias.reals)))
    kept: dict[str, float] = {}
    for name in PROFILES:
        try:
            made = PROFILES[effective_profile(name, op)].requantize(sums)
        except UserError:
            continue
        word = made.bias[channel]
        kept[name] = float(word.view(np.float64)) if made.profile in _REAL else int(word)
    return channel, float(sums.bias.reals[channel]), kept


_REAL = (FBGEMM, ONEDNN)
"""Device profiles with real biases in channel records."""

_Answer: TypeAlias = tuple[int, Mapping[str, tuple[IntegerScale, ...]]]
"""Number of the device's profile, and the forms of each stage."""
_Question: TypeAlias = Callable[[Profile], _Answer]


def _facts(name: str, op: Operation, ask: _Question) -> ProfileFacts:
    profile = PROFILES[effective_profile(name, op)]
    try:
        device, stages = ask(profile)
    except UserError as error:
        problem = error.diagnostics[0]
        found = f": {problem.found}" if problem.found else ""
        return ProfileFacts(name, (), f"{problem.message}{found}")
    forms = (
        ProfileForm(stage, ROWS[device].form, scales)
        for stage, scales in stages.items()
        if any(scale.mul for scale in scales)
    )
    return ProfileFacts(name, tuple(forms))


def _question(module: Module, op: Operation) -> _Question | None:
    opcode, place = op.instruction.opcode, instruction_place(op.instruction, module.file)
    if opcode in WEIGHTED:
        sums = _sums(module, op)
    else:
        ask = _WORDS.get(opcode)
        return None if ask is None else lambda profile: _of_words(ask(profile, op, place))
    return None if sums is None else lambda profile: _of_sums(profile, sums)


def _sums(module: Module, op: Operation) -> WeightedScales | None:
    """Return a layer's scales as the compiler passes them to a profile; an unknown bias is 0."""
    scales = layer_scales(module, op)
    if scales is None:
        return None
    target, source, _, view = op.operands[:4]
    channels = view.type.elements
    payload = constant_values(module, view)
    one_each = np.ones(channels, np.float32)
    return WeightedScales(
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
        place=instruction_place(op.instruction, module.file),
    )


def _of_sums(profile: Profile, sums: WeightedScales) -> _Answer:
    made = profile.requantize(sums)
    several = slice(None) if sums.by_channel else slice(1)
    stages = {"bias": made.bias_scales[several], "out": made.out_scales[several]}
    if ROWS[made.profile].form is FLOAT64:
        pairs = zip(stages["out"], stages.pop("bias"), strict=True)
        stages["out"] = tuple(_joined(out, bias) for out, bias in pairs)
    return made.profile, stages


def _joined(out: IntegerScale, bias: IntegerScale) -> IntegerScale:
    pre, mul, post = float64_scale((out.pre, out.mul, out.post), (bias.pre, bias.mul, bias.post))
    return IntegerScale(pre, post, mul)


def _of_words(words: Words) -> _Answer:
    stages = {prefix: (_form(words, prefix),) for prefix in _PREFIXES if f"{prefix}_mul" in words}
    if words.get("result_scale"):
        stages["result"] = (IntegerScale(0, 0, words["result_scale"]),)
    return words["profile"], stages


def _form(words: Words, prefix: str) -> IntegerScale:
    """Return the factor of a stage, including a shift that both sides share."""
    has_common_shift = ROWS[words["profile"]].form.has_common_shift
    shift = words["out_post"] if has_common_shift else 0
    post = words[f"{prefix}_post"] + shift
    return IntegerScale(words[f"{prefix}_pre"], post, words[f"{prefix}_mul"])


def _pair(profile: Profile, op: Operation, place: Place) -> Words:
    target, lhs, rhs = op.operands
    pair = Pair(op.instruction.opcode, target, lhs, rhs, place, op.is_unsigned)
    return profile.pair_words(pair)


def _matmul(profile: Profile, op: Operation, place: Place) -> Words:
    target, lhs, rhs = op.operands
    return profile.matmul_words(Pair(op.instruction.opcode, target, lhs, rhs, place))


def _unary(profile: Profile, op: Operation, place: Place) -> Words:
    target, source = op.operands
    return profile.unary_words(source, target, op.number("Alpha"), place)


def _average(profile: Profile, op: Operation, place: Place) -> Words:
    return profile.average_words(AveragePool.from_operation(op, place))


_WORDS: dict[str, Callable[[Profile, Operation, Place], Words]] = {
    **dict.fromkeys(BINARY, _pair),
    **dict.fromkeys(("relu", "clip", "rescalequantized", "leakyrelu"), _unary),
    "matmul": _matmul,
    "avgpool": _average,
}
