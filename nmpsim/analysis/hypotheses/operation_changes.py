"""Changes of a layer's operation, activation, arithmetic, inputs and result, by family."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import permutations

import numpy as np

from nmpsim.analysis.constant_forms import MAX_SHIFTS
from nmpsim.analysis.hypotheses.layer import Change, IsolatedLayer
from nmpsim.analysis.hypotheses.window_changes import make_window
from nmpsim.arrays import Array, Arrays
from nmpsim.isa.profiles import NUMERICS_NAMES
from nmpsim.lir.opcode import OpcodeKind

_ACTIVATIONS: dict[str, tuple[float | None, float | None]] = {
    "ReLU": (0, None),
    "ReLU6": (0, 6),
    "clip to -1 to 1": (-1, 1),
    "clip to 0 to 1": (0, 1),
}
"""Activation -> real limits of the result."""
_PAIRS = ("elementadd", "elementsub", "elementmul", "elementmax", "elementmin")


def change_activation(layer: IsolatedLayer, others: Arrays) -> Iterator[Change]:
    """Yield (description, layer) pairs with a removed, added or replaced activation."""
    has_fused = layer.get_attribute("FusedActivation", "NONE") != "NONE"
    if has_fused or len(layer.program.module.instructions) > 1:
        alone = layer.remove_activations()
        yield "no activation", alone
        yield from _add_activations(alone, "{} as the only activation")
        return
    yield from _add_activations(layer, "{} after the layer")
    source = layer.find_operand("Src")
    if layer.kind is OpcodeKind.CLIP and source is not None and source in layer.inputs:
        values = layer.inputs[source]
        yield "no activation", layer.replace_conversion(lambda out: values.reshape(out.shape))


def _add_activations(layer: IsolatedLayer, text: str) -> Iterator[Change]:
    type = layer.get_type(layer.output)
    if type.quant is None or not type.quant.scale:
        return
    limits = np.iinfo(type.dtype)
    ends = (limits.min, limits.max)

    def quantize(bound: float | None, end: int) -> int:
        assert type.quant is not None
        integer = end if bound is None else round(bound / type.quant.scale) + type.quant.offset
        return min(max(integer, limits.min), limits.max)

    for name, bounds in _ACTIVATIONS.items():
        low, high = map(quantize, bounds, ends)
        yield text.format(name), layer.replace_conversion(partial(_clip, low=low, high=high))
    at_zero = partial(_clip, low=0, high=limits.max)
    yield text.format("a clip at the integer 0"), layer.replace_conversion(at_zero)


def _clip(values: Array, low: int, high: int) -> Array:
    return np.clip(values, low, high).astype(values.dtype)


def change_operation(layer: IsolatedLayer, others: Arrays) -> Iterator[Change]:
    """Yield (description, layer) pairs with a replaced operation or attribute."""
    opcode, attributes = layer.operation.opcode, dict(layer.operation.attributes)
    names = ("Kernels", "Strides", "Pads", "Layout")
    pool = {name: attributes[name] for name in names if name in attributes}
    if layer.kind is OpcodeKind.PAIR:
        for other in _PAIRS:
            if other != opcode:
                yield f"{other}, not {opcode}", layer.replace_operation(other, {})
    elif layer.kind is OpcodeKind.AVERAGE_POOL and pool.get("Layout", 0) == 0:
        yield "the maximum, not the mean", layer.replace_operation("maxpool", pool)
        window = make_window(layer)
        if window is not None and window.has_padding:
            if attributes.get("CountIncludePads"):
                without = layer.replace_attributes(CountIncludePads=0)
                yield "the padding not counted in the mean", without
            else:
                yield (
                    "the padding counted in the mean",
                    layer.replace_attributes(CountIncludePads=1),
                )
                # Some profiles lack a mean that counts padding.
                padded = window.change(window.before, constant_values=window.zero_point)
                yield "the padding counted in the mean", padded
    elif layer.kind is OpcodeKind.MAX_POOL:
        for counts in (0, 1):
            mean = {**pool, "CountIncludePads": counts}
            yield "the mean, not the maximum", layer.replace_operation("avgpool", mean)
    elif opcode == "inserttensor":
        yield from _move_insertion(layer)
    elif opcode == "transpose":
        shape = layer.get_type(layer.output).shape
        source = layer.get_type(layer.operation.operands[1].name).shape
        for shuffle in permutations(range(len(shape))):
            if tuple(source[axis] for axis in shuffle) == shape:
                text = f"the axes in the order {', '.join(map(str, shuffle))}"
                yield text, layer.replace_attributes(Shuffle=shuffle)


def _move_insertion(layer: IsolatedLayer) -> Iterator[Change]:
    """Yield (description, layer) pairs whose tensor is inserted at another offset."""
    offsets, axis = list(layer.get_attribute("Offsets")), layer.get_attribute("Axis")
    target, source = (layer.get_type(one.name).shape for one in layer.operation.operands)
    last = target[axis] - layer.get_attribute("Count") * source[axis]
    for offset in range(min(last + 1, MAX_SHIFTS)):
        if offset != offsets[axis]:
            changed = (*offsets[:axis], offset, *offsets[axis + 1 :])
            text = f"the offset {offset} on axis {axis}, not {offsets[axis]}"
            yield text, layer.replace_attributes(Offsets=changed)


def change_numerics(layer: IsolatedLayer, others: Arrays) -> Iterator[Change]:
    """Yield a (description, layer) pair for each numerics profile except the layer's own."""
    for name in NUMERICS_NAMES:
        if name != layer.program.numerics or layer.program.formulas is not None:
            program = layer.program.with_numerics(name)
            yield f"the arithmetic {name}", IsolatedLayer(program, layer.inputs)


