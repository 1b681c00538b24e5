"""Formulas files of identified rules, for ``nmpsim compile --numerics``."""

from __future__ import annotations

import json
from collections.abc import Iterable

from nmpsim.analysis.identify.classes import Identification, RuleClass
from nmpsim.analysis.identify.layers import CONVOLUTION
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

    operation: str
    device_profile: str
    bias: str
    sums: str
    factors: tuple[tuple[str, str], ...]


def make_formulas_file(found: Identification) -> str:
    """Make the text of a formulas file with the rules that explain a program's results."""
    if found.profile:
        return f"name = {json.dumps(_NAME)}\nbase = {json.dumps(found.profile)}\n"
    base = found.program.numerics
    statements = [_state(one, base) for one in found.classes]
    shared = len({one.device_profile for one in statements}) < len(
        {(one.bias, one.sums) for one in statements}
    )
    # Words of a profile with float32 factors must be numbers of float32.
    is_real = any(_DEVICE_PROFILES[one.device_profile].form is REAL for one in statements)
    if shared or (is_real and any(dict(one.factors)["form"] != "float" for one in statements)):
        base = _FALLBACK
        statements = [_state(one, base) for one in found.classes]
    text = "\n".join(_write(base, statements, found))
    parse_custom_formulas(text, "<identified rules>")
    return text


def _state(one: RuleClass, base: str) -> _Statement:
    operation = "sums" if one.kind == CONVOLUTION else "connected"
    row = PROFILES[base].get_factor_row(operation)
    element = ELEMENTS[one.layers[0].element]
    rule = one.rule
    if rule.family is not None and rule.factor is not None:
        bias = "saturate(bias, accumulator_bits)" if rule.family.place == IN_SUM else "0"
        own = rule.family.make_factor_row(rule.factor)
        return _Statement(operation, row["profile"], bias, rule.family.text, tuple(own.items()))
    known = PROFILES[rule.profile].get_factor_row(operation)
    formulas = FORMULAS[known["profile"]]
    texts = [formulas[kind] for kind in ("bias", "sums")]
    bias, sums = (str(text[element] if isinstance(text, dict) else text) for text in texts)
    factors = {"form": known["form"]} | {
        word: text for word, text in known.items() if word in FACTOR_WORDS
    }
    return _Statement(operation, row["profile"], bias.strip(), sums, tuple(factors.items()))


def _write(base: str, statements: list[_Statement], found: Identification) -> Iterable[str]:
    """Yield the lines of a formulas file."""
    yield f"name = {json.dumps(_NAME)}"
    yield f"base = {json.dumps(base)}"
    if base != found.program.numerics:
        yield f"others = {json.dumps(found.program.numerics)}"
    element = ELEMENTS[found.classes[0].layers[0].element]
    written = set()
    for one, stated in zip(found.classes, statements, strict=True):
        yield ""
        yield f"# {one.kind}: {one.rule.name}"
        if stated.device_profile not in written:
            written.add(stated.device_profile)
            yield f"[{stated.device_profile}]"
            yield f"bias.{element} = {json.dumps(stated.bias)}"
            yield f'sums.{element} = """\n{stated.sums.strip()}\n"""'
        yield ""
        yield f"[factors.{stated.operation}]"
        yield from (f"{word} = {json.dumps(text)}" for word, text in stated.factors)
    yield ""
