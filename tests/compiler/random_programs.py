"""Hypothesis strategies for valid LIR programs and for devices to run them on.

Structure is drawn, so that it shrinks; the elements of tensors come from a drawn seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
from hypothesis import strategies as st
from lir_draft import Draft, Ref, random_values, tensor_type

from nmpsim.config import default_device
from nmpsim.lir import Module, print_module
from nmpsim.lir.nodes import ELEM_DTYPES

Array = np.ndarray[Any, Any]
CHANNELS = (1, 2, 3, 4, 8, 16, 17, 33)
CORES = (1, 2, 3, 4, 7, 8, 16, 31, 32, 64)
SCRATCHPADS = (4096, 4160, 6144, 8192, 16384, 32768, 65536, 131072)
ELEMS = ("i8", "i16", "i32", "float", "float16", "index64", "bool")


class Program:
    """A module, what it is run on, and whose arithmetic it follows; it shows itself as LIR text."""

    def __init__(
        self,
        module: Module,
        inputs: dict[str, Array],
        numerics: str = "glow-int",
        by_layer: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.module = module
        self.inputs = inputs
        self.numerics = numerics
        self.by_layer = by_layer

    def __repr__(self) -> str:
        return f"{self.numerics} {dict(self.by_layer)}\n{print_module(self.module)}"


class Size:
    """Of a device: cores and bytes of a scratchpad."""

    def __init__(self, cores: int, scratchpad_bytes: int) -> None:
        self.config = attrs.evolve(
            default_device(), cores_count=cores, scratchpad_bytes=scratchpad_bytes
        )

    def __repr__(self) -> str:
        return f"Size({self.config.cores_count}, {self.config.scratchpad_bytes})"


@st.composite
def sizes(draw: Any) -> Size:
    return Size(
        draw(st.sampled_from(CORES) | st.integers(1, 64)),
        draw(st.sampled_from(SCRATCHPADS) | st.integers(64, 2048).map(lambda n: 64 * n)),
    )


class Writer:
    """Draws one operation after the other into a draft."""

    def __init__(self, draw: Any, elem: str = "i8", numerics: str = "glow-int") -> None:
        self.draw = draw
        self.elem = elem
        self.numerics = numerics
        self.unit = 1 if elem == "i8" else 256
        """How many times finer than Int8 the elements are."""
        self.draft = Draft()
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.powers = draw(st.booleans())
        self.seen: list[Ref] = []
        """Tensors that hold values and are not written again."""

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def chance(self) -> bool:
        return bool(self.draw(st.booleans()))

    def scale(self, around: float | None = None) -> float:
        scale = (0.05 / self.unit if around is None else around) * 2 ** self.rng.uniform(-2, 2)
        return float(np.float32(2.0 ** round(np.log2(scale)) if self.powers else scale))

    def offset(self) -> int:
        low, high = -128 * self.unit, 128 * self.unit - 1
        return int(self.pick(0, 0, low, high, self.number(low, high)))

    def values(self, shape: tuple[int, ...], elem: str | None = None) -> Array:
        return random_values(self.rng, tensor_type(elem or self.elem, shape))

    def narrow_type(self, shape: tuple[int, ...], around: float | None = None) -> Any:
        return tensor_type(self.elem, shape, self.scale(around), self.offset())

    def result(self, shape: tuple[int, ...], around: float | None) -> Ref:
        return self.draft.result(self.narrow_type(shape, around))

    def constant(self, shape: tuple[int, ...]) -> Ref:
        return self.draft.constant(self.values(shape), self.elem, self.scale(), self.offset())

    def reshaped(self, source: Ref, rank: int) -> Ref:
        """The tensor, or a view of it with another number of dimensions."""
        if len(source.shape) == rank:
            return source
        size = source.type.elements
        if rank == 2:
            first = source.shape[0] if source.shape else 1
            shape: tuple[int, ...] = (first, size // first)
        else:
            last = source.shape[-1] if source.shape else 1
            shape = (*(1,) * (rank - 2), size // last, last)
        return self.draft.view(source, attrs.evolve(source.type, shape=shape))

    def partner(self, like: Ref, kind: Any = None) -> Ref:
        """Another tensor of this shape: one seen before, a constant, or an input."""
        same = [r for r in self.seen if r.shape == like.shape and r.type.elem == self.elem]
        if same and self.chance():
            return self.draw(st.sampled_from(same))
        if self.chance():
            return self.constant(like.shape)
        return self.draft.input(self.narrow_type(like.shape))

    def bias(self, count: int, product: float, typical: float, target: Ref) -> Ref:
        """Small beside 32 bits when it is on the accumulator's scale, and what a profile takes."""
        if self.numerics == "nmp":
            return self.bias_on_result(count, target)
        if self.numerics == "q31" or (self.numerics.startswith("float") and self.chance()):
            return self.draft.constant(self.spread(count, max(typical, 50.0)), "i32", product, 0)
        if self.numerics.startswith("float") and self.chance():
            values = self.rng.normal(0, max(typical, 50.0) * product, count).astype(np.float32)
            return self.draft.constant(values, "float")
        if self.chance():
            scale = product * 2.0 ** self.number(0, 8) if self.powers else product * 37.3
            elem = self.pick("i8", self.elem)
            offset = self.number(-128, 127)
            return self.draft.constant(self.values((count,), elem), elem, scale, offset)
        ratio = float(self.pick(1.0, 1.0, 4.0, 0.5))
        if not self.powers:
            ratio *= float(self.rng.uniform(0.7, 1.4))
        values = self.spread(count, max(typical, 50.0))
        offset = int(self.pick(0, 0, 1000, -77))
        return self.draft.constant(values, "i32", product * ratio, offset)

    def spread(self, count: int, width: float) -> Array:
        """Int32 values around 0."""
        drawn = self.rng.normal(0, width, count)
        return np.clip(drawn, -(2**30), 2**30).astype(np.int32)

    def bias_on_result(self, count: int, target: Ref) -> Ref:
        """As the NMP's library wants it; the offset may be any."""
        elem = self.pick("i8", "i16", "i32")
        values = self.rng.normal(0, 40 * self.unit, count).astype(np.int32)
        limits = np.iinfo(ELEM_DTYPES[elem])
        values = np.clip(values, limits.min, limits.max).astype(limits.dtype)
        offset = self.pick(0, 0, target.type.quant.offset, -7)
        offset = int(np.clip(offset, limits.min, limits.max))
        return self.draft.constant(values, elem, target.type.quant.scale, offset)