def change_inputs(layer: IsolatedLayer, others: Arrays) -> Iterator[Change]:
    """Yield (description, layer) pairs with replaced, zero or swapped inputs."""
    activations = [(label, name) for label, name in layer.list_operands() if name in layer.inputs]
    for label, name in activations:
        values, quant = layer.get_values(name), layer.get_type(name).quant
        for other, array in others.items():
            if array.size == values.size and array.dtype == values.dtype:
                changed = layer.replace_values({name: array.reshape(values.shape)})
                yield f"{other} as the {label}", changed
        zeros = np.full_like(values, quant.offset if quant else 0)
        yield f"zeros as the {label}", layer.replace_values({name: zeros})
    if len(activations) == 2:
        yield from _swap_inputs(layer, *(name for _, name in activations))


def _swap_inputs(layer: IsolatedLayer, first: str, second: str) -> Iterator[Change]:
    one, two = layer.get_values(first), layer.get_values(second)
    if one.shape == two.shape and one.dtype == two.dtype:
        yield "the two inputs swapped", layer.replace_values({first: two, second: one})
    left, right = layer.get_type(first).quant, layer.get_type(second).quant
    if left is None or right is None or left == right:
        return
    for text, names in (
        ("scales and zero points", ("scale", "offset")),
        ("scales", ("scale",)),
        ("zero points", ("offset",)),
    ):
        changed = layer.replace_quantization(first, **{one: getattr(right, one) for one in names})
        changed = changed.replace_quantization(second, **{one: getattr(left, one) for one in names})
        yield f"the {text} of the two inputs swapped", changed


def change_layout(layer: IsolatedLayer, others: Arrays) -> Iterator[Change]:
    """Yield (description, layer) pairs with permuted elements of an input or of the result."""
    for label, name in layer.list_operands():
        for text, array in _list_reordered(layer.inputs[name]) if name in layer.inputs else ():
            yield f"the {label} {text}", layer.replace_values({name: array})
    probe = np.empty(layer.get_type(layer.output).shape, np.int8)
    for number, (text, _) in enumerate(_list_reordered(probe)):
        yield f"the result {text}", layer.reorder_result(partial(_reorder, number=number))


def _reorder(values: Array, number: int) -> Array:
    return list(_list_reordered(values))[number][1]


def _list_reordered(values: Array) -> Iterator[tuple[str, Array]]:
    """Yield a tensor with its elements in other orders; four dimensions are NHWC."""
    if values.ndim != 4:
        if values.size > 1:
            yield "in reverse order", values.reshape(-1)[::-1].reshape(values.shape)
        return
    batch, height, width, channels = values.shape
    if channels > 1 and height * width > 1:
        stored = values.reshape(batch, channels, height, width).transpose(0, 2, 3, 1)
        yield "read as NCHW, not NHWC", stored
        nchw = values.transpose(0, 3, 1, 2).reshape(values.shape)
        yield "read as NHWC, not NCHW", nchw
    if height > 1 and width > 1:
        swapped = values.transpose(0, 2, 1, 3).reshape(values.shape)
        yield "with rows and columns swapped", swapped
    for axis, (name, flip) in enumerate(
        (
            ("rows", "flipped vertically"),
            ("columns", "flipped horizontally"),
            ("channels", "with its channels in reverse order"),
        ),
        1,
    ):
        size = values.shape[axis]
        if size > 1:
            yield flip, np.flip(values, axis)
            for amount in dict.fromkeys((1, -1)) if size > 2 else ():
                yield f"with its {name} moved by {amount}", np.roll(values, amount, axis)
