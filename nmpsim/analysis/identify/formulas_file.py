"""Formulas files of identified rules, for ``nmpsim compile --numerics``."""

from __future__ import annotations

import json
from collections.abc import Iterable

from nmpsim.analysis.identify.classes import Identification, RuleClass
from nmpsim.analysis.identify.layers import CONVOLUTION, RecordedLayer, RecordedOperation
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


def make_formulas_file(found: Identification) -> str:
    """Make the text of a formulas file with the rules that explain a program's results."""
    if found.profile:
        return f"name = {json.dumps(_NAME)}\nbase = {json.dumps(found.profile)}\n"
    classes = [one for one in found.classes if _is_weighted(one) or not one.rule.profile]
    others = [one.rule.profile for one in found.classes if one not in classes]
    standard = others[0] if others else found.program.numerics
    base = standard if all(map(_is_weighted, classes)) else _FALLBACK
    statements = [_state(one, base) for one in classes]
    shared = len({one.device_profile for one in statements}) < len(
        {one.formulas for one in statements}
    )
    # Words of a profile with float32 factors must be numbers of float32.
    is_real = any(_DEVICE_PROFILES[one.device_profile].form is REAL for one in statements)
    if shared or (is_real and any(dict(one.factors)["form"] != "float" for one in statements)):
        base = _FALLBACK
        statements = [_state(one, base) for one in classes]
    element = ELEMENTS[found.classes[0].layers[0].element]
    text = "\n".join(_write(base, standard, element, statements))
    parse_custom_formulas(text, "<identified rules>")
    return text


def _is_weighted(one: RuleClass) -> bool:
    return isinstance(one.layers[0], RecordedLayer)


def _state(one: RuleClass, base: str) -> _Statement:
    layer, rule = one.layers[0], one.rule
    element, title = ELEMENTS[layer.element], f"{one.kind}: {rule.name}"
    if isinstance(layer, RecordedOperation):
        assert rule.family is not None and rule.factor is not None
        operation = layer.operation.instruction.opcode
        profile = PROFILES[base].get_factor_row(operation)["profile"]
        formulas: tuple[tuple[str, str], ...] = ((layer.operation_kind.formula, rule.formula),)
        factors = rule.family.make_factor_row(rule.factor)
        return _Statement(title, operation, profile, formulas, tuple(factors.items()))
    operation = "sums" if one.kind == CONVOLUTION else "connected"
    profile = PROFILES[base].get_factor_row(operation)["profile"]
    if rule.family is not None and rule.factor is not None:
        bias = "saturate(bias, accumulator_bits)" if rule.family.place == IN_SUM else "0"
        factors = rule.family.make_factor_row(rule.factor)
        formulas = ("bias", bias), ("sums", rule.formula)
        return _Statement(title, operation, profile, formulas, tuple(factors.items()))
    known = PROFILES[rule.profile].get_factor_row(operation)
    texts = {kind: FORMULAS[known["profile"]][kind] for kind in ("bias", "sums")}
    formulas = tuple(
        (kind, str(text[element] if isinstance(text, dict) else text).strip())
        for kind, text in texts.items()
    )
    factors = {"form": known["form"]} | {
        word: text for word, text in known.items() if word in FACTOR_WORDS
    }
    return _Statement(title, operation, profile, formulas, tuple(factors.items()))


def _write(base: str, standard: str, element: str, statements: list[_Statement]) -> Iterable[str]:
    """Yield the lines of a formulas file.

    ``standard`` is the profile of operations that no statement describes.
    """
    yield f"name = {json.dumps(_NAME)}"
    yield f"base = {json.dumps(base)}"
    if base != standard:
        yield f"others = {json.dumps(standard)}"
    for profile in dict.fromkeys(one.device_profile for one in statements):
        yield f"\n[{profile}]"
        texts = {
            kind: text
            for one in reversed(statements)
            if one.device_profile == profile
            for kind, text in one.formulas
        }
        for kind, text in texts.items():
            yield f'{kind}.{element} = """\n{text.strip()}\n"""'
    for one in statements:
        yield f"\n# {one.title}\n[factors.{one.operation}]"
        yield from (f"{word} = {json.dumps(text)}" for word, text in one.factors)
    yield ""
