"""Formulas files of identified rules, for ``nmpsim compile --numerics``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nmpsim.analysis.identify.classes import Identification, RuleClass
from nmpsim.analysis.identify.layers import (
    CONVOLUTION,
    MATMUL,
    RecordedLayer,
    RecordedOperation,
)
from nmpsim.analysis.identify.rules import IN_SUM
from nmpsim.bundle.formula_check import FACTOR_WORDS
from nmpsim.bundle.formulas import parse_custom_formulas
from nmpsim.compiler.numerics import PROFILES
from nmpsim.isa.profiles import REAL, ROWS
from nmpsim.kernels.formulas import ELEMENTS, FORMULAS
from nmpsim.records import frozen

_DEVICE_PROFILES = {row.name: row for row in ROWS}
_NAME = "found"
_FALLBACK = "q31"
"""Base with different formulas for convolutions and fully connected layers."""


@frozen
class _Statement:
    """Formulas and factors of the layers of one kind, as a formulas file states them."""

    title: str
    operation: str
    device_profile: str
    formulas: tuple[tuple[str, str], ...]
    """Kinds and texts of formulas."""
    factors: tuple[tuple[str, str], ...]


@frozen
class FormulasFile:
    """Formulas file of identified rules, and the layers whose rules it cannot state."""

    text: str
    omitted: tuple[str, ...] = ()
    """Names of layers that share a formula with other layers but need another one."""


def make_formulas_file(found: Identification) -> FormulasFile:
    """Make a formulas file with the rules that explain a program's results."""
    if found.profile:
        return FormulasFile(f"name = {json.dumps(_NAME)}\nbase = {json.dumps(found.profile)}\n")
    # Layers with weights come first, because matrix products share their formulas.
    ordered = sorted(found.classes, key=lambda one: not _is_weighted(one))
    classes = [one for one in ordered if _has_sums(one) or not one.rule.profile]
    others = [one for one in ordered if one not in classes]
    standard = others[0].rule.profile if others else found.program.numerics
    omitted = [one for one in others if standard not in one.profiles]
    base = standard if all(map(_is_weighted, classes)) else _FALLBACK
    stated = [(one, _state(one, base)) for one in classes]
    profiles = {one.device_profile for _, one in stated}
    shared = len(profiles) < len({one.formulas for _, one in stated})
    # Words of a profile with float32 factors must be numbers of float32.
    is_real = any(_DEVICE_PROFILES[one].form is REAL for one in profiles)
    if shared or (is_real and any(dict(one.factors)["form"] != "float" for _, one in stated)):
        base = _FALLBACK
        stated = [(one, _state(one, base)) for one in classes]
    texts: dict[str, dict[str, str]] = {}
    statements = []
    for one, statement in stated:
        known = texts.setdefault(statement.device_profile, {})
        if any(known.get(kind, text) != text for kind, text in statement.formulas):
            omitted.append(one)
            continue
        known |= statement.formulas
        statements.append(statement)
    element = ELEMENTS[found.classes[0].layers[0].element]
    lines = list(_write(base, standard, element, texts, statements))
    lines += [f"# not stated: {one.kind}: {one.rule.name}" for one in omitted]
    text = "\n".join([*lines, ""])
    parse_custom_formulas(text, "<identified rules>")
    return FormulasFile(text, tuple(layer.name for one in omitted for layer in one.layers))


def _is_weighted(one: RuleClass) -> bool:
    return isinstance(one.layers[0], RecordedLayer)


def _has_sums(one: RuleClass) -> bool:
    """Return whether the layers of a class use the formulas of sums."""
    return _is_weighted(one) or one.layers[0].opcode == MATMUL


def _state(one: RuleClass, base: str) -> _Statement:
    layer, rule = one.layers[0], one.rule
    element, title = ELEMENTS[layer.element], f"{one.kind}: {rule.name}"
    if len(one.rules) > 1:
        title += f" (the simplest of {len(one.rules):,} rules)"
    kinds = ["bias", "sums"]
    if isinstance(layer, RecordedOperation):
        operation, kinds = layer.opcode, [layer.operation_kind.formula]
    else:
        operation = "sums" if one.kind == CONVOLUTION else "connected"
    if rule.family is not None and rule.factor is not None:
        bias = "saturate(bias, accumulator_bits)" if rule.family.place == IN_SUM else "0"
        texts: Mapping[str, Any] = {"bias": bias, kinds[-1]: rule.formula}
        factors = rule.family.make_factor_row(rule.factor)
    else:
        known = PROFILES[rule.profile].get_factor_row(operation)
        texts = FORMULAS[known["profile"]]
        words = (*FACTOR_WORDS[operation], "form")
        factors = {word: text for word, text in known.items() if word in words}
    formulas = tuple(
        (kind, str(text[element] if isinstance(text, dict) else text).strip())
        for kind, text in ((kind, texts[kind]) for kind in kinds)
    )
    profile = PROFILES[base].get_factor_row(operation)["profile"]
    return _Statement(title, operation, profile, formulas, tuple(factors.items()))


def _write(
    base: str,
    standard: str,
    element: str,
    texts: Mapping[str, Mapping[str, str]],
    statements: Iterable[_Statement],
) -> Iterator[str]:
    """Yield the lines of a formulas file.

    ``standard`` is the profile of operations that no statement describes, and ``texts`` contains
    formulas by device profile and kind.
    """
    yield f"name = {json.dumps(_NAME)}"
    yield f"base = {json.dumps(base)}"
    if base != standard:
        yield f"others = {json.dumps(standard)}"
    for profile, formulas in texts.items():
        yield f"\n[{profile}]"
        for kind, text in formulas.items():
            yield f'{kind}.{element} = """\n{text}\n"""'
    for one in statements:
        yield f"\n# {one.title}\n[factors.{one.operation}]"
        yield from (f"{word} = {json.dumps(text)}" for word, text in one.factors)
