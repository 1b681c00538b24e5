"""The integers of a program's rescalings compared with what its LIR's scales ask for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs
import numpy as np

from nmpsim.analysis.explain import LayerFacts, ProfileForm, explain_layers
from nmpsim.bundle.metadata import Layer
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.mac import scale_tables
from nmpsim.core.reference.operands import Scratchpad
from nmpsim.core.state import Machine
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.instructions import Done
from nmpsim.isa.profiles import FLOAT64, INTEGER, ROWS, ScaleKind, ScaleWords, float64_scale
from nmpsim.kernels.scale import IntegerScale
from nmpsim.lir.nodes import Module

RESULT = "result"
"""The stage whose factor is the word result_scale."""


@attrs.frozen
class ChannelAudit:
    """A factor of one channel, or the one of all."""

    channel: int | None
    real: float
    """The real factor that the expected integers stand for."""
    expected: ScaleWords
    found: tuple[ScaleWords, ...]
    """What descriptors or scale records say; one if they agree."""

    @property
    def is_right(self) -> bool:
        """Do all say what is expected?"""
        return self.found == (self.expected,)


@attrs.frozen
class StageAudit:
    """One rescaling of a layer."""

    layer: str
    stage: str
    kind: ScaleKind
    formula: str
    """In terms of scales; empty where the profile takes another than Glow's integers."""
    channels: tuple[ChannelAudit, ...]
    """One, or one a channel."""

    @property
    def wrong(self) -> tuple[ChannelAudit, ...]:
        """Those that are not as expected."""
        return tuple(one for one in self.channels if not one.is_right)


def audit_integers(
    debugger: Debugger, facts: LayerFacts | None, layer: Layer, trace: Sequence[Done]
) -> Iterator[StageAudit]:
    """The rescalings of a layer that has run, as its profile has them and as the device got them.

    ``facts`` are the layer's, ``trace`` is what it did. Scale records are read from the scratchpad
    as it stood when the instruction was issued.
    """
    if facts is None:
        return
    forms = next((one.forms for one in facts.profiles if one.name == layer.numerics), ())
    found = _found(debugger, layer, trace, [form.stage for form in forms])
    formulas = {stage.name: stage.formula for stage in facts.stages}
    for form in forms:
        if form.stage in found:
            formula = formulas.get(form.stage, "") if form.scale_form is INTEGER else ""
            channels = tuple(_channels(form, found[form.stage]))
            yield StageAudit(layer.name, form.stage, form.kind, formula, channels)


def _channels(
    form: ProfileForm, found: Mapping[int | None, set[ScaleWords]]
) -> Iterator[ChannelAudit]:
    """Every channel that the device has a factor of, compared with the expected one."""
    values = form.values()
    for channel in sorted(found, key=lambda one: -1 if one is None else one):
        index = channel if channel is not None and len(form.forms) > 1 else 0
        if index < len(form.forms):
            expected = _integers(form.forms[index])
            yield ChannelAudit(channel, values[index], expected, tuple(sorted(found[channel])))


def _integers(scale: IntegerScale) -> ScaleWords:
    return scale.pre, scale.mul, scale.post


_Found = dict[str, dict[int | None, set[ScaleWords]]]
"""Stage -> channel, or None for all -> what was found."""


def _found(
    debugger: Debugger, layer: Layer, trace: Sequence[Done], stages: Iterable[str]
) -> _Found:
    found: _Found = {}
    channels = layer.output.shape[-1] if layer.output.shape else 1
    scaled = [one for one in trace if "profile" in one.words and one.words.get("part", 0) in (0, 3)]
    with debugger.execution.visit():
        seen = set()
        for done in scaled:
            first = done.words["event_origin"] % channels
            key = (done.core, tuple(done.words.values()))
            if key in seen:
                continue
            seen.add(key)
            if done.words.get("scales"):
                debugger.execution.go_to(done.position - 1)
            for stage in stages:
                factors = _factors(debugger.execution.machine, done, stage, first)
                for channel, integers in factors:
                    found.setdefault(stage, {}).setdefault(channel, set()).add(integers)
    return found


def _factors(
    machine: Machine, done: Done, stage: str, first: int
) -> Iterator[tuple[int | None, ScaleWords]]:
    """The factors of a stage that an instruction takes; ``first`` is its first channel."""
    d = done.words
    form = ROWS[d["profile"]].form
    if stage == RESULT:
        yield None, (0, d["result_scale"], 0)
    elif stage in ("bias", "out") and d.get("scales"):
        count = d["out_channels"] if "out_channels" in d else d["channels_count"]
        _, *tables = scale_tables(Scratchpad(Core(machine, done.core)), d, count)
        rows = [np.stack([one.pre, one.mul, one.post], axis=1).tolist() for one in tables]
        for n, (bias, out) in enumerate(zip(*rows, strict=True)):
            if form is FLOAT64:
                scale = float64_scale(out, bias)
            else:
                pre, mul, post = bias if stage == "bias" else out
                scale = pre, mul, post
            yield first + n, scale
    elif f"{stage}_pre" in d:
        scale = _scale(d, stage)
        if form is FLOAT64 and "bias_mul" in d:
            scale = float64_scale(scale, _scale(d, "bias"))
        # A shift that both sides share belongs to both factors.
        pre, mul, post = scale
        yield None, (pre, mul, post + (d["out_post"] if form.has_common_shift else 0))


def _scale(words: Mapping[str, int], prefix: str) -> ScaleWords:
    return words[f"{prefix}_pre"], words[f"{prefix}_mul"], words[f"{prefix}_post"]


Facts = Mapping[str, LayerFacts]
"""What the LIR says of each instruction, by its name."""


def all_facts(module: Module) -> Facts:
    """Of every instruction."""
    return {one.name: one for one in explain_layers(module)}


def facts_of(facts: Facts, layer: Layer) -> LayerFacts | None:
    """Of the instruction that rescales: the first of those that were fused."""
    return facts.get(layer.fused[0] if layer.fused else layer.name) or facts.get(layer.name)
