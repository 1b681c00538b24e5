"""The rule ``weights-differ``: weights that are not those of the float model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.lint.bias_reference import RELATIVE_OFF, STEPS_OFF
from nmpsim.analysis.lint.biases import are_scales
from nmpsim.analysis.lint.findings import Fact, Finding, Severity, at_layer
from nmpsim.analysis.lint.subject import Subject
from nmpsim.analysis.shadow.batch_norms import FOLDED, forms_of
from nmpsim.analysis.shadow.constants import quantized_constants
from nmpsim.analysis.shadow.layouts import layouts
from nmpsim.analysis.shadow.matching import LEAST_SQNR_DB, match_constants
from nmpsim.analysis.weighted import WEIGHTED, scales_of
from nmpsim.compiler.operations import Operation, View
from nmpsim.interpreter import sqnr_db
from nmpsim.lir.opcode import Kind

Array: TypeAlias = npt.NDArray[Any]

RULE = "weights-differ"


@attrs.frozen(eq=False)
class Weights:
    """The constant weights of a layer."""

    op: Operation
    view: View
    reals: Array
    """float64, in the LIR's layout."""
    steps: Array
    """Scale, one or one an output; as many dimensions as ``reals``."""
    inside: Array
    """Where the integer is neither the lowest nor the highest."""

    def fits(self, floats: Array) -> bool:
        """Whether they are these values but for rounding and saturation."""
        allowed = self.steps * STEPS_OFF + RELATIVE_OFF * np.abs(floats)
        near = np.abs(self.reals - floats) <= allowed
        return bool(near[self.inside].all()) and bool(self.inside.any() or near.all())


def weights_of(subject: Subject) -> dict[str, Weights]:
    """The weights of all quantized layers and constant matrices, by their constants' names."""
    reals = quantized_constants(subject.module)
    found: dict[str, Weights] = {}
    for op in subject.operations:
        if op.instruction.opcode not in WEIGHTED and op.kind is not Kind.PRODUCT:
            continue
        view = op.operands[2]
        values = reals.get(view.buffer.name)
        if values is None or values.size != view.type.elements or not np.isfinite(values).all():
            continue
        own = scales_of(subject.module, op) if op.instruction.opcode in WEIGHTED else None
        steps = np.array([view.scale]) if own is None else own.weights.astype(np.float64)
        if not are_scales(steps):
            continue
        low, high = view.limits
        integers = subject.module.constants[view.buffer.name].reshape(values.shape)
        found[view.buffer.name] = Weights(
            op,
            view,
            values,
            steps.reshape(-1, *[1] * (values.ndim - 1)),
            (integers > low) & (integers < high),
        )
    return found


def check(subject: Subject) -> Iterator[Finding]:
    """Compare with the float arrays of their names, else with any that explains them."""
    arrays = subject.float_weights
    if arrays is None:
        return
    weights = weights_of(subject)
    matches = match_constants({name: one.reals for name, one in weights.items()}, arrays)
    sources = {found.constant: found.source for found in matches.found}
    others = {name: arrays[name] for name in arrays if name not in sources.values()}
    unknown: list[Weights] = []
    for name, one in weights.items():
        if name in matches.floats:
            finding = _compared(one, matches.floats[name], sources[name], arrays, subject)
            if finding is not None:
                yield finding
        elif (explained := _explained_by_any(one, others)) is not None:
            yield _finding(one, *explained, subject)
        elif one.reals.any():
            unknown.append(one)
    if unknown and {one.reals.size for one in weights.values()} & {a.size for a in arrays.values()}:
        yield _unknown(unknown, len(weights), subject)


@attrs.frozen
class Cause:
    """What makes weights of the float model's."""

    text: str
    hint: str
    facts: Mapping[str, Fact]


