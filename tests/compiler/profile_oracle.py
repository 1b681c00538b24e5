"""Oracle of operations in numerics profiles without host operations.

The formulas themselves are in ``profile_formulas``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from profile_formulas import PROFILES, Array, Layer, Profile, f32

from nmpsim.kernels.hostops import HostTensor
from nmpsim.kernels.hostops.windows import SlidingWindow

Attributes = Mapping[str, Any]
WEIGHTED = ("convolution", "fullyconnected")


def compute_result(
    opcode: str, operands: Sequence[HostTensor], attributes: Attributes, numerics: str
) -> Array:
    """Return the clipped result of an operation."""
    dest = operands[0]
    with np.errstate(all="ignore"):
        value, low, high = _unclipped(opcode, operands, attributes, PROFILES[numerics]())
    limits = np.iinfo(dest.dtype)
    low, high = max(low, int(limits.min)), min(high, int(limits.max))
    return np.clip(value.astype(np.float64), low, max(low, high)).astype(dest.dtype)


def is_of_profile(numerics: str, opcode: str, operands: Sequence[HostTensor]) -> bool:
    """Return whether an operation is computed here and not by the host operations."""
    narrow = operands[0].dtype in (np.int8, np.int16)
    known = opcode.endswith(WEIGHTED) or opcode in _OTHERS
    return numerics in PROFILES and narrow and known


# Operations


def _unclipped(
    opcode: str, operands: Sequence[HostTensor], attributes: Attributes, profile: Profile
) -> tuple[Array, int, int]:
    dest = operands[0]
    if opcode.endswith(WEIGHTED):
        values = profile.result(_layer(opcode, operands, attributes))
        return _activate(values, dest, attributes, profile)
    return _OTHERS[opcode](operands, attributes, profile)


def _activate(
    values: Array, dest: HostTensor, attributes: Attributes, profile: Profile
) -> tuple[Array, int, int]:
    kind = attributes.get("FusedActivation", "NONE")
    arguments = attributes.get("FusedActivationArgs", ())
    low, high = -(1 << 40), 1 << 40
    if kind == "RELU":
        low = dest.offset
    elif kind == "CLIP":
        low, high = (_clamp_to_type(profile.quantize(a, dest), dest) for a in arguments)
        low = min(low, high)
    elif kind == "LEAKY_RELU":
        below = values - dest.offset
        values = np.where(below < 0, profile.scale(below, f32(arguments[0]), dest), below)
        values = values + dest.offset
    return values, low, high


def _clamp_to_type(value: int, grid: HostTensor) -> int:
    limits = np.iinfo(grid.dtype)
    return max(int(limits.min), min(int(limits.max), value))


def _layer(opcode: str, operands: Sequence[HostTensor], attributes: Attributes) -> Layer:
    dest, source, weights = operands[:3]
    bias = operands[3]
    tables = [t.values for t in operands[4:]]
    scales: Any = weights.scale32
    offsets: Any = np.int64(weights.offset)
    if tables:
        scales, offsets = tables[0], tables[1].astype(np.int64)
    bias_scales: Any = bias.scale32
    bias_offsets: Any = np.int64(bias.offset)
    if len(tables) == 4:
        bias_scales, bias_offsets = tables[2], tables[3].astype(np.int64)
    x = source.subtract_offset()
    w = weights.values.astype(np.int64)
    if opcode.endswith("convolution"):
        per_channel = offsets[:, None, None, None] if tables else offsets
        sums = _convolve(x, w - per_channel, dest.shape, attributes)
    elif tables:
        sums = x.reshape(x.shape[0], -1) @ (w - offsets[:, None]).T
    else:
        sums = x.reshape(x.shape[0], -1) @ (w - offsets)
    return Layer(
        sums, dest, source.scale32, scales, bool(tables),
        opcode.endswith("fullyconnected"), opcode.endswith("convolution"),
        bias, bias_scales, bias_offsets,
    )  # fmt: skip


def _convolve(x: Array, w: Array, shape: tuple[int, ...], attributes: Attributes) -> Array:
    window, groups = SlidingWindow.from_attributes(attributes), int(attributes["Group"])
    padded = window.pad(x, 0)
    inputs, outs = x.shape[3] // groups, w.shape[0] // groups
    sums = np.zeros(shape, np.int64)
    for (ky, kx), view in window.iterate_views(padded, shape[1:3]):
        for g in range(groups):
            part = view[..., g * inputs : (g + 1) * inputs]
            taps = w[g * outs : (g + 1) * outs, ky, kx]
            sums[..., g * outs : (g + 1) * outs] += part @ taps.T
    return sums


def _matmul(
    operands: Sequence[HostTensor], attributes: Attributes, profile: Profile
) -> tuple[Array, int, int]:
    dest, lhs, rhs = operands
    sums = lhs.subtract_offset() @ rhs.subtract_offset()
    return profile.matmul(sums, lhs, rhs, dest), -(1 << 40), 1 << 40


def _average(
    operands: Sequence[HostTensor], attributes: Attributes, profile: Profile
) -> tuple[Array, int, int]:
    dest, source = operands
    window = SlidingWindow.from_attributes(attributes)
    counts = window.count_valid_taps(source.shape[1:3], dest.shape[1:3])[:, :, None]
    values: Array = (
        source.values.astype(np.int64) if profile.averages_raw else source.subtract_offset()
    )
    if profile.averages_reals:
        values = values.astype(np.float32) * source.scale32
    padded = window.pad(values, 0)
    sums = sum(view for _, view in window.iterate_views(padded, dest.shape[1:3]))
    all_taps = bool(attributes["CountIncludePads"])
    found = profile.average(
        np.asarray(sums), np.maximum(counts, 1), window.taps, all_taps, operands
    )
    return found, -(1 << 40), 1 << 40


def _pair(opcode: str) -> Callable[..., tuple[Array, int, int]]:
    def run(
        operands: Sequence[HostTensor], attributes: Attributes, profile: Profile
    ) -> tuple[Array, int, int]:
        return profile.pair(opcode, *operands), -(1 << 40), 1 << 40

    return run


def _unary(opcode: str) -> Callable[..., tuple[Array, int, int]]:
    def run(
        operands: Sequence[HostTensor], attributes: Attributes, profile: Profile
    ) -> tuple[Array, int, int]:
        dest, source = operands
        alpha = f32(attributes["Alpha"]) if opcode == "leakyrelu" else None
        low, high = -(1 << 40), 1 << 40
        if opcode == "relu":
            source = _clamp(source, source.offset, 1 << 20)
        elif opcode == "clip" and profile.clips_input:
            bounds = (
                _clamp_to_type(profile.quantize(attributes[k], source), source)
                for k in ("Min", "Max")
            )
            source = _clamp(source, *bounds)
        elif opcode == "clip":
            low, high = (
                _clamp_to_type(profile.quantize(attributes[k], dest), dest) for k in ("Min", "Max")
            )
        elif opcode == "cpumaxsplat":
            floor = _clamp_to_type(profile.quantize(attributes["SplatValue"], source), source)
            source = _clamp(source, floor, 1 << 20)
        return profile.unary(source, dest, alpha), low, high

    return run


def _clamp(source: HostTensor, low: int, high: int) -> HostTensor:
    values = np.clip(source.values.astype(np.int64), low, high).astype(source.dtype)
    return attrs.evolve(source, values=values)


def _splat(
    operands: Sequence[HostTensor], attributes: Attributes, profile: Profile
) -> tuple[Array, int, int]:
    (dest,) = operands
    value = profile.quantize(attributes["Value"], dest)
    return np.full(dest.shape, value), -(1 << 40), 1 << 40


PAIRS = ("elementadd", "elementsub", "elementmul", "elementmax", "elementmin", "batchedadd")
UNARY = ("relu", "clip", "leakyrelu", "cpumaxsplat", "rescalequantized")
_OTHERS: dict[str, Callable[..., tuple[Array, int, int]]] = {
    "matmul": _matmul,
    "avgpool": _average,
    "splat": _splat,
    **{name: _pair(name) for name in PAIRS},
    **{name: _unary(name) for name in UNARY},
}


# Profiles
