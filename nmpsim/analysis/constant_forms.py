"""Wrong forms of weights and biases: axes exchanged, mirrored, moved, scaled or cut off."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from nmpsim.arrays import Array

Form = tuple[str, Array]
"""Description that continues the word "with", and the values."""

_AXES = "OHWI"
MAX_SHIFTS = 64
"""Largest number of channels by which channels are rolled."""


def list_kernel_forms(kernel: Array) -> Iterator[Form]:
    """Yield wrong forms of a kernel [O, H, W, I] as (description, array), most common first.

    A form may equal the kernel or an earlier form.
    """
    _, height, width, _ = kernel.shape
    if height > 1 or width > 1:
        yield from _list_window_forms(kernel)
    yield from _list_axis_orders(kernel)
    for axis, name in ((0, "output"), (3, "input")):
        yield f"the kernel's {name} channels in reverse order", np.flip(kernel, axis)
        size = kernel.shape[axis]
        for shift in range(1, min(size, MAX_SHIFTS)):
            text = f"the kernel's {name} channels moved by {min(shift, size - shift)}"
            yield text, np.roll(kernel, shift, axis)
        for groups in (d for d in range(2, size // 2 + 1) if size % d == 0):
            text = f"the kernel's {name} channels shuffled in {groups} groups"
            yield text, shuffle_channels(kernel, axis, groups)
    wide = kernel if kernel.dtype.kind == "f" else kernel.astype(np.int64)
    yield "negated weights", _clip(-wide, kernel)


def shuffle_channels(values: Array, axis: int, groups: int) -> Array:
    """Shuffle channels: transpose an axis of ``groups * N`` elements as a matrix [groups, N]."""
    size = values.shape[axis] // groups
    split = (*values.shape[:axis], groups, size, *values.shape[axis + 1 :])
    return values.reshape(split).swapaxes(axis, axis + 1).reshape(values.shape)


def _list_window_forms(kernel: Array) -> Iterator[Form]:
    _, height, width, _ = kernel.shape
    if height == width:
        yield "the kernel's two axes swapped", kernel.transpose(0, 2, 1, 3)
    yield "the kernel flipped vertically", kernel[:, ::-1]
    yield "the kernel flipped horizontally", kernel[:, :, ::-1]
    yield "the kernel rotated by 180 degrees", kernel[:, ::-1, ::-1]
    if height == width:
        for turns, degrees in ((1, 90), (3, 270)):
            rotated = np.rot90(kernel, turns, (1, 2))
            yield f"the kernel rotated by {degrees} degrees", rotated
        yield (
            "the kernel's two axes swapped and flipped",
            kernel.transpose(0, 2, 1, 3)[:, ::-1, ::-1],
        )
    for axis, name in ((1, "rows"), (2, "columns")):
        for shift in range(1, kernel.shape[axis]):
            yield f"the kernel's {name} moved by {shift}", np.roll(kernel, shift, axis)


def _list_axis_orders(kernel: Array) -> Iterator[Form]:
    """Yield kernels whose memory has the axes in another order."""
    swapped = (3, 1, 2, 0)
    if kernel.shape[0] == kernel.shape[3]:
        yield "the kernel's input and output channels swapped", kernel.transpose(swapped)
    first, second = kernel.transpose(0, 3, 1, 2), kernel.transpose(3, 0, 1, 2)
    read = first.reshape(second.shape).transpose(1, 2, 3, 0)
    yield "the kernel's memory in the order IOHW, not OIHW", read
    read = second.reshape(first.shape).transpose(0, 2, 3, 1)
    yield "the kernel's memory in the order OIHW, not IOHW", read
    for order in permutations(range(4)):
        name = "".join(_AXES[axis] for axis in order)
        if order == (0, 1, 2, 3):
            continue
        stored = kernel.reshape([kernel.shape[axis] for axis in order])
        yield f"the kernel's memory in the order {name}", stored.transpose(np.argsort(order))
        text = f"the kernel's memory in the order {_AXES}, not {name}"
        yield text, kernel.transpose(order).reshape(kernel.shape)


def list_bias_forms(bias: Array) -> Iterator[Form]:
    """Yield wrong forms of an integer bias [O] as (description, array), most common first."""
    wide = bias.astype(np.int64)
    yield "a bias of zero", np.zeros_like(bias)
    for name, values in (
        ("the bias doubled", 2 * wide),
        ("half of the bias", wide >> 1),
        ("the bias negated", -wide),
    ):
        yield name, _clip(values, bias)
    for bits in (8, 16):
        if bits < 8 * bias.itemsize:
            low = (wide + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
            yield f"the bias truncated to {bits} bits", low.astype(bias.dtype)
            limit = 1 << bits - 1
            clipped = np.clip(wide, -limit, limit - 1)
            yield f"the bias saturated to {bits} bits", clipped.astype(bias.dtype)
    yield from list_bias_orders(bias)
    for exponent in (*range(2, 17), *range(-16, -1)):
        scaled = wide << exponent if exponent > 0 else wide >> -exponent
        if ((scaled != 0) & (scaled != -1)).any():  # others are like a bias of zero
            yield f"the bias times 2^{exponent}", _clip(scaled, bias)


def list_bias_orders(bias: Array) -> Iterator[Form]:
    """Yield reversed and rolled copies of a bias [O] as (description, array)."""
    yield "the bias's channels in reverse order", bias[::-1]
    for shift in range(1, min(bias.size, MAX_SHIFTS)):
        text = f"the bias's channels moved by {min(shift, bias.size - shift)}"
        yield text, np.roll(bias, shift)


def _clip(values: Array, like: Array) -> Array:
    """Return integers clipped to a dtype; float values are only converted."""
    if like.dtype.kind == "f":
        return np.asarray(values, like.dtype)
    limits = np.iinfo(like.dtype)
    return np.clip(values, limits.min, limits.max).astype(like.dtype)
