"""Settings of a quantization: schema, precisions, scales and exceptions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, TypeAlias, TypeVar

import attrs

from nmpsim.diagnostics import fail
from nmpsim.lir.messages import did_you_mean, quote
from nmpsim.quantization.parameters import SCHEMAS, Schema

Elem: TypeAlias = Literal["i8", "i16", "i32"]

PRECISIONS: dict[str, Elem] = {"int8": "i8", "int16": "i16"}
"""Precision of activations and weights -> element type."""
BIAS_PRECISIONS: dict[str, Elem] = {**PRECISIONS, "int32": "i32"}
BIAS_SCALES = ("product", "result")

_Word = TypeVar("_Word", bound=str)


@attrs.frozen(kw_only=True)
class Settings:
    """Settings of a quantization; the defaults are Glow's."""

    schema: Schema = "asymmetric"
    elem: Elem = "i8"
    """Element type of activations and weights: i8 or i16."""
    bias_elem: Elem = "i32"
    per_channel: bool = False
    """Whether convolutions and fully connected layers have a scale for each output channel."""
    bias_on_result: bool = False
    """Whether biases have the scale and offset of the result, as in the NMP's library."""
    keep_float: frozenset[str] = frozenset()
    """Opcodes and names of instructions that stay float."""


def parse_settings(
    *,
    schema: str,
    precision: str,
    bias_precision: str,
    per_channel: bool,
    bias_scale: str,
    keep_float: Iterable[str],
) -> Settings:
    """Parse settings from command-line words; raise ARG001 for an unknown word."""
    return Settings(
        schema=_known("schema", schema, SCHEMAS),
        elem=PRECISIONS[_known("precision", precision, PRECISIONS)],
        bias_elem=BIAS_PRECISIONS[_known("bias precision", bias_precision, BIAS_PRECISIONS)],
        per_channel=per_channel,
        bias_on_result=_known("bias scale", bias_scale, BIAS_SCALES) == "result",
        keep_float=frozenset(keep_float),
    )


def _known(what: str, word: str, words: Collection[_Word]) -> _Word:
    for known in words:
        if known == word:
            return known
    raise fail(
        "ARG001",
        f"unknown {what}",
        found=quote(word),
        expected=", ".join(words),
        hint=did_you_mean(word, words),
    )
