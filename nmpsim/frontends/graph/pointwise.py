"""Pools, and integer operations without weights: pairs, look-up tables, concatenation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.functions import FUNCTIONS, Reals
from nmpsim.frontends.graph.lowering import LAST, PLAIN
from nmpsim.frontends.graph.movement import joined_axis, take_held
from nmpsim.frontends.graph.nodes import LIMITS, MOVED, Quantized
from nmpsim.frontends.graph.operation import Made, Operation, as_image
from nmpsim.frontends.graph.windows import Window, window_of
from nmpsim.frontends.imported_model import UnsupportedError

Lower = Callable[[Operation], Made]


def _unsigned(op: Operation) -> dict[str, Any]:
    """The attribute of operations that round the zero point as a float32."""
    is_unsigned = isinstance(op.result, Quantized) and op.result.dtype == "uint8"
    return {"Unsigned": 1} if is_unsigned else {}


def pair(opcode: str) -> Lower:
    """Two tensors of integers, either broadcast."""

    def lower(op: Operation) -> Made:
        sides = op.alike()
        words = {} if opcode == "elementsub" else _unsigned(op)
        return op.clipped(op.make(opcode, *sides, **words))

    return lower


def limited(op: Operation) -> Made:
    """A ReLU or clip of its own, between any two scales."""
    op.limits = op.limits or (0.0, None)
    return op.clipped(op.read())


def average_pool(op: Operation) -> Made:
    """A window over rows and columns; or over all of them."""
    shape, is_integer = op.shape(), bool(op.sources)
    if not 3 <= len(shape) <= 4:
        raise UnsupportedError(f"an input {list(shape)}")
    is_last = is_integer and bool(op.integer("channels_last"))
    value = op.read(0, PLAIN if is_last else LAST)
    images, *spatial, channels = value.shape
    whole = {"kernel_shape": tuple(spatial)}
    attributes = whole if op.kind == "GlobalAveragePool" else op.attributes
    window = window_of(attributes, tuple(spatial))
    if window.dilation != (1, 1) or (window.is_extended and window.counts_padding):
        raise UnsupportedError(f"dilations {window.dilation}, or ceil_mode with counted padding")
    counts, words = window.counts_padding, _unsigned(op)
    if is_integer:
        counts = counts or not any(window.pads)
        # ONNX Runtime takes one window over all as GlobalAveragePool, which rounds otherwise.
        if window.kernel[2 - len(spatial) :] == tuple(spatial) and not any(window.pads):
            words = {"Global": 1}
    made = op.make(
        "avgpool",
        as_image(op.graph, value),
        shape=(images, *window.out, channels),
        Kernels=window.kernel,
        Strides=window.strides,
        Pads=window.pads,
        CountIncludePads=int(counts),
        **words,
    )
    return op.clipped(op.view(made, (images, *window.out[2 - len(spatial) :], channels)))


def max_pool(op: Operation) -> Made:
    """The largest value of each window, or of each whole channel."""
    shape = op.image()
    if not 3 <= len(shape) <= 4 or any(op.node.outputs[1:]):
        raise UnsupportedError(f"an input {list(shape)}, or places of the largest values")
    attributes: dict[str, Any] = dict(op.attributes)
    if op.kind == "GlobalMaxPool":
        attributes = {"kernel_shape": tuple(shape[2:])}
    window = window_of(attributes, shape[2:])
    auto = str(attributes.get("auto_pad", "NOTSET"))
    if window.dilation != (1, 1) and auto.startswith("SAME"):
        # ONNX Runtime pads as for a window without gaps, other than ONNX says.
        raise UnsupportedError(f"dilations {list(window.dilation)} and {auto}")
    value = as_image(op.graph, op.read_any(0, LAST))
    strides, pads = window.strides, window.pads
    if window.dilation != (1, 1):
        value = _apart(op, value, window)
        strides, pads = window.kernel, (0, 0, 0, 0)
    words: dict[str, Any] = {"Kernels": window.kernel, "Strides": strides, "Pads": pads}
    made = op.emit("maxpool", value, shape=(shape[0], *window.out, shape[1]), **words)
    return op.view(made, (shape[0], *window.out[4 - len(shape) :], shape[1]))


def _apart(op: Operation, image: Value, window: Window) -> Value:
    """An image whose windows with gaps lie one behind the other; padding takes a neighbour's place.

    A value that is there twice does not change a window's largest.
    """
    places = {}
    for d in range(2):
        begins = np.arange(window.out[d]) * window.strides[d] - window.pads[d]
        taps = begins[:, None] + np.arange(window.kernel[d]) * window.dilation[d]
        is_inside = (taps >= 0) & (taps < image.shape[1 + d])
        if not is_inside.any(axis=1).all():
            raise UnsupportedError("a window of padding alone")
        first = taps[np.arange(len(taps)), is_inside.argmax(axis=1)]
        places[1 + d] = np.where(is_inside, taps, first[:, None]).reshape(-1)
    return take_held(op, image, places)


# --- functions of one value ------------------------------------------------------------------


def _table(
    source: Quantized, result: Quantized, function: Callable[[Reals], Reals]
) -> npt.NDArray[np.int8]:
    """``rint(f(S * (q - Z)) / So) + Zo`` for all 256 integers, as they are held.

    Source: ``QLinearLookupBase`` (onnxruntime/contrib_ops/cpu/quantization/qlinear_lookup_table.cc)
    and MLAS's ``QuantizeLinear``: float32, the zero point after rounding.
    """
    if source.dtype not in ("int8", "uint8") or result.dtype != source.dtype:
        raise UnsupportedError(f"{source.dtype} to {result.dtype}")
    low, high = LIMITS[source.dtype]
    integers = np.arange(low, high + 1) - source.zero_point
    reals = integers.astype(np.float32) * np.float32(source.scale)
    with np.errstate(all="ignore"):
        steps = np.rint(function(reals).astype(np.float32) / np.float32(result.scale))
    if np.isnan(steps).any():
        raise UnsupportedError("a function that is no number somewhere")
    wide = np.clip(steps.astype(np.float64), -(2.0**31), 2.0**31) + result.zero_point
    clipped = np.clip(wide, low, high).astype(np.int64) - MOVED.get(result.dtype, 0)
    table: npt.NDArray[np.int8] = clipped.astype(np.int8)
    return table


def look_up(op: Operation) -> Made:
    """A function of one 8-bit value."""
    return tabulated(op, lambda x: FUNCTIONS[op.kind](x, op.attributes))


def tabulated(op: Operation, function: Callable[[Reals], Reals]) -> Made:
    """A function of one 8-bit value, and what clips it, as the table of its 256 results."""
    low, high = op.limits or (-np.inf, None)
    most = np.inf if high is None else high
    return _looked_up(op, op.read(), op.sources[0], lambda x: np.clip(function(x), low, most))


def _looked_up(
    op: Operation, value: Value, source: Quantized, function: Callable[[Reals], Reals]
) -> Value:
    assert isinstance(op.result, Quantized)
    table = _table(source, op.result, function)
    type = op.graph.type_of(op.result, (256,))
    return op.make(
        "intlookuptable", value, op.graph.builder.constant(f"{op.name}_table", table, type)
    )


def concatenation(op: Operation) -> Made:
    """Parts one behind the other; those on another scale go through a table."""
    assert isinstance(op.result, Quantized)
    if op.limits is not None:
        raise UnsupportedError("a clip of parts")
    axis = joined_axis(op, list(range(len(op.names))))
    type, parts = op.graph.type_of(op.result, (1,)), []
    layout = op.graph.layout(*op.names)
    for place, source in enumerate(op.sources):
        value = op.read(place, layout)
        if value.type.quant != type.quant:
            if type.elem == "i16":  # an island: ONNX Runtime has it in float32
                value = op.make("rescalequantized", value)
            else:
                own = attrs.evolve(source, dtype=source.dtype or op.result.dtype)
                value = _looked_up(op, value, own, lambda x: x)
        parts.append(value)
    return op.join(op.result, parts, op.place(axis, len(op.shape())))
