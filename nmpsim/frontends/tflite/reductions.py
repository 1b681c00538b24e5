"""Operators that reduce dimensions: means, sums, extremes and their places."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nmpsim.frontends.builder import Value, quantized
from nmpsim.frontends.tflite.lowering import (
    Lowering,
    Result,
    dimension,
    quantized_inputs,
    same_parameters,
)
from nmpsim.frontends.tflite.model import Operator, Tensor
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.nodes import TensorType

Lower = Callable[[Lowering, Operator], Result]


def mean(graph: Lowering, operator: Operator) -> Result:
    """An average over the rows of a window that covers the dimensions."""
    target, value = _as_rows(graph, operator)
    window = _window(value)
    graph.add("avgpool", operator, (target, value), **window, CountIncludePads=1)
    return Result()


def reduce_max(graph: Lowering, operator: Operator) -> Result:
    """The largest of the rows of such a window."""
    target, value = _as_rows(graph, operator)
    if not same_parameters(value, target):
        raise UnsupportedError("input and result of different scales or zero points")
    graph.add("maxpool", operator, (target, value), **_window(value))
    return Result()


def sum_(graph: Lowering, operator: Operator) -> Result:
    """A convolution with ones.

    Source: ``QuantizedMeanOrSum`` (internal/reference/reduce.h). LiteRT 2.3's kernels take Int8 as
    uint8, and sums of Int16 from a place that nothing writes.
    """
    (source,) = quantized_inputs(operator, 1)
    if source.dtype != "uint8":
        raise UnsupportedError(f"a sum of {source.dtype}, which TFLite's kernels get wrong")
    target, value = _as_rows(graph, operator)
    channels, rows = value.shape[3], value.shape[1]
    base = operator.outputs[0].name
    kind = quantized("i8", (channels, rows, 1, 1), 1.0, 0)
    ones = graph.builder.constant(f"{base}_ones", np.ones(kind.shape, np.int8), kind)
    scale = graph.scale(source)
    bias_kind = quantized("i32", (channels,), scale, 0)
    bias = graph.builder.constant(f"{base}_bias", np.zeros(channels, np.int32), bias_kind)
    vectors = [
        graph.builder.constant(f"{base}_{what}", np.full(channels, one), TensorType(e, (channels,)))
        for what, one, e in (
            ("scales", 1.0, "float"),
            ("zero_points", 0, "index32"),
            ("bias_scales", scale, "float"),
            ("bias_zero_points", 0, "index32"),
        )
    ]
    graph.add(
        "channelwisequantizedconvolution",
        operator,
        (target, value, ones, bias, *vectors),
        **_window(value),
        Group=channels,
        Dilation=(1, 1),
    )
    return Result()


def extreme(opcode: str) -> Lower:
    """The place of the largest or smallest value along a dimension; on the host."""

    def lower(graph: Lowering, operator: Operator) -> Result:
        (source,) = quantized_inputs(operator, 1)
        axis = dimension(graph.integers(operator, 1), len(source.shape))
        target = graph.target(operator.outputs[0])
        graph.add(opcode, operator, (target, graph.value(source)), Axis=axis, KeepDims=0)
        return Result()

    return lower


def _as_rows(graph: Lowering, operator: Operator) -> tuple[Value, Value]:
    """The result, and the input as [outer, rows, 1, inner]: what is reduced are the rows."""
    (source,) = quantized_inputs(operator, 1)
    rank = len(source.shape)
    given = graph.integers(operator, 1)
    reduced = sorted({axis % rank for axis in given if -rank <= axis < rank})
    if not reduced:
        raise UnsupportedError(f"axes {given}")
    first, last, value = reduced[0], reduced[-1] + 1, graph.value(source)
    if reduced != list(range(first, last)):
        value, first, last = _reduced_last(graph, operator, source, reduced)
    outer, rows, inner = (
        math.prod(part)
        for part in (value.shape[:first], value.shape[first:last], value.shape[last:])
    )
    target = graph.target(operator.outputs[0], (outer, 1, 1, inner))
    return target, graph.view(value, (outer, rows, 1, inner))


def _reduced_last(
    graph: Lowering, operator: Operator, source: Tensor, reduced: list[int]
) -> tuple[Value, int, int]:
    """The input with the reduced dimensions behind all others, and where these stand."""
    rank = len(source.shape)
    order = (*(axis for axis in range(rank) if axis not in reduced), *reduced)
    turned = graph.temporary(source, "turned", tuple(source.shape[axis] for axis in order))
    graph.add("transpose", operator, (turned, graph.value(source)), Shuffle=order)
    return turned, rank - len(reduced), rank


def _window(value: Value) -> dict[str, tuple[int, ...]]:
    return {"Kernels": (value.shape[1], 1), "Strides": (1, 1), "Pads": (0, 0, 0, 0)}
