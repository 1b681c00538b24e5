"""Comparison of a program with its LIR and with files: types, constants, rescale integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import attrs
import numpy as np

from nmpsim.analysis.explain import OperationFacts, ProfileStage, read_factors
from nmpsim.arrays import Array, Shape
from nmpsim.bundle.metadata import Layer
from nmpsim.core.counters import count_channels
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.mac import read_scale_tables
from nmpsim.core.reference.operands import Scratchpad
from nmpsim.core.state import Machine
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.inspect import unravel_index
from nmpsim.debugger.instructions import ExecutedInstruction
from nmpsim.isa.profiles import INTEGER, ScaleKind, ScaleWords, compute_real_factor
from nmpsim.lir.nodes import Module

SCALE_TOLERANCE = 1e-4
"""Relative difference below which two scales count as equal."""


@attrs.frozen
class ConstantAudit:
    """Audit of a constant: the result of comparing it with an array from a file."""

    name: str
    elem: str
    shape: Shape
    differing: int
    first: tuple[int, ...] = ()
    """Coordinates of the first element that differs; () if all are equal."""
    ours: float = 0
    theirs: float = 0
    problem: str = ""


def describe_bias_scale(facts: OperationFacts | None) -> str:
    """Describe how a bias's scale differs from the products' scale; return "" if both agree."""
    scales = {one.role: one.scale for one in facts.operands} if facts else {}
    source, bias, dest = scales.get("Src"), scales.get("Bias"), scales.get("Dest")
    weights = scales.get("Filter", scales.get("Weights"))
    by_channel = facts is not None and facts.channels > 1
    if not source or not weights or not bias or by_channel:
        return ""
    ratio = bias / (source * weights)
    if abs(ratio - 1) < SCALE_TOLERANCE:
        return ""
    which = ", the scale of the result" if dest and abs(bias / dest - 1) < SCALE_TOLERANCE else ""
    return (
        f"the scale of the bias is {ratio:.6g} times the product of the Src and weight"
        f" scales{which}"
    )


def audit_constants(
    module: Module, keys: Iterable[str], read_array: Callable[[str], Any]
) -> Iterator[ConstantAudit]:
    """Audit constants of a module: compare each constant with the array of the same name."""
    known = {key.removeprefix("const/"): key for key in keys}
    for weight in module.weights:
        if not weight.constant or weight.name not in known:
            continue
        ours: Array = module.constants[weight.name]
        theirs = read_array(known[weight.name])
        problem, differing = "", np.zeros(0, np.int64)
        if theirs.shape == ours.shape:
            differing = np.flatnonzero(ours.reshape(-1) != theirs.reshape(-1))
        else:
            problem = f"the array in the file has shape {'x'.join(map(str, theirs.shape))}"
        found = ConstantAudit(
            weight.name, weight.type.elem, weight.type.shape, int(differing.size), problem=problem
        )
        if differing.size:
            at = unravel_index(int(differing[0]), ours.shape)
            found = attrs.evolve(found, first=at, ours=ours[at].item(), theirs=theirs[at].item())
        yield found


# --- rescale integers -------------------------------------------------------------------------

RESULT_STAGE = "result"
"""Name of the stage whose factor is the word ``result_scale``."""


@attrs.frozen
class ChannelAudit:
    """Audit of one channel, or of all channels: the expected and actual rescale integers."""

    channel: int | None
    real: float
    """Real factor that the expected integers represent."""
    expected: ScaleWords
    found: tuple[ScaleWords, ...]
    """Integers in descriptors or scale records; one entry if they all agree."""

    @property
    def is_correct(self) -> bool:
        """Whether all rescale integers of the channel are as expected."""
        return self.found == (self.expected,)


@attrs.frozen
class StageAudit:
    """Audit of a rescale stage: the layer's integers, and the integers that the scales require."""

    layer: str
    stage: str
    kind: ScaleKind
    formula: str
    """Factor in terms of scales; empty for profiles that do not use Glow's integers."""
    channels: tuple[ChannelAudit, ...]
    """One entry, or one for each channel."""

    @property
    def wrong_channels(self) -> tuple[ChannelAudit, ...]:
        """Channels whose rescale integers differ from the expected integers."""
        return tuple(one for one in self.channels if not one.is_correct)


