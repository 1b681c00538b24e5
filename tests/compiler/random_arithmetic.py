"""Operations that calculate, on tensors of any shape: a draft's next step."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from lir_draft import Ref
from profile_formulas import NO_INT8_MATMUL
from program_writer import Step, Writer, parameters

# Windows


def window(w: Writer, height: int, width: int, dilated: bool) -> dict[str, Any]:
    """Draw kernels, strides, pads and dilation that fit into an image."""
    kernels, strides, pads, dilation = [], [], [0, 0, 0, 0], []
    for axis, size in enumerate((height, width)):
        kernel = w.pick(1, 1, 2, 3, 3, 4, 5, 7)
        apart = w.pick(1, 1, 2, 3) if dilated else 1
        before, after = (w.pick(0, 0, kernel // 2, kernel - 1, kernel // 3) for _ in range(2))
        extent = (kernel - 1) * apart + 1
        if extent > size + before + after:
            kernel = extent = apart = 1
            before = after = 0
        kernels.append(kernel)
        strides.append(w.pick(1, 1, 2, 3, w.number(1, 4)))
        pads[axis], pads[axis + 2] = before, after
        dilation.append(apart)
    found = {"Kernels": tuple(kernels), "Strides": tuple(strides), "Pads": tuple(pads)}
    return {**found, "Dilation": tuple(dilation)} if dilated else found


def window_result(shape: tuple[int, ...], at: dict[str, Any]) -> tuple[int, int]:
    """Return the number of rows and columns of the result."""
    dilation, pads = at.get("Dilation", (1, 1)), at["Pads"]
    rows, columns = (
        (shape[1 + d] + pads[d] + pads[d + 2] - dilation[d] * (at["Kernels"][d] - 1) - 1)
        // at["Strides"][d]
        + 1
        for d in range(2)
    )
    return rows, columns


def activation(w: Writer, scale: float) -> dict[str, Any]:
    leaky = ("LEAKY_RELU",) if w.numerics in ("glow-int", "glow-float", "nmp") else ()
    kind = w.pick("NONE", "RELU", "CLIP", *leaky)
    if kind == "CLIP":
        low = float(np.float32(scale * w.unit * w.number(-100, 20)))
        high = float(np.float32(low + 60 * w.unit * scale))
        return {"FusedActivation": kind, "FusedActivationArgs": (low, high)}
    if kind == "LEAKY_RELU":
        alpha = 0.125 if w.powers else float(np.float32(0.1))
        return {"FusedActivation": kind, "FusedActivationArgs": (alpha,)}
    return {"FusedActivation": kind, "FusedActivationArgs": ()}


def convolution(w: Writer, source: Ref) -> Ref:
    """Draw a plain, grouped or depthwise convolution with one scale or one per channel."""
    source = w.reshape(source, 4)
    channels = source.shape[3]
    at = window(w, source.shape[1], source.shape[2], dilated=True)
    divisors = [g for g in range(1, channels + 1) if channels % g == 0]
    group = w.pick(1, 1, channels, *divisors)
    per_group = w.pick(1, 1, 2, 3, 16, 17, 33, 40) if group <= 4 else w.pick(1, 1, 2)
    outs = group * per_group
    depth = channels // group
    taps = at["Kernels"][0] * at["Kernels"][1] * depth
    filter_ = w.constant((outs, *at["Kernels"], depth))
    product = float(np.float32(source.type.quant.scale) * np.float32(filter_.type.quant.scale))
    typical = (74.0 * w.unit) ** 2 * taps**0.5
    rows, columns = window_result(source.shape, at)
    around = product * typical / (40 * w.unit)
    target = w.result((source.shape[0], rows, columns, outs), around)
    bias = w.bias(outs, product, typical, target)
    at |= {"Group": group, **activation(w, target.type.quant.scale)}
    if w.chance():
        return w.draft.emit("convolution", target, source, filter_, bias, Layout="NHWC", **at)
    tables = channel_tables(w, outs, filter_.type.quant.scale, parameters(bias.type)[0])
    if w.numerics == "nmp":
        tables[2:] = same_for_all(w, outs, bias)
    elif w.numerics == "q31":
        tables[2:] = scale_by_products(w, source, tables[0])
    opcode = "channelwisequantizedconvolution"
    return w.draft.emit(opcode, target, source, filter_, bias, *tables, **at)


def channel_tables(w: Writer, outs: int, filter_: float, bias: float) -> list[Ref]:
    """Draw scales and offsets per channel of filter and bias, with scales near the tensors' own."""
    tables = []
    for scale in (filter_, bias):
        factors = w.rng.uniform(0.5, 2, outs)
        scales = scale * (2.0 ** np.round(np.log2(factors)) if w.powers else factors)
        offsets = w.rng.integers(-20, 20, outs) * (w.rng.random() < 0.5)
        tables.append(w.draft.constant(scales.astype(np.float32), "float"))
        tables.append(w.draft.constant(offsets.astype(np.int32), "index32"))
    return tables


