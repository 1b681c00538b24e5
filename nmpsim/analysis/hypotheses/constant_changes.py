"""Changes of the constants and of the quantization of a layer, by family."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from nmpsim.analysis.constant_forms import (
    list_bias_forms,
    list_kernel_forms,
    shuffle_channels,
)
from nmpsim.analysis.hypotheses.layer import Change, IsolatedLayer
from nmpsim.arrays import Array, Arrays

_SIGN_BITS = {1: 0x80, 2: 0x8000}
"""Difference of signed and unsigned storage by bytes of an element."""
_TABLES = {"FilterOffsets": "weights", "Offsets": "weights", "BiasOffsets": "bias"}
"""Operands with the zero point of each channel, and the operands that they describe."""


def change_weights(layer: IsolatedLayer, others: Arrays) -> Iterator[Change]:
    """Yield (description, layer) pairs with permuted, flipped, shifted or negated weights."""
    name = layer.find_constant("Filter", "Weights")
    if name is None:
        return
    stored = layer.get_values(name)
    is_transposed = layer.operation.opcode == "fullyconnected"
    rows = stored.T if is_transposed else stored
    is_matrix = rows.ndim == 2

    def replace(values: Array) -> IsolatedLayer:
        changed = values.reshape(rows.shape)
        return layer.replace_values({name: changed.T if is_transposed else changed})

    size = rows.shape[-1]
    for channels in (d for d in range(2, size // 2 + 1) if is_matrix and size % d == 0):
        text = f"the weights' inputs in the order NCHW, not NHWC, of {channels} channels"
        yield text, replace(shuffle_channels(rows, 1, size // channels))
    kernel = rows[:, None, None, :] if is_matrix else rows
    for text, values in list_kernel_forms(kernel):
        yield text, replace(values)


def change_bias(layer: IsolatedLayer, others: Arrays) -> Iterator[Change]:
    """Yield (description, layer) pairs with a changed bias or a changed scale of the bias."""
    name = layer.find_constant("Bias")
    if name is None:
        return
    bias = layer.get_values(name)
    if bias.dtype.kind != "i" or not bias.any():
        return
    for text, values in list_bias_forms(bias.reshape(-1)):
        if not np.array_equal(values, bias.reshape(-1)):
            yield text, layer.replace_values({name: values.reshape(bias.shape)})
    table = layer.find_constant("BiasScales")
    for label, scale in _list_bias_scales(layer):
        text = f"the bias on the scale of the {label}"
        if table is not None:
            scales = layer.get_values(table)
            changed = np.broadcast_to(scale, scales.shape).astype(scales.dtype)
            yield text, layer.replace_values({table: changed})
        elif scale.ndim == 0 and layer.has_scale(name):
            yield text, layer.replace_quantization(name, scale=scale.item())


def _list_bias_scales(layer: IsolatedLayer) -> Iterator[tuple[str, Array]]:
    """Yield scales that a bias may have by mistake, one or one for each channel."""
    scales: dict[str, Array] = {}
    table = layer.find_constant("FilterScales", "Scales")
    for label, name in (
        ("input", layer.find_operand("Src")),
        ("weights", layer.find_operand("Filter", "Weights")),
        ("result", layer.output),
    ):
        quant = None if name is None else layer.get_type(name).quant
        if quant is not None and quant.scale:
            scales[label] = np.asarray(quant.scale, np.float32)
    if table is not None:
        scales["weights"] = layer.get_values(table)
    if "input" in scales and "weights" in scales:
        yield "sums", np.asarray(scales["input"] * scales["weights"])
    yield from scales.items()


def change_zero_points(layer: IsolatedLayer, others: Arrays) -> Iterator[Change]:
    """Yield (description, layer) pairs with a changed zero point of an operand or of the result."""
    for label, name in layer.list_operands():
        type = layer.get_type(name)
        if type.quant is None or not layer.has_scale(name) or type.dtype.itemsize > 2:
            continue
        offset = type.quant.offset
        for number in list_zero_points(offset, type.dtype.itemsize):
            text = f"the zero point {number} of the {label}, not {offset}"
            changed = layer.replace_quantization(name, offset=number)
            yield text, changed
            if name == layer.output and offset == np.iinfo(type.dtype).min:
                yield f"{text}, with a ReLU", add_relu(changed)
    for role, label in _TABLES.items():
        table = layer.find_constant(role)
        if table is None:
            continue
        offsets = layer.get_values(table)
        for delta in (1, -1, 128, -128):
            text = f"the zero points of the {label} changed by {delta:+}"
            yield text, layer.replace_values({table: offsets + offsets.dtype.type(delta)})
        if offsets.any():
            text = f"zero points 0 of the {label}"
            yield text, layer.replace_values({table: np.zeros_like(offsets)})


def add_relu(layer: IsolatedLayer) -> IsolatedLayer:
    """Return a copy whose result is not below its zero point."""
    type = layer.get_type(layer.output)
    assert type.quant is not None
    return layer.replace_conversion(partial(np.maximum, type.dtype.type(type.quant.offset)))


def change_scales(layer: IsolatedLayer, others: Arrays) -> Iterator[Change]:
    """Yield (description, layer) pairs with scales changed in the last float32 or decimal place.

    The decimals are those with which compilers print scales.
    """
    for label, name in layer.list_operands():
        quant = layer.get_type(name).quant
        if quant is None or not layer.has_scale(name):
            continue
        scale = np.float32(quant.scale)
        near = [np.nextafter(scale, np.float32(end)) for end in (np.inf, -np.inf)]
        near += [np.float32(float(scale) + unit) for unit in (1e-9, -1e-9, 1e-6, -1e-6)]
        for other in dict.fromkeys(map(float, near)):
            if other > 0 and other != scale:
                text = f"the scale {other!r} of the {label}, not {float(scale)!r}"
                yield text, layer.replace_quantization(name, scale=other)
    table = layer.find_constant("FilterScales", "Scales")
    for end, side in ((np.inf, "above"), (-np.inf, "below")) if table is not None else ():
        assert table is not None
        text = f"scales of the weights that are the float32 numbers {side} those of the program"
        scales = np.nextafter(layer.get_values(table), np.float32(end))
        yield text, layer.replace_values({table: scales})


def list_zero_points(offset: int, nbytes: int) -> Iterator[int]:
    """Yield zero points that may replace ``offset`` by mistake in a type of ``nbytes`` bytes."""
    half = 1 << 8 * nbytes - 1
    near = (offset + 1, offset - 1, 0, -offset, offset + half, offset - half, -half, half - 1)
    for number in dict.fromkeys(near):
        if number != offset and -half <= number < half:
            yield number


def change_signedness(layer: IsolatedLayer, others: Arrays) -> Iterator[Change]:
    """Yield (description, layer) pairs that interpret a tensor's signed integers as unsigned."""
    for label, name in layer.list_operands():
        dtype = layer.get_type(name).dtype
        if dtype.kind != "i" or dtype.itemsize not in _SIGN_BITS:
            continue
        text = f"the {label} as u{dtype.name}, not {dtype.name}"
        if name == layer.output:
            yield text, layer.replace_conversion(flip_sign_bits, flip_sign_bits)
        elif name in layer.inputs or name in layer.program.module.constants:
            changed = layer.replace_values({name: flip_sign_bits(layer.get_values(name))})
            yield text, changed
            shifted = _shift_zero_point(changed, name, -_SIGN_BITS[dtype.itemsize])
            if shifted is not None:
                yield f"{text}, and without a changed zero point", shifted


def _shift_zero_point(layer: IsolatedLayer, name: str, amount: int) -> IsolatedLayer | None:
    """Add an amount to the zero points of an operand; return None if that is impossible."""
    table = layer.find_constant("FilterOffsets", "Offsets")
    if table is not None and name == layer.find_constant("Filter", "Weights"):
        offsets = layer.get_values(table)
        return layer.replace_values({table: offsets + offsets.dtype.type(amount)})
    type = layer.get_type(name)
    if type.quant is None or not layer.has_scale(name):
        return None
    offset = type.quant.offset + amount
    is_valid = offset >= np.iinfo(type.dtype).min
    return layer.replace_quantization(name, offset=offset) if is_valid else None


def flip_sign_bits(values: Array) -> Array:
    """Return 8-bit or 16-bit integers with inverted sign bits."""
    unsigned = values.view(f"u{values.dtype.itemsize}")
    bit = unsigned.dtype.type(_SIGN_BITS[values.dtype.itemsize])
    return np.asarray((unsigned ^ bit).view(values.dtype))