def audit_integers(
    debugger: Debugger,
    facts: OperationFacts | None,
    layer: Layer,
    trace: Sequence[ExecutedInstruction],
) -> Iterator[StageAudit]:
    """Audit the rescale integers of a layer: compare each stage's integers with the scales.

    Parameters
    ----------
    debugger : Debugger
        Debugger of a run past the layer.
    facts : OperationFacts or None
        Description of the layer in the LIR.
    layer : Layer
        Layer to check.
    trace : sequence of ExecutedInstruction
        Instructions of the layer. Scale records are read from the scratchpad as it stood when the
        instruction was issued.
    """
    if facts is None:
        return
    forms = next((one.forms for one in facts.profiles if one.name == layer.numerics), ())
    found = _found(debugger, layer, trace, {form.stage for form in forms})
    formulas = {stage.name: stage.formula for stage in facts.stages}
    for form in forms:
        if form.stage in found:
            formula = formulas.get(form.stage, "") if form.scale_form is INTEGER else ""
            channels = tuple(_channels(form, found[form.stage]))
            yield StageAudit(layer.name, form.stage, form.kind, formula, channels)


def _channels(
    form: ProfileStage, found: Mapping[int | None, set[ScaleWords]]
) -> Iterator[ChannelAudit]:
    """Compare the factor of each channel with the expected one."""
    values = form.list_values()
    for channel in sorted(found, key=lambda one: -1 if one is None else one):
        index = channel if channel is not None and len(form.forms) > 1 else 0
        if index < len(form.forms):
            scale = form.forms[index]
            expected = (scale.pre, scale.mul, scale.post)
            yield ChannelAudit(channel, values[index], expected, tuple(sorted(found[channel])))


_Found = dict[str, dict[int | None, set[ScaleWords]]]
"""Stage -> channel (None for all channels) -> factors found."""


def _found(
    debugger: Debugger, layer: Layer, trace: Sequence[ExecutedInstruction], stages: Set[str]
) -> _Found:
    found: _Found = {}
    scaled = [one for one in trace if "profile" in one.words and one.words.get("part", 0) in (0, 3)]
    with debugger.visit_position():
        seen = set()
        for done in scaled:
            first = done.words["event_origin"] % count_channels(layer)
            key = (done.core, tuple(done.words.values()))
            if key in seen:
                continue
            seen.add(key)
            if done.words.get("scales"):
                debugger.seek_position(done.next_position - 1)
            for channel, factors in _read_channel_factors(debugger.machine, done, first):
                for stage in stages & factors.keys():
                    found.setdefault(stage, {}).setdefault(channel, set()).add(factors[stage])
    return found


def _read_channel_factors(
    machine: Machine, done: ExecutedInstruction, first: int
) -> Iterator[tuple[int | None, Mapping[str, ScaleWords]]]:
    """Yield the channels of an instruction and their factors by stage; None for all channels.

    ``first`` is the first channel of the instruction.
    """
    d = done.words
    if not d.get("scales"):
        yield None, read_factors(d)
        return
    count = d["out_channels"] if "out_channels" in d else d["channels_count"]
    _, bias, out = read_scale_tables(Scratchpad(Core(machine, done.core)), d, count)
    for n in range(count):
        own = {
            f"{name}_{word}": int(getattr(scale, word)[n])
            for name, scale in (("bias", bias), ("out", out))
            for word in ("pre", "mul", "post")
        }
        yield first + n, read_factors({**d, **own})


def format_factor(integers: ScaleWords, kind: ScaleKind) -> str:
    """Format rescale integers as a formula, such as ``(x >> 3) * 434 >> 14``."""
    pre, mul, post = integers
    if kind == "integers":
        return f"(x >> {pre}) * {mul} >> {post}"
    if kind == "fixed point":
        return f"(x << {pre}) * {mul} / 2^31 >> {post}"
    if kind == "float64":
        return f"x * {compute_real_factor(kind, *integers)!r}"
    added = f" + {float(np.uint32(post).view(np.float32)):.9g}" if post else ""
    return f"x * {float(np.uint32(mul & 0xFFFF_FFFF).view(np.float32)):.9g}{added}"


FactsByName = Mapping[str, OperationFacts]
"""Instruction name -> what the LIR says about the instruction."""


def find_layer_facts(facts: FactsByName, layer: Layer) -> OperationFacts | None:
    """Return the facts about the LIR instruction of a layer, or None if there are none."""
    return facts.get(layer.fused[0] if layer.fused else layer.name) or facts.get(layer.name)
