"""Layers with random channels, and the expected result of each sum in plain integers."""

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
    SaturationOracle,
    apply_fixed_point_form,
    apply_integer_form,
    apply_reduced_form,
    apply_single_rounding_form,
    decode_float32,
    round_half_away,
    round_half_even,
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
    """Parameters of one channel; scales are (pre, mul, post)."""

    weight_offset: int
    bias: int
    """As the record holds it: 64 bits, for fbgemm and onednn those of a float64."""
    zero_term: int
    bias_scale: Three
    out: Three


@attrs.frozen
class Layer:
    """Descriptor words shared by all channels, and the channels."""

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


def compute_result(
    total: int, layer: Layer, c: Channel, index: int, oracle: SaturationOracle
) -> int:
    """Compute the clipped result of a finished sum."""
    value = rescale_sum(total, layer, c, index, oracle)
    if layer.leaky is not None and value < layer.offset:
        below = value - layer.offset
        if layer.element == INT8:
            below = oracle.clamp(below, *INT32, (RESCALE,) * 2, index)
        value = layer.offset + apply_integer_form(
            below, layer.leaky, layer.element, RESCALE, index, oracle
        )
    low, high, wanted = layer.clip
    stages = ACTIVATION if wanted & 1 else RESULT, ACTIVATION if wanted & 2 else RESULT
    return oracle.clamp(value, low, high, stages, index)


def rescale_sum(total: int, layer: Layer, c: Channel, index: int, oracle: SaturationOracle) -> int:
    """Rescale a sum to the result scale and add the zero point, rounding each float32 operation."""
    offset, profile = layer.offset, layer.profile
    if profile in INTEGER:
        bias = min(max(c.bias, -(1 << 61)), 1 << 61) if profile == NMP else 0
        return (
            apply_integer_form(total, c.out, layer.element, RESCALE, index, oracle) + bias + offset
        )
    if profile == Q31:
        if layer.element == INT16:
            return apply_reduced_form(total, c.out) + offset
        return apply_fixed_point_form(total, c.out, index, oracle) + offset
    if profile == Q31_ONCE:
        return apply_single_rounding_form(total, c.out, c.bias_scale) + offset
    real, factor = F32(total), decode_float32(c.out[1])
    with np.errstate(all="ignore"):
        if profile == GLOW_FLOAT:
            return round_half_away(F32(real * factor) + F32(offset))
        if profile == GLOW_FLOAT_LATE:
            return round_half_away(real * factor) + offset
        if profile == FLOAT:
            return round_half_even(real * factor) + offset
        bias = np.int64(c.bias).view(np.float64)
        if profile == FBGEMM:
            return round_half_even(F32(np.float64(real) + bias) * factor) + offset
        unsigned = 128 if layer.element == INT8 else 0
        value = F32(real * decode_float32(c.bias_scale[1])) * factor
        value = F32(np.float64(value) + bias) * decode_float32(layer.result_scale)
        return round_half_even(value + F32(offset + unsigned)) - unsigned


def build_scratchpad(layer: Layer) -> tuple[ScratchpadViews, channels.OperandOffsets]:
    """Build a scratchpad with channel and scale records, preceded by one unused channel."""
    memory = np.zeros(SPM_BYTES, np.int8)
    views = ScratchpadViews(memory, *(memory.view(f"i{size}") for size in (2, 4, 8)))
    for place, c in enumerate(layer.channels, start=1):
        views.i64[RECORDS // 8 + 2 * place :][:2] = c.bias, c.zero_term
        words = [c.weight_offset, *c.bias_scale, *c.out]
        views.i32[TABLE // 4 + 7 * place :][:7] = words
    table = np.int64(TABLE if layer.has_table else -1)
    none = np.int64(0)
    return views, channels.OperandOffsets(none, none, np.int64(RECORDS), table, none, none)


def make_scale_record(scale: Three | None) -> IntegerScaleRecord:
    return IntegerScaleRecord(*map(np.int64, scale or (0, 0, 0)))


def make_quantizer(layer: Layer) -> channels.Quantizer:
    c = layer.channels[0]
    return channels.Quantizer(
        np.int64(layer.element),
        np.int64(layer.profile),
        np.int64(c.weight_offset),
        make_scale_record(c.bias_scale),
        make_scale_record(c.out),
        np.int64(layer.result_scale),
        np.int64(layer.offset),
        np.int64(layer.leaky is not None),
        make_scale_record(layer.leaky),
        Clip(*map(np.int64, layer.clip)),
    )


def build_channel_table(layer: Layer) -> Any:
    """Build the channel table of the kernels."""
    spm, at = build_scratchpad(layer)
    table = np.full((TABLE_ROWS, COUNT), -77, np.int64)
    with np.errstate(all="ignore"):
        put_entry(spm, at, make_quantizer(layer), np.int64(1), table)
    return table