def _compared(
    one: Weights, floats: Array, source: str, arrays: Mapping[str, Array], subject: Subject
) -> Finding | None:
    """By the form that is nearest, or by the one of both that explains it."""
    if one.fits(floats):
        return None
    forms = {form: arrays[form] for form in forms_of(source.removesuffix(FOLDED), arrays)}
    cause = _cause(one, floats)
    explained = (source, cause) if cause else _explained_by_any(one, forms)
    if explained is not None:
        return _finding(one, *explained, subject)
    near = sqnr_db(floats, one.reals - floats)
    text = f"are not its float values: {near:.1f} dB of SQNR"
    hint = "are they of another training, or in another layout?"
    severity: Severity = "error" if near < LEAST_SQNR_DB else "warning"
    return _finding(one, source, Cause(text, hint, {"cause": "other"}), subject, severity)


def _explained_by_any(one: Weights, arrays: Mapping[str, Array]) -> tuple[str, Cause] | None:
    """A constant that has lost its name: the array and the cause that explain it together."""
    if one.reals.size < 4 or np.ptp(one.reals) == 0:
        return None
    for name, array in arrays.items():
        if array.size != one.reals.size or np.ptp(array) == 0:
            continue
        for layout in layouts(array, one.reals.shape):
            cause = _cause(one, layout.values())
            if cause is not None:
                return name, cause
    return None


def _cause(one: Weights, floats: Array) -> Cause | None:
    """The first of the usual faults that explains the weights; None if none does."""
    return next((cause for look in _CAUSES if (cause := look(one, floats))), None)


def _zeros(one: Weights, floats: Array) -> Cause | None:
    if one.reals.any() or not floats.any():
        return None
    return Cause("are all zero", "was the constant written?", {"cause": "zeros"})


def _factor(one: Weights, floats: Array) -> Cause | None:
    inner = np.where(one.inside, floats, 0.0)
    power = float((inner * inner).sum())
    factor = float((inner * one.reals).sum()) / power if power else 0.0
    if factor <= 0.0 or not attrs.evolve(one, steps=one.steps * max(factor, 1.0)).fits(
        factor * floats
    ):
        return None
    text = f"are {factor:.4g} times their float values"
    return Cause(text, "is the scale that of these integers?", {"cause": "scale", "factor": factor})


def _shift(one: Weights, floats: Array) -> Cause | None:
    apart = (one.reals - floats)[one.inside]
    shift = float(np.median(apart)) if apart.size else 0.0
    integers = round(shift / float(np.median(one.steps)))
    if integers == 0 or not one.fits(floats + integers * one.steps):
        return None
    text = f"are their float values and {integers} steps more"
    return Cause(text, "is the zero point that of these integers?", _shifted(integers))


def _shifted(integers: int) -> dict[str, Fact]:
    return {"cause": "zero point", "integers": integers}


def _order(one: Weights, floats: Array) -> Cause | None:
    """As sets of numbers they are alike."""
    steps = np.full_like(one.steps, one.steps.max())
    flat = attrs.evolve(
        one,
        reals=np.sort(one.reals, axis=None),
        steps=steps.reshape(-1)[:1],
        inside=np.ones(one.reals.size, np.bool_),
    )
    if not flat.fits(np.sort(floats, axis=None)):
        return None
    return Cause(
        "are their float values in another order",
        "were axes swapped? Glow's filters are OHWI",
        {"cause": "order"},
    )


_CAUSES: tuple[Callable[[Weights, Array], Cause | None], ...] = (_zeros, _factor, _shift, _order)


def _finding(
    one: Weights, source: str, cause: Cause, subject: Subject, severity: Severity = "error"
) -> Finding:
    return at_layer(
        RULE,
        severity,
        f"the weights %{one.view.name} {cause.text}",
        subject,
        one.op,
        tensor=one.view,
        found=f"from {one.reals.min():.6g} to {one.reals.max():.6g}",
        expected=f"{source} of the float model",
        hint=cause.hint,
        facts={"source": source, **cause.facts},
    )


def _unknown(unknown: list[Weights], count: int, subject: Subject) -> Finding:
    first = unknown[0]
    return at_layer(
        RULE,
        "warning",
        f"{len(unknown)} of {count} weights are none of the float model's",
        subject,
        first.op,
        tensor=first.view,
        found=f"%{first.view.name} is no array of it, and no multiple of one",
        expected="an array of its name or of its values",
        hint="is the float model that of another network?",
        facts={"cause": "unknown", "count": len(unknown)},
    )
