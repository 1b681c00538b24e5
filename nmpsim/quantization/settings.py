"""What a user chooses: schema, precisions, scales of weights and biases, exceptions."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from nmpsim.quantization.parameters import Schema

Elem: TypeAlias = Literal["i8", "i16", "i32"]

ELEMS: dict[str, Elem] = {"int8": "i8", "int16": "i16", "int32": "i32"}
"""Names of precisions -> element kinds of LIR."""


@attrs.frozen(kw_only=True)
class Settings:
    """How to quantize; the defaults are Glow's."""

    schema: Schema = "asymmetric"
    elem: Elem = "i8"
    """Of activations and weights: i8 or i16."""
    bias_elem: Elem = "i32"
    per_channel: bool = False
    """A scale for each output channel of convolutions and fully connected layers."""
    bias_on_result: bool = False
    """Biases of both get the scale and offset of the result, as the NMP's library wants."""
    keep_float: frozenset[str] = frozenset()
    """Opcodes, and names of instructions, that stay float."""
