"""Hypothesis strategies for float networks with reused buffers, views and concatenations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from lir_draft import Draft, Ref, tensor_type

from nmpsim.lir.nodes import Module
from nmpsim.lir.printer import format_module

Array = np.ndarray[Any, Any]


class FloatNet:
    """Module with samples of its input, whose representation is LIR text."""

    def __init__(self, module: Module, samples: dict[str, Array]) -> None:
        self.module = module
        self.samples = samples

    def __repr__(self) -> str:
        return format_module(self.module)


def real(*shape: int) -> Any:
    return tensor_type("float", shape)


class NetworkGenerator:
    """Generator that adds random operations on images or rows."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.draft = Draft()
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.live: list[Ref] = []
        """Tensors that may be read; one that is overwritten is here with its new meaning."""
        self.parts: set[str] = set()
        """Buffers that others show parts of, so that nothing may be written over them."""

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def source(self, rank: int | None = None) -> Ref | None:
        fitting = [ref for ref in self.live if rank is None or len(ref.shape) == rank]
        return self.draw(st.sampled_from(fitting)) if fitting else None

    def weights(self, *shape: int) -> Ref:
        spread = 1 / np.sqrt(max(1, np.prod(shape[1:])))
        return self.draft.constant(self.rng.normal(0, spread, shape).astype(np.float32), "float")

    def result(self, *shape: int) -> Ref:
        return self.draft.result(real(*shape))

    def keep(self, ref: Ref) -> None:
        if ref.kind != "output":
            self.live.append(ref)

    def emit(self, opcode: str, dest: Ref, *sources: Ref, **attributes: Any) -> None:
        self.draft.emit(opcode, dest, *sources, **attributes)
        self.keep(dest)


