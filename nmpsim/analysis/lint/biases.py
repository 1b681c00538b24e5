"""The bias of a layer with weights: its integers, and every scale that they could be on."""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.weighted import bias_values, scales_of
from nmpsim.compiler.operations import Operation, View
from nmpsim.lir.nodes import Module

Array: TypeAlias = npt.NDArray[Any]

SAME_SCALE = 1e-6
"""Relative; float32 scales that differ by less are one scale, rounded at different times."""


@attrs.frozen(eq=False)
class Bias:
    """A bias with one entry a channel in each array."""

    op: Operation
    view: View
    payload: Array
    """int64: the integers as they are stored."""
    offsets: Array
    """int64"""
    scales: Array
    """float64: as declared, or from the table of a channelwise operation."""
    product_scales: Array
    """float64: input times weights, the accumulator's."""
    result_scale: float
    result_offset: int
    result_magnitude: float
    """Largest real magnitude that the result's type can hold."""

    @property
    def integers(self) -> Array:
        """The payload less its zero point."""
        centred: Array = self.payload - self.offsets
        return centred

    @property
    def reals(self) -> Array:
        """What the bias stands for as it is declared."""
        values: Array = self.scales * self.integers
        return values

    @property
    def limits(self) -> tuple[int, int]:
        """Lowest and highest integer of its element kind."""
        info = np.iinfo(self.view.type.dtype)
        return int(info.min), int(info.max)

    @property
    def on_products(self) -> bool:
        """True if it is declared on the accumulator's scale, as Glow does where it can."""
        return same_scales(self.scales, self.product_scales)

    @property
    def on_result(self) -> bool:
        """True if it is declared on the scale of the result, as the NMP's library wants it."""
        return same_scales(self.scales, np.full_like(self.scales, self.result_scale))

    def scale_text(self) -> str:
        """The declared scale, for messages."""
        low, high = float(self.scales.min()), float(self.scales.max())
        return f"{low:.9g}" if low == high else f"{low:.9g} to {high:.9g} by channel"


def same_scales(a: Array, b: Array) -> bool:
    """Whether two scales are equal up to rounding."""
    return bool(np.allclose(a, b, rtol=SAME_SCALE, atol=0.0))


def are_scales(values: Array) -> bool:
    """Whether all are positive and finite."""
    return bool((np.isfinite(values) & (values > 0)).all())


def bias_of(module: Module, op: Operation) -> Bias | None:
    """The bias of a layer with weights; None if it is not quantized, empty, or not known.

    Nor where a channel's scale is none: that layer cannot be compiled, and has no real values.
    """
    scales = scales_of(module, op)
    payload = bias_values(module, op)
    if scales is None or scales.bias is None or payload is None or payload.size == 0:
        return None
    if not (are_scales(scales.weights) and are_scales(scales.bias)):
        return None
    result, _, _, view = op.operands[:4]
    bounds = np.iinfo(result.type.dtype)
    ends = (bounds.min - result.offset, bounds.max - result.offset)
    products = scales.source * scales.weights.astype(np.float64)
    one_each = np.ones(payload.size)
    return Bias(
        op=op,
        view=view,
        payload=payload,
        offsets=np.broadcast_to(scales.bias_offsets, payload.shape),
        scales=one_each * scales.bias.astype(np.float64),
        product_scales=one_each * products,
        result_scale=scales.result,
        result_offset=result.offset,
        result_magnitude=scales.result * max(abs(end) for end in ends),
    )