def same_for_all(w: Writer, outs: int, bias: Ref) -> list[Ref]:
    scale, offset = parameters(bias.type)
    return [
        w.draft.constant(np.full(outs, scale, np.float32), "float"),
        w.draft.constant(np.full(outs, offset, np.int32), "index32"),
    ]


def scale_by_products(w: Writer, source: Ref, filters: Ref) -> list[Ref]:
    """Return bias scales equal to those of the sums, and offsets of 0."""
    scales = np.float32(source.type.quant.scale) * w.draft.constants[filters.name]
    return [
        w.draft.constant(scales, "float"),
        w.draft.constant(np.zeros(scales.size, np.int32), "index32"),
    ]


def fully_connected(w: Writer, source: Ref) -> Ref:
    """Draw a fully connected layer with one scale or one per row, or a product with constants."""
    source = w.reshape(source, 2)
    rows, depth = source.shape
    outs = w.pick(1, 3, 10, 16, 17, 33, 70)
    by_rows = () if w.numerics == "q31" else ("rowwisequantizedfullyconnected",)
    products = ("matmul",) if has_matmul(w) else ()
    opcode = w.pick("fullyconnected", *products, *by_rows)
    by_row = opcode == "rowwisequantizedfullyconnected"
    weights = w.constant((outs, depth) if by_row else (depth, outs))
    product = float(np.float32(source.type.quant.scale) * np.float32(weights.type.quant.scale))
    typical = (74.0 * w.unit) ** 2 * depth**0.5
    target = w.result((rows, outs), product * typical / (40 * w.unit))
    if opcode == "matmul":
        return w.draft.emit(opcode, target, source, weights)
    operands = [target, source, weights, w.bias(outs, product, typical, target)]
    if by_row:
        operands += channel_tables(w, outs, weights.type.quant.scale, 1.0)[:2]
    return w.draft.emit(opcode, *operands)


def has_matmul(w: Writer) -> bool:
    """Return whether the profile allows products of matrices (PyTorch's refuse Int8)."""
    return w.elem == "i16" or w.numerics not in NO_INT8_MATMUL


def product_of_activations(w: Writer, source: Ref) -> Ref:
    if not has_matmul(w):
        return fully_connected(w, source)
    left = w.reshape(source, 2)
    right = w.draft.input(w.narrow_type((left.shape[1], w.pick(1, 3, 16, 17, 40))))
    around = left.type.quant.scale * right.type.quant.scale * 137 * w.unit * left.shape[1] ** 0.5
    target = w.result((left.shape[0], right.shape[1]), around)
    if w.chance() and left.shape[0] == right.shape[1] == left.shape[1]:
        left, right = right, left
    return w.draft.emit("matmul", target, left, right)


def max_pool(w: Writer, source: Ref) -> Ref:
    source = w.reshape(source, 4)
    at = pool_window(w, source)
    shape = (source.shape[0], *window_result(source.shape, at), source.shape[3])
    target = w.draft.result(attrs.evolve(source.type, shape=shape))
    return w.draft.emit("maxpool", target, source, **at, Layout=0)


def pool_window(w: Writer, source: Ref) -> dict[str, Any]:
    """Draw a window whose pads may be so large that it lies in padding alone at some places."""
    at = window(w, source.shape[1], source.shape[2], dilated=False)
    if w.pick(False, False, True):
        at["Pads"] = tuple(p + w.number(0, 2) for p in at["Pads"])
    return at