def convolution(writer: NetworkGenerator) -> None:
    src = writer.source(rank=4)
    if src is None:
        return
    n, h, w, c = src.shape
    kernel, group = writer.pick(1, 3), writer.pick(1, c)
    outputs = group * writer.pick(1, 2)
    writer.emit(
        "convolution",
        writer.result(n, h, w, outputs),
        src,
        writer.weights(outputs, kernel, kernel, c // group),
        writer.weights(outputs),
        Kernels=(kernel, kernel),
        Strides=(1, 1),
        Pads=(kernel // 2,) * 4,
        Group=group,
        Dilation=(1, 1),
        FusedActivation=writer.pick("NONE", "NONE", "RELU"),
        FusedActivationArgs=(),
    )


def pool(writer: NetworkGenerator) -> None:
    src = writer.source(rank=4)
    if src is None or min(src.shape[1:3]) < 2:
        return
    n, h, w, c = src.shape
    window = {"Kernels": (2, 2), "Strides": (2, 2), "Pads": (0, 0, 0, 0)}
    opcode = writer.pick("maxpool", "avgpool")
    if opcode == "avgpool":
        window["CountIncludePads"] = writer.pick(0, 1)
    writer.emit(opcode, writer.result(n, h // 2, w // 2, c), src, **window)


def fully_connected(writer: NetworkGenerator) -> None:
    src = writer.source()
    if src is None:
        return
    inner = src.type.elements
    flat = src if src.shape == (1, inner) else writer.draft.view(src, real(1, inner))
    writer.parts.add(src.name)
    opcode = writer.pick("fullyconnected", "matmul")
    weights, outputs = writer.weights(inner, 4), writer.result(1, 4)
    if opcode == "fullyconnected":
        writer.emit(opcode, outputs, flat, weights, writer.weights(4))
    else:
        writer.draft.emit("matmul", outputs, flat, weights)
        if outputs.kind == "buffer":
            writer.draft.emit("batchedadd", outputs, outputs, writer.weights(4))
        writer.keep(outputs)


UNARY = {
    "relu": {},
    "clip": {"Min": -0.5, "Max": 0.75},
    "leakyrelu": {"Alpha": 0.125},
    "cpumaxsplat": {"SplatValue": 0.0},
    "sigmoid": {},
    "tanh": {},
    "copy": {},
    "softmax": {},
}


def unary(writer: NetworkGenerator) -> None:
    src = writer.source()
    if src is None:
        return
    opcode = writer.pick(*UNARY)
    own = src.kind == "buffer" and src.name not in writer.parts and opcode != "copy"
    if own and writer.draw(st.booleans()):  # in place
        writer.live = [ref for ref in writer.live if ref.name != src.name]
        writer.emit(opcode, src, src, **UNARY[opcode])
    else:
        writer.emit(opcode, writer.result(*src.shape), src, **UNARY[opcode])


def binary(writer: NetworkGenerator) -> None:
    left = writer.source()
    if left is None:
        return
    fitting = [ref for ref in writer.live if ref.shape == left.shape]
    right = writer.draw(st.sampled_from(fitting))
    if writer.draw(st.booleans()):
        right = writer.weights(*left.shape)
    opcode = writer.pick("elementadd", "elementsub", "elementmul", "elementmax", "elementmin")
    writer.emit(opcode, writer.result(*left.shape), left, right)


def concatenation(writer: NetworkGenerator) -> None:
    first, second = writer.source(rank=4), writer.source(rank=4)
    if first is None or second is None or first.shape[:3] != second.shape[:3]:
        return
    whole = writer.result(*first.shape[:3], first.shape[3] + second.shape[3])
    if writer.draw(st.booleans()):
        writer.draft.emit("touch", whole)
    else:
        writer.draft.emit("splat", whole, Value=0.25)
    writer.draft.emit("inserttensor", whole, first, Offsets=(0, 0, 0, 0), Count=1, Axis=3)
    offsets = (0, 0, 0, first.shape[3])
    writer.emit("inserttensor", whole, second, Offsets=offsets, Count=1, Axis=3)


def add_slice(writer: NetworkGenerator) -> None:
    """Add a view that reads a slice, or write to a slice through a view."""
    src = writer.source(rank=4)
    if src is None or src.shape[1] < 2:
        return
    n, h, w, c = src.shape
    shown = real(n, h - 1, w, c)
    if writer.draw(st.booleans()) or src.kind != "buffer" or src.name in writer.parts:
        writer.parts.add(src.name)
        writer.live.append(writer.draft.view(src, shown, (0, 1, 0, 0)))
    else:
        view = writer.draft.view(src, shown, (0, 1, 0, 0))
        writer.draft.emit("relu", view, view)


def transposition(writer: NetworkGenerator) -> None:
    src = writer.source(rank=4)
    if src is None:
        return
    n, h, w, c = src.shape
    writer.emit("transpose", writer.result(n, w, h, c), src, Shuffle=(0, 2, 1, 3))


OPERATIONS: tuple[Callable[[NetworkGenerator], None], ...] = (
    convolution,
    convolution,
    pool,
    fully_connected,
    unary,
    unary,
    binary,
    concatenation,
    add_slice,
    transposition,
)


@st.composite
def float_nets(draw: Any) -> FloatNet:
    writer = NetworkGenerator(draw)
    shape = (1, writer.pick(2, 4, 5), writer.pick(2, 4), writer.pick(1, 3))
    data = writer.draft.input(real(*shape))
    writer.live.append(data)
    for _ in range(draw(st.integers(1, 8))):
        draw(st.sampled_from(OPERATIONS))(writer)
    last = writer.live[-1]
    if last.kind in ("buffer", "view") and draw(st.booleans()):
        writer.draft.emit("copy", writer.draft.output(last.type), last)
    else:
        add_output_operation(writer, data)
    samples = writer.rng.normal(0, 1, (3, *shape)).astype(np.float32)
    return FloatNet(writer.draft.module(), {data.name: samples})


def add_output_operation(writer: NetworkGenerator, data: Ref) -> None:
    """Add an operation that writes the output."""
    writer.draft.is_last = True
    before = len(writer.draft.outputs)
    convolution(writer)
    if len(writer.draft.outputs) == before:
        writer.draft.emit("copy", writer.draft.output(data.type), data)
