"""Int8 networks with random weights, made for measuring: one like VGG, one like MobileNet."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.lir.nodes import (
    Instruction,
    Module,
    Operand,
    Quantization,
    SourcePosition,
    TensorType,
    WeightVar,
)
from nmpsim.lir.verify import verify

NOWHERE = SourcePosition(1, 1)
ALLOCATIONS = ("allocactivation", "tensorview")
"""Instructions that compute nothing."""
VGG_STAGES = ((2, 32), (2, 64), (3, 128), (3, 256), (3, 256))
"""Convolutions and output channels between two pools."""
MOBILE_BLOCKS = ((1, 64), (2, 128), (1, 128), (2, 256), (1, 256), (2, 512), *((1, 512),) * 3)
"""Stride of the depthwise convolution and output channels of the pointwise one."""
CLASSES = 1000


class Network:
    """A module as it is written; every tensor is NHWC Int8."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rng = np.random.default_rng(1)
        self._weights: list[WeightVar] = []
        self._instructions: list[Instruction] = []
        self._constants: dict[str, np.ndarray[Any, Any]] = {}
        self._types: dict[str, TensorType] = {}

    def input(self, *shape: int) -> str:
        """Return the network's input."""
        return self._weight("data", _quantized("i8", shape), constant=False)

    def conv(self, x: str, channels: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> str:
        """Return a convolution that keeps the size, but for its stride, with ReLU."""
        images, height, width, depth = self._types[x].shape
        weights = self._constant("filter", (channels, kernel, kernel, depth // groups))
        bias = self._constant("bias", (channels,), "i32")
        result = (images, -(-height // stride), -(-width // stride), channels)
        return self._emit(
            "convolution",
            result,
            (x, weights, bias),
            Kernels=(kernel, kernel),
            Strides=(stride, stride),
            Pads=(kernel // 2,) * 4,
            Group=groups,
            Dilation=(1, 1),
            Layout="NHWC",
            FusedActivation="RELU",
            FusedActivationArgs=(),
        )

    def pool(self, x: str, kernel: int, average: bool = False) -> str:
        """Return a pool whose windows do not overlap."""
        images, height, width, depth = self._types[x].shape
        extra = {"CountIncludePads": 1} if average else {}
        return self._emit(
            "avgpool" if average else "maxpool",
            (images, height // kernel, width // kernel, depth),
            (x,),
            Kernels=(kernel, kernel),
            Strides=(kernel, kernel),
            Pads=(0,) * 4,
            Layout=0,
            **extra,
        )

    def add(self, x: str, y: str) -> str:
        """Return the sum of two tensors of one shape."""
        return self._emit("elementadd", self._types[x].shape, (x, y))

    @property
    def count(self) -> int:
        """Operations so far."""
        return sum(one.opcode not in ALLOCATIONS for one in self._instructions)

    def dense(self, x: str, columns: int) -> str:
        """Return a fully connected layer on all values of an image."""
        shape = self._types[x].shape
        flat = self._view(x, (shape[0], int(np.prod(shape[1:]))))
        weights = self._constant("weights", (self._types[flat].shape[1], columns))
        bias = self._constant("bias", (columns,), "i32")
        return self._emit("fullyconnected", (shape[0], columns), (flat, weights, bias))

    def module(self, result: str) -> Module:
        """Return the verified module; ``result`` is its output."""
        output = self._weight("prob", self._types[result], constant=False)
        self._add("copy", (("@out", output), ("@in", result)), {})
        module = Module(
            self._name, tuple(self._weights), tuple(self._instructions), self._constants
        )
        verify(module)
        return module

    def _constant(self, stem: str, shape: tuple[int, ...], elem: str = "i8") -> str:
        name = f"{stem}_{len(self._weights)}"
        dtype, limit = (np.int8, 127) if elem == "i8" else (np.int32, 2000)
        self._constants[name] = self._rng.integers(-limit, limit, shape).astype(dtype)
        return self._weight(name, _quantized(elem, shape), constant=True)

    def _weight(self, name: str, kind: TensorType, constant: bool) -> str:
        self._weights.append(WeightVar(name, kind, constant, NOWHERE))
        self._types[name] = kind
        return name

    def _emit(
        self, opcode: str, shape: tuple[int, ...], sources: tuple[str, ...], **attributes: Any
    ) -> str:
        result = f"t{len(self._instructions)}"
        self._types[result] = _quantized("i8", shape)
        self._add("allocactivation", (), {"Ty": self._types[result]}, result)
        self._add(opcode, (("@out", result), *(("@in", s) for s in sources)), attributes)
        return result

    def _view(self, source: str, shape: tuple[int, ...]) -> str:
        name = f"t{len(self._instructions)}"
        self._types[name] = _quantized("i8", shape)
        offsets = (0,) * len(self._types[source].shape)
        attributes = {"Ty": self._types[name], "Offsets": offsets}
        self._add("tensorview", (("@in", source),), attributes, name)
        return name

    def _add(
        self,
        opcode: str,
        operands: tuple[tuple[str, str], ...],
        attributes: dict[str, Any],
        name: str = "",
    ) -> None:
        number = len(self._instructions)
        written = tuple(Operand(kind, operand, NOWHERE) for kind, operand in operands)
        self._instructions.append(
            Instruction(number, name or f"{opcode}_{number}", opcode, written, attributes, NOWHERE)
        )


def _quantized(elem: str, shape: tuple[int, ...]) -> TensorType:
    scale = 2.0**-5 if elem == "i8" else 2.0**-10
    return TensorType(elem, shape, Quantization(scale, 0, -128 * scale, 127 * scale))


def vgg_like(size: int = 64) -> Module:
    """Thirteen 3x3 convolutions in five stages, then two fully connected layers."""
    network = Network("vgg-like")
    x = network.input(1, size, size, 3)
    for count, channels in VGG_STAGES:
        for _ in range(count):
            x = network.conv(x, channels)
        x = network.pool(x, 2)
    return network.module(network.dense(network.dense(x, 512), CLASSES))


def mobilenet_like(size: int = 96) -> Module:
    """Pairs of a depthwise 3x3 and a pointwise convolution."""
    network = Network("mobilenet-like")
    x = network.conv(network.input(1, size, size, 3), 32, stride=2)
    channels = 32
    for stride, wider in MOBILE_BLOCKS:
        x = network.conv(x, channels, stride=stride, groups=channels)
        x = network.conv(x, wider, kernel=1)
        channels = wider
    x = network.pool(x, -(-size // 16), average=True)
    return network.module(network.dense(x, CLASSES))