def avg_pool(w: Writer, source: Ref) -> Ref:
    source = w.reshape(source, 4)
    counts_pads = 0 if w.numerics == "q31" else w.number(0, 1)
    wide = counts_pads and w.chance()
    plain = window(w, source.shape[1], source.shape[2], dilated=False)
    at = pool_window(w, source) if wide else plain
    shape = (source.shape[0], *window_result(source.shape, at), source.shape[3])
    target = w.result(shape, source.type.quant.scale / 2)
    if w.numerics == "q31":
        target = w.draft.result(attrs.evolve(source.type, shape=shape))
    return w.draft.emit("avgpool", target, source, **at, Layout=0, CountIncludePads=counts_pads)


# Element by element


def is_own(source: Ref) -> bool:
    """Return whether a tensor is a buffer of the program, which may be changed in place."""
    return source.kind == "buffer"


def choose_target(w: Writer, source: Ref, around: float) -> Ref:
    """Return a new tensor for a result, or the source itself to work in place."""
    if is_own(source) and not w.draft.is_last and w.chance():
        if source in w.seen:
            w.seen.remove(source)
        return source
    return w.result(source.shape, around)


def binary(w: Writer, source: Ref) -> Ref:
    kinds = ("elementadd", "elementsub", "elementmul", "elementmax", "elementmin")
    opcode = w.pick(*kinds)
    other = w.partner(source)
    scale, second = source.type.quant.scale, other.type.quant.scale
    around = scale * second * 80 * w.unit if opcode == "elementmul" else max(scale, second) * 1.3
    target = choose_target(w, source, around)
    pair = (source, other) if w.chance() else (other, source)
    return w.draft.emit(opcode, target, *pair)


def batched_add(w: Writer, source: Ref) -> Ref:
    if len(source.shape) < 2:
        source = w.reshape(source, 2)
    piece_shape = source.shape[1:]
    scale = source.type.quant.scale
    if w.chance():
        values = w.rng.normal(0, 20000 * w.unit, piece_shape).astype(np.int32)
        fine = scale / 256 if w.powers else scale / 219.7
        piece = w.draft.constant(values, "i32", fine, w.pick(0, 0, -300))
    elif w.chance():
        piece = w.constant(piece_shape)
    else:
        piece = w.draft.input(w.narrow_type(piece_shape))
    return w.draft.emit("batchedadd", choose_target(w, source, scale * 1.4), source, piece)


def unary(w: Writer, source: Ref) -> Ref:
    opcode = w.pick("relu", "clip", "leakyrelu", "cpumaxsplat", "rescalequantized", "relu")
    quant = source.type.quant
    if opcode == "cpumaxsplat" or w.chance():
        own = is_own(source) and not w.draft.is_last and w.chance()
        target = source if own else w.draft.result(source.type)
        if own and source in w.seen:
            w.seen.remove(source)
    else:
        target = w.result(source.shape, quant.scale)
    return w.draft.emit(opcode, target, source, **unary_attributes(w, opcode, quant.scale))


def unary_attributes(w: Writer, opcode: str, scale: float) -> dict[str, Any]:
    real = float(np.float32(scale * w.unit * w.number(-140, 140)))
    if opcode == "clip":
        return {"Min": real, "Max": real + scale * w.unit * w.number(0, 150)}
    if opcode == "leakyrelu":
        return {"Alpha": 0.25 if w.powers else float(np.float32(0.07))}
    return {"SplatValue": real} if opcode == "cpumaxsplat" else {}


def look_up(w: Writer, source: Ref) -> Ref:
    target = w.result(source.shape, None)
    table = w.draft.constant(w.values((256 if w.elem == "i8" else 65536,)), w.elem)
    return w.draft.emit("intlookuptable", target, source, table)


def splat(w: Writer, source: Ref) -> Ref:
    """Draw a filled tensor and the element-wise maximum of it and the source."""
    was_last, w.draft.is_last = w.draft.is_last, False
    filled = w.result(source.shape, None)
    value = float(np.float32(filled.type.quant.scale * w.number(-300, 300) * w.unit))
    w.draft.emit("splat", filled, Value=value)
    w.draft.is_last = was_last
    return w.draft.emit("elementmax", w.result(source.shape, None), source, filled)


ARITHMETIC: tuple[Step, ...] = (
    convolution,
    convolution,
    convolution,
    fully_connected,
    product_of_activations,
    max_pool,
    avg_pool,
    binary,
    batched_add,
    unary,
    unary,
    look_up,
    splat,
)