# Windows


def window(w: Writer, height: int, width: int, dilated: bool) -> dict[str, Any]:
    """Kernels, strides, pads and dilation that fit into an image."""
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
    """Rows and columns of the result."""
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
    """Plain, grouped or depthwise, with one scale or one for each channel."""
    source = w.reshaped(source, 4)
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
        tables[2:] = on_products(w, source, tables[0])
    opcode = "channelwisequantizedconvolution"
    return w.draft.emit(opcode, target, source, filter_, bias, *tables, **at)


def channel_tables(w: Writer, outs: int, filter_: float, bias: float) -> list[Ref]:
    """Filter and bias scales and offsets, each near those of the tensors."""
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


def on_products(w: Writer, source: Ref, filters: Ref) -> list[Ref]:
    """Bias scales that are those of the sums."""
    scales = np.float32(source.type.quant.scale) * w.draft.constants[filters.name]
    return [
        w.draft.constant(scales, "float"),
        w.draft.constant(np.zeros(scales.size, np.int32), "index32"),
    ]


def fully_connected(w: Writer, source: Ref) -> Ref:
    """With one scale, one a row, or as a product with constant weights."""
    source = w.reshaped(source, 2)
    rows, depth = source.shape
    outs = w.pick(1, 3, 10, 16, 17, 33, 70)
    by_rows = () if w.numerics == "q31" else ("rowwisequantizedfullyconnected",)
    opcode = w.pick("fullyconnected", "matmul", *by_rows)
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


def product_of_activations(w: Writer, source: Ref) -> Ref:
    left = w.reshaped(source, 2)
    right = w.draft.input(w.narrow_type((left.shape[1], w.pick(1, 3, 16, 17, 40))))
    around = left.type.quant.scale * right.type.quant.scale * 137 * w.unit * left.shape[1] ** 0.5
    target = w.result((left.shape[0], right.shape[1]), around)
    if w.chance() and left.shape[0] == right.shape[1] == left.shape[1]:
        left, right = right, left
    return w.draft.emit("matmul", target, left, right)


