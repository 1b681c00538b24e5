"""The program that lint rules check, with the references that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs
import numpy as np

from nmpsim.analysis.program import Program
from nmpsim.analysis.weighted import read_weighted_scales
from nmpsim.arrays import Array, Arrays
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.compiler.resolve import get_instruction_place, resolve_operands
from nmpsim.diagnostics import Place
from nmpsim.lir.names import map_display_names
from nmpsim.lir.nodes import Module
from nmpsim.quantization import ValueRange


@attrs.frozen(eq=False)
class OriginalBias:
    """Original bias: integers and scale before the declared type was changed."""

    payload: Array | None
    """Stored integers: int64 [channels]; None if a digest shows that they are unchanged."""
    scales: Array | None
    """Scales: float64, one or one per channel; None if the type is unknown."""
    offsets: Array | None
    """Zero points: int64, same shape as ``scales``."""


@attrs.define(eq=False, slots=False, frozen=True)
class LintSubject:
    """Subject of lint: a program, and the reference data with which it is compared."""

    program: Program
    float_weights: Arrays | None = None
    """Arrays of the float model by name."""
    original: Mapping[str, OriginalBias] | None = None
    """Biases before a change of type, by constant name."""
    ranges: Mapping[str, ValueRange] | None = None
    """Recorded ranges of results by name, from Glow's profile."""
    printed_only: frozenset[str] | None = None
    """Tensors of which only nine decimals of the scale are known; None for other formats."""
    snapped: frozenset[str] = frozenset()
    """Tensors whose printed scale is assumed to be a power of two."""

    @property
    def module(self) -> Module:
        """LIR module of the program."""
        return self.program.module

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """Operations of the program in order."""
        return resolve_operands(self.module)[1]

    @cached_property
    def display_names(self) -> Mapping[str, str]:
        """Display names of instructions and constants by full name."""
        shown: dict[str, str] = {}
        for owners in (self.module.weights, [op.instruction for op in self.operations]):
            shown |= map_display_names(owner.name for owner in owners)
        return {**shown, **(self.program.display_names or {})}

    @cached_property
    def biases(self) -> tuple[QuantizedBias, ...]:
        """Biases with known values of all quantized layers with weights."""
        found = (read_bias(self.module, op) for op in self.operations)
        return tuple(bias for bias in found if bias is not None)

    @cached_property
    def has_constant_values(self) -> bool:
        """Whether the values of all constants are known."""
        return bool(self.module.constants) or not any(w.constant for w in self.module.weights)

    def get_numerics(self, op: Operation) -> str:
        """Return the numerics profile of an operation."""
        return self.program.get_numerics(op.instruction.name)

    def find_place(self, op: Operation, tensor: BufferView | None = None) -> Place:
        """Return the place of an instruction, or the place where a constant operand is declared."""
        if tensor is not None:
            for weight in self.module.weights:
                if weight.name == tensor.buffer.name:
                    return weight.span.place(self.module.file)
        return get_instruction_place(op.instruction, self.module.file)


SAME_SCALE = 1e-6
"""Relative tolerance within which two float32 scales count as equal."""


@attrs.frozen(eq=False)
class QuantizedBias:
    """Quantized bias with its scales; arrays have one entry per channel."""

    op: Operation
    view: BufferView
    payload: Array
    """Stored integers: int64 [channels]."""
    offsets: Array
    """Zero points: int64 [channels]."""
    scales: Array
    """Declared scales, or the scales of a channelwise operation's table: float64 [channels]."""
    product_scales: Array
    """Scales of the accumulator, input times weights: float64 [channels]."""
    result_scale: float
    result_offset: int
    result_magnitude: float
    """Largest real magnitude that the result's type can hold."""

    @property
    def integers(self) -> Array:
        """Stored integers minus zero points: int64 [channels]."""
        centred: Array = self.payload - self.offsets
        return centred

    @property
    def dequantized(self) -> Array:
        """Bias dequantized with the declared scales: float64 [channels]."""
        values: Array = self.scales * self.integers
        return values

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest integer of the element type."""
        return self.view.limits

    @property
    def is_on_product_scale(self) -> bool:
        """Whether the declared scale equals the scale of the accumulator."""
        return are_equal_scales(self.scales, self.product_scales)

    @property
    def is_on_result_scale(self) -> bool:
        """Whether the declared scale equals the scale of the result."""
        return are_equal_scales(self.scales, np.full_like(self.scales, self.result_scale))

    def format_scales(self) -> str:
        """Format the declared scale, or its range over the channels, for messages."""
        low, high = float(self.scales.min()), float(self.scales.max())
        return f"{low:.9g}" if low == high else f"{low:.9g} to {high:.9g} by channel"


def are_equal_scales(a: Array, b: Array) -> bool:
    """Return whether two arrays of scales are equal up to float32 rounding."""
    return bool(np.allclose(a, b, rtol=SAME_SCALE, atol=0.0))


def are_valid_scales(values: Array) -> bool:
    """Return whether all scales are positive and finite."""
    return bool((np.isfinite(values) & (values > 0)).all())


def read_bias(module: Module, op: Operation) -> QuantizedBias | None:
    """Read the quantized bias of a layer with weights, or return None if there is no valid bias.

    None if the bias is not quantized, empty or unknown, or if the scale of a channel is invalid.
    """
    layer = read_weighted_scales(module, op)
    if layer is None:
        return None
    view = op.operands[3]
    is_known = view.type.quant is not None and view.buffer.name in module.constants
    if not is_known or layer.channels == 0:
        return None
    if not (are_valid_scales(layer.weight_scales) and are_valid_scales(layer.bias.scales)):
        return None
    return QuantizedBias(
        op=op,
        view=view,
        payload=layer.bias.values.astype(np.int64),
        offsets=layer.bias.offsets,
        scales=layer.bias.scales.astype(np.float64),
        product_scales=layer.source.scale * layer.weight_scales.astype(np.float64),
        result_scale=layer.target.scale,
        result_offset=layer.target.offset,
        result_magnitude=max(map(abs, layer.target.real_limits)),
    )
