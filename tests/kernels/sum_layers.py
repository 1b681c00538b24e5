"""Layers whose sums are scaled: their words, their records, and each result in plain numbers."""

from __future__ import annotations

from typing import Any

import attrs
import numba
import numpy as np
from rescale_oracle import (
    ACTIVATION,
    F32,
    INT8,
    INT16,
    INT32,
    INT48,
    RESCALE,
    RESULT,
    Ledger,
    fixed_form,
    float_of,
    integer_form,
    once_form,
    reduced_form,
    rounded_away,
    rounded_even,
)

from nmpsim.kernels import channel_tables, channels
from nmpsim.kernels.movement import ScratchpadViews
from nmpsim.kernels.operands import Clip, IntegerScaleRecord
from nmpsim.kernels.workspace_size import TABLE_ROWS

PROFILES = GLOW_INT, GLOW_FLOAT, GLOW_FLOAT_LATE, NMP, Q31, FLOAT, FBGEMM, ONEDNN, Q31_ONCE = (
    *range(8),
    9,
)
INTEGER = (GLOW_INT, NMP)
REALS = (GLOW_FLOAT, GLOW_FLOAT_LATE, FLOAT, FBGEMM, ONEDNN)
COUNT, INDEX, PIXELS = 13, 8, 3
"""Channels at once, the first one's index in the layer's output, pixels of a tile."""
SPM_BYTES, RECORDS, TABLE = 4096, 64, 1024
CASES = 12
NMP_PARAMETERS = ("pre", "mul", "half", "post", "addend")
"""Parameters of the formula of nmp for Int8, in the order of the table's rows."""

put_entry: Any = numba.njit(
    lambda spm, at, q, first, table: channel_tables.fill_channel_table(spm, at, q, first, table)
)
Three = tuple[int, int, int]


@attrs.frozen
class Channel:
    """What a channel has of its own; scales are (pre, mul, post)."""

    weight_offset: int
    bias: int
    """As the record holds it: 64 bits, for fbgemm and onednn those of a float64."""
    zero_term: int
    bias_scale: Three
    out: Three


@attrs.frozen
class Layer:
    """The words that all channels share."""

    element: int
    profile: int
    result_scale: int
    offset: int
    leaky: Three | None
    clip: Three
    has_table: bool
    channels: tuple[Channel, ...]

    @property
    def accumulator(self) -> tuple[int, int]:
        return INT32 if self.element == INT8 else INT48


def result_of(total: int, layer: Layer, c: Channel, index: int, ledger: Ledger) -> int:
    """The result of a finished sum."""
    value = scaled(total, layer, c, index, ledger)
    if layer.leaky is not None and value < layer.offset:
        below = value - layer.offset
        if layer.element == INT8:
            below = ledger.limit(below, *INT32, (RESCALE,) * 2, index)
        value = layer.offset + integer_form(
            below, layer.leaky, layer.element, RESCALE, index, ledger
        )
    low, high, wanted = layer.clip
    stages = ACTIVATION if wanted & 1 else RESULT, ACTIVATION if wanted & 2 else RESULT
    return ledger.limit(value, low, high, stages, index)


def scaled(total: int, layer: Layer, c: Channel, index: int, ledger: Ledger) -> int:
    """The sum on the result's scale, with its zero point; each float32 operation on its own."""
    offset, profile = layer.offset, layer.profile
    if profile in INTEGER:
        bias = min(max(c.bias, -(1 << 61)), 1 << 61) if profile == NMP else 0
        return integer_form(total, c.out, layer.element, RESCALE, index, ledger) + bias + offset
    if profile == Q31:
        if layer.element == INT16:
            return reduced_form(total, c.out) + offset
        return fixed_form(total, c.out, index, ledger) + offset
    if profile == Q31_ONCE:
        return once_form(total, c.out, c.bias_scale) + offset
    real, factor = F32(total), float_of(c.out[1])
    with np.errstate(all="ignore"):
        if profile == GLOW_FLOAT:
            return rounded_away(F32(real * factor) + F32(offset))
        if profile == GLOW_FLOAT_LATE:
            return rounded_away(real * factor) + offset
        if profile == FLOAT:
            return rounded_even(real * factor) + offset
        bias = np.int64(c.bias).view(np.float64)
        if profile == FBGEMM:
            return rounded_even(F32(np.float64(real) + bias) * factor) + offset
        unsigned = 128 if layer.element == INT8 else 0
        value = F32(real * float_of(c.bias_scale[1])) * factor
        value = F32(np.float64(value) + bias) * float_of(layer.result_scale)
        return rounded_even(value + F32(offset + unsigned)) - unsigned


def scratchpad_of(layer: Layer) -> tuple[ScratchpadViews, channels.OperandOffsets]:
    """Channel and scale records as docs/isa.md lays them out, one channel of nobody before."""
    memory = np.zeros(SPM_BYTES, np.int8)
    views = ScratchpadViews(memory, *(memory.view(f"i{size}") for size in (2, 4, 8)))
    for place, c in enumerate(layer.channels, start=1):
        views.i64[RECORDS // 8 + 2 * place :][:2] = c.bias, c.zero_term
        words = [c.weight_offset, *c.bias_scale, *c.out]
        views.i32[TABLE // 4 + 7 * place :][:7] = words
    table = np.int64(TABLE if layer.has_table else -1)
    none = np.int64(0)
    return views, channels.OperandOffsets(none, none, np.int64(RECORDS), table, none, none)


def numbers(scale: Three | None) -> IntegerScaleRecord:
    return IntegerScaleRecord(*map(np.int64, scale or (0, 0, 0)))


def quantizer_of(layer: Layer) -> channels.Quantizer:
    c = layer.channels[0]
    return channels.Quantizer(
        np.int64(layer.element),
        np.int64(layer.profile),
        np.int64(c.weight_offset),
        numbers(c.bias_scale),
        numbers(c.out),
        np.int64(layer.result_scale),
        np.int64(layer.offset),
        np.int64(layer.leaky is not None),
        numbers(layer.leaky),
        Clip(*map(np.int64, layer.clip)),
    )


def table_of(layer: Layer) -> Any:
    """The kernels' table of channels."""
    spm, at = scratchpad_of(layer)
    table = np.full((TABLE_ROWS, COUNT), -77, np.int64)
    with np.errstate(all="ignore"):
        put_entry(spm, at, quantizer_of(layer), np.int64(1), table)
    return table