def max_pool(w: Writer, source: Ref) -> Ref:
    source = w.reshaped(source, 4)
    at = pool_window(w, source)
    shape = (source.shape[0], *window_result(source.shape, at), source.shape[3])
    target = w.draft.result(attrs.evolve(source.type, shape=shape))
    return w.draft.emit("maxpool", target, source, **at, Layout=0)


def pool_window(w: Writer, source: Ref) -> dict[str, Any]:
    """A window; its pads may be so large that some windows lie in padding alone."""
    at = window(w, source.shape[1], source.shape[2], dilated=False)
    if w.pick(False, False, True):
        at["Pads"] = tuple(p + w.number(0, 2) for p in at["Pads"])
    return at


def avg_pool(w: Writer, source: Ref) -> Ref:
    source = w.reshaped(source, 4)
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
    """A buffer of the program's own may be worked on in place."""
    return source.kind == "buffer"


def place_for(w: Writer, source: Ref, around: float) -> Ref:
    """A new tensor, or the source itself."""
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
    target = place_for(w, source, around)
    pair = (source, other) if w.chance() else (other, source)
    return w.draft.emit(opcode, target, *pair)


def batched_add(w: Writer, source: Ref) -> Ref:
    if len(source.shape) < 2:
        source = w.reshaped(source, 2)
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
    return w.draft.emit("batchedadd", place_for(w, source, scale * 1.4), source, piece)


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
    """A filled tensor, then the larger of it and the source."""
    was_last, w.draft.is_last = w.draft.is_last, False
    filled = w.result(source.shape, None)
    value = float(np.float32(filled.type.quant.scale * w.number(-300, 300) * w.unit))
    w.draft.emit("splat", filled, Value=value)
    w.draft.is_last = was_last
    return w.draft.emit("elementmax", w.result(source.shape, None), source, filled)


# Moving elements of any kind


def copy(w: Writer, source: Ref) -> Ref:
    return w.draft.emit("copy", w.draft.result(source.type), source)


def transpose(w: Writer, source: Ref) -> Ref:
    order = tuple(w.draw(st.permutations(range(len(source.shape)))))
    shape = tuple(source.shape[i] for i in order)
    target = w.draft.result(attrs.evolve(source.type, shape=shape))
    return w.draft.emit("transpose", target, source, Shuffle=order)


def extract(w: Writer, source: Ref) -> Ref:
    sizes = tuple(w.number(1, n) for n in source.shape)
    offsets = tuple(w.number(0, n - s) for n, s in zip(source.shape, sizes, strict=True))
    target = w.draft.result(attrs.evolve(source.type, shape=sizes))
    return w.draft.emit("extracttensor", target, source, Offsets=offsets)


def insert(w: Writer, source: Ref) -> Ref:
    """Once or several times, into a tensor that was filled before."""
    if not source.shape:
        source = w.reshaped(source, 1)
    axis, count = w.number(0, len(source.shape) - 1), w.pick(1, 1, 2, 3)
    extent = [n * (count if d == axis else 1) for d, n in enumerate(source.shape)]
    margins = [w.pick(0, 0, w.number(0, 3)) for _ in extent]
    kind = attrs.evolve(
        source.type, shape=tuple(n + m for n, m in zip(extent, margins, strict=True))
    )
    behind = w.draft.constant(random_values(w.rng, kind), kind.elem, *parameters(kind))
    target = w.draft.emit("copy", w.draft.result(kind), behind)
    offsets = tuple(w.number(0, m) for m in margins)
    return w.draft.emit("inserttensor", target, source, Offsets=offsets, Count=count, Axis=axis)


def parameters(kind: Any) -> tuple[float, int]:
    return (kind.quant.scale, kind.quant.offset) if kind.quant else (1.0, 0)


