"""Rescale factors of an operation in each numerics profile, from the words of its descriptor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypedDict

import attrs
import numpy as np

from nmpsim.analysis.weighted import read_constant, read_weighted_scales
from nmpsim.compiler.numerics import (
    PROFILES,
    ProfileEncoder,
    WeightedLayerScales,
    Words,
    find_effective_profile,
)
from nmpsim.compiler.operations import Operation
from nmpsim.compiler.resolve import get_instruction_place
from nmpsim.compiler.tiling.elementwise import BINARY
from nmpsim.diagnostics import UserError
from nmpsim.isa.profiles import (
    FBGEMM,
    FLOAT64,
    ONEDNN,
    ROWS,
    ScaleForm,
    ScaleKind,
    ScaleWords,
    compute_real_factor,
    make_float64_scale,
)
from nmpsim.kernels.scale import IntegerScale
from nmpsim.lir.nodes import Module
from nmpsim.report.fields import NOT_IN_JSON, OR_NULL, JsonKey, WrittenBefore

PAIRS = frozenset(BINARY) | {"matmul"}
"""Opcodes with two quantized sources."""
UNARY = frozenset({"relu", "clip", "rescalequantized", "leakyrelu"})
"""Opcodes that rescale one source elementwise."""
_PREFIXES = ("bias", "lhs", "rhs", "out", "leaky")
_REAL_BIAS = (FBGEMM, ONEDNN)
"""Device profiles with real biases in channel records."""


class FormDocument(TypedDict):
    """JSON form of a factor in a numerics profile: its words and the value they represent."""

    pre: int
    mul: int
    post: int
    value: Annotated[float, "the real factor that these stand for"]


@attrs.frozen
class ProfileStage:
    """Stage of an operation in a numerics profile, with the words of its rescaling factors."""

    stage: str
    scale_form: Annotated[ScaleForm, NOT_IN_JSON]
    forms: Annotated[tuple[IntegerScale, ...], NOT_IN_JSON]
    """Words of the factors; for float32 ``mul`` has the bits."""

    @property
    def kind(self) -> Annotated[ScaleKind, WrittenBefore("scale_form")]:
        """Encoding that defines which factor the words represent."""
        return self.scale_form.kind

    @property
    def factor_documents(
        self,
    ) -> Annotated[list[FormDocument], JsonKey("factors"), WrittenBefore("scale_form")]:
        """JSON documents of the factors."""
        return [
            {"pre": scale.pre, "mul": scale.mul, "post": scale.post, "value": value}
            for scale, value in zip(self.forms, self.list_values(), strict=True)
        ]

    def list_values(self) -> tuple[float, ...]:
        """Return the real value of each factor of the stage that ``forms`` contains."""
        return tuple(compute_real_factor(self.kind, s.pre, s.mul, s.post) for s in self.forms)


@attrs.frozen
class ProfileRescalings:
    """Rescalings of an operation in a numerics profile, or why the profile rejects it."""

    name: Annotated[str, JsonKey("numerics")]
    """Name of the profile, as for ``--numerics``."""
    refused: Annotated[str | None, OR_NULL, "why the profile cannot do it; null if it can"] = ""
    forms: Annotated[tuple[ProfileStage, ...], JsonKey("stages")] = ()


def explain_profiles(module: Module, op: Operation) -> tuple[ProfileRescalings, ...]:
    """Explain an operation's rescalings in every profile; return () without rescalings."""
    opcode = op.instruction.opcode
    layer = read_weighted_scales(module, op)
    has_words = opcode in PAIRS | UNARY | {"avgpool"} or layer is not None
    if not has_words or any(view.type.quant is None for view in op.operands[:2]):
        return ()
    return tuple(_explain_profile(name, module, op, layer) for name in PROFILES)


def find_float_bias_forms(
    module: Module, op: Operation
) -> tuple[int, float, Mapping[str, float]] | None:
    """Find the largest float bias and its value in each profile; return None if not float.

    Returns
    -------
    tuple or None
        The channel, its bias, and by profile the value in the channel's record: an integer or, for
        fbgemm and onednn, a real number. None if the bias is not float or not known.
    """
    layer = read_weighted_scales(module, op)
    if layer is None or not layer.bias.is_float or read_constant(module, op.operands[3]) is None:
        return None
    channel = int(np.argmax(np.abs(layer.bias.real_values)))
    kept: dict[str, float] = {}
    for name in PROFILES:
        try:
            made = PROFILES[find_effective_profile(name, op)].make_requantization(layer)
        except UserError:
            continue
        word = made.bias[channel]
        is_real = made.profile in _REAL_BIAS
        kept[name] = float(word.view(np.float64)) if is_real else int(word)
    return channel, float(layer.bias.real_values[channel]), kept


def _explain_profile(
    name: str, module: Module, op: Operation, layer: WeightedLayerScales | None
) -> ProfileRescalings:
    profile = PROFILES[find_effective_profile(name, op)]
    try:
        if layer is None:
            number, stages = _read_words(
                profile.get_factor_words(op, get_instruction_place(op.instruction, module.file))
            )
        else:
            number, stages = _requantize(profile, layer)
    except UserError as error:
        problem = error.diagnostics[0]
        found = f": {problem.found}" if problem.found else ""
        return ProfileRescalings(name, f"{problem.message}{found}")
    forms = (
        ProfileStage(stage, ROWS[number].form, scales)
        for stage, scales in stages.items()
        if any(scale.mul for scale in scales)
    )
    return ProfileRescalings(name, forms=tuple(forms))


_Stages = tuple[int, Mapping[str, tuple[IntegerScale, ...]]]
"""Number of the device's profile, and the forms of each stage."""


def _requantize(profile: ProfileEncoder, layer: WeightedLayerScales) -> _Stages:
    made = profile.make_requantization(layer)
    several = slice(None) if layer.by_channel else slice(1)
    stages = {"bias": made.bias_scales[several], "out": made.out_scales[several]}
    if ROWS[made.profile].form is FLOAT64:
        pairs = zip(stages["out"], stages.pop("bias"), strict=True)
        stages["out"] = tuple(_join(out, bias) for out, bias in pairs)
    return made.profile, stages


def _join(out: IntegerScale, bias: IntegerScale) -> IntegerScale:
    pre, mul, post = make_float64_scale(
        (out.pre, out.mul, out.post), (bias.pre, bias.mul, bias.post)
    )
    return IntegerScale(pre, post, mul)


def _read_words(words: Words) -> _Stages:
    return words["profile"], {
        stage: (IntegerScale(pre, post, mul),)
        for stage, (pre, mul, post) in read_factors(words).items()
    }


def read_factors(words: Mapping[str, int]) -> Mapping[str, ScaleWords]:
    """Read the scale words of each stage, such as ``out``, from the words of a descriptor.

    A float64 factor is joined from its two halves; a shift that two sides share belongs to both.
    """
    form = ROWS[words["profile"]].form
    found = {
        prefix: (words[f"{prefix}_pre"], words[f"{prefix}_mul"], words[f"{prefix}_post"])
        for prefix in _PREFIXES
        if f"{prefix}_mul" in words
    }
    if form is FLOAT64 and "bias" in found:
        found["out"] = make_float64_scale(found["out"], found.pop("bias"))
    if form.has_common_shift:
        shift = words["out_post"]
        found = {name: (pre, mul, post + shift) for name, (pre, mul, post) in found.items()}
    if "result_scale" in words:
        found["result"] = (0, words["result_scale"], 0)
    return found