def concatenate(w: Writer, source: Ref) -> Ref:
    """Parts inserted into a buffer that was only touched; the parts are of one type."""
    if not source.shape:
        source = w.reshaped(source, 1)
    axis = w.number(0, len(source.shape) - 1)
    parts = [source]
    for _ in range(w.number(1, 2)):
        shape = list(source.shape)
        shape[axis] = w.number(1, 5)
        kind = attrs.evolve(source.type, shape=tuple(shape))
        parts.append(w.draft.constant(random_values(w.rng, kind), kind.elem, *parameters(kind)))
    shape = list(source.shape)
    shape[axis] = sum(p.shape[axis] for p in parts)
    target = w.draft.result(attrs.evolve(source.type, shape=tuple(shape)))
    w.draft.emit("touch", target)
    at = 0
    for part in parts:
        offsets = tuple(at if d == axis else 0 for d in range(len(shape)))
        w.draft.emit("inserttensor", target, part, Offsets=offsets, Count=1, Axis=axis)
        at += part.shape[axis]
    return target


def slice_view(w: Writer, source: Ref) -> Ref:
    """A view that begins somewhere inside; it goes on to be used by what follows."""
    offsets = tuple(w.number(0, n - 1) for n in source.shape)
    start = int(np.ravel_multi_index(offsets, source.shape)) if offsets else 0
    size = w.number(1, source.type.elements - start)
    shape = w.pick((size,), (1, size), (1, 1, 1, size))
    view = w.draft.view(source, attrs.evolve(source.type, shape=shape), offsets)
    return copy(w, view) if w.draft.is_last or w.chance() else view


Step = Callable[[Writer, Ref], Ref]
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
MOVES: tuple[Step, ...] = (copy, transpose, extract, insert, concatenate, slice_view)


def write(w: Writer, first: Ref, steps: tuple[Step, ...], length: int) -> Program:
    current = first
    w.seen.append(first)
    for index in range(length):
        step = w.draw(st.sampled_from(steps))
        w.draft.is_last = index == length - 1
        current = step(w, current)
        w.seen.append(current)
    inputs = {name: random_values(w.rng, kind) for name, kind in w.draft.inputs.items()}
    return Program(w.draft.module(), inputs, w.numerics)


@st.composite
def single_operations(
    draw: Any,
    steps: tuple[Step, ...] = ARITHMETIC,
    elem: str = "i8",
    numerics: str = "glow-int",
) -> Program:
    """One operation on an image."""
    w = Writer(draw, elem, numerics)
    return write(w, w.draft.input(w.narrow_type(_image(w))), steps, 1)


@st.composite
def large_operations(draw: Any, step: Step, elem: str = "i8") -> Program:
    """One operation on an image of thousands of elements."""
    w = Writer(draw, elem)
    shape = (w.number(1, 3), w.number(8, 14), w.number(8, 14), w.pick(8, 17, 33, 40))
    return write(w, w.draft.input(w.narrow_type(shape)), (step,), 1)


@st.composite
def chains(draw: Any, elem: str = "i8", numerics: str = "glow-int") -> Program:
    """Two to five operations of any kind."""
    w = Writer(draw, elem, numerics)
    first = w.draft.input(w.narrow_type(_image(w)))
    return write(w, first, (*ARITHMETIC, *MOVES, unary, unary), w.number(2, 5))


@st.composite
def deep_products(draw: Any) -> Program:
    """A fully connected layer or matrix product over thousands of inputs."""
    w = Writer(draw)
    shape = (w.number(1, 4), w.number(500, 6000))
    first = w.draft.input(w.narrow_type(shape, 0.02))
    return write(w, first, (fully_connected, fully_connected, product_of_activations), 1)


@st.composite
def moves(draw: Any) -> Program:
    """One to three moves of elements of any kind, of one to six dimensions."""
    w = Writer(draw)
    elem = w.pick(*ELEMS)
    shape = [w.number(1, 7) for _ in range(w.number(1, 6))]
    long = w.number(0, len(shape) - 1)
    shape[long] *= min(w.pick(1, 1, 8, 60, 1000), max(40_000 // int(np.prod(shape)), 1))
    first = w.draft.input(tensor_type(elem, tuple(shape), w.scale(), w.offset()))
    return write(w, first, MOVES, w.number(1, 3))


def _image(w: Writer) -> tuple[int, ...]:
    return (w.pick(1, 1, 2, 3), w.number(1, 14), w.number(1, 14), w.pick(*CHANNELS))
