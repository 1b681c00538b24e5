"""Small networks of two layers whose second layer gets a fault."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "compiler"))
from lir_draft import Draft, Ref, int8, tensor_type

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.interpreter import dequantize, execute_real
from nmpsim.lir.nodes import Instruction, Module
from nmpsim.lir.verify import verify

Array = np.ndarray[Any, Any]
Rng = np.random.Generator
CONFIG = attrs.evolve(nmpsim.default_device(), cores_count=2)


@attrs.frozen(eq=False)
class Network:
    """Network whose second layer gets a fault, with inputs."""

    module: Module
    inputs: Mapping[str, Array]
    numerics: str
    layer: str
    """Name of the instruction of the layer."""

    @property
    def operation(self) -> Instruction:
        return next(one for one in self.module.instructions if one.name == self.layer)

    def name(self, index: int) -> str:
        """Return the name of an operand of the layer."""
        return self.operation.operands[index].name

    def constant(self, index: int) -> Array:
        return self.module.constants[self.name(index)]

    def with_constants(self, **values: Array) -> Network:
        constants = {**self.module.constants, **values}
        return self._evolve(constants=constants)

    def with_operation(self, **changes: Any) -> Network:
        return self._evolve(
            instructions=tuple(
                attrs.evolve(one, **changes) if one.name == self.layer else one
                for one in self.module.instructions
            )
        )

    def with_attributes(self, **attributes: Any) -> Network:
        return self.with_operation(attributes={**self.operation.attributes, **attributes})

    def with_type(self, name: str, scale: float = 1.0, offset: int | None = None) -> Network:
        """Return a network with a tensor's scale multiplied and its zero point replaced."""

        def change(type: Any) -> Any:
            new = type.quant.offset if offset is None else offset
            return tensor_type(type.elem, type.shape, type.quant.scale * scale, new)

        weights = tuple(
            attrs.evolve(one, type=change(one.type)) if one.name == name else one
            for one in self.module.weights
        )
        instructions = tuple(
            attrs.evolve(one, attributes={**one.attributes, "Ty": change(one.attributes["Ty"])})
            if one.name == name
            else one
            for one in self.module.instructions
        )
        return self._evolve(weights=weights, instructions=instructions)

    def with_input_type(self, type: Any, inputs: Mapping[str, Array]) -> Network:
        """Return a network with another type and values of its first two inputs."""
        sources = (*list(inputs)[:2], self.name(1))
        weights = tuple(
            attrs.evolve(one, type=type) if one.name in sources else one
            for one in self.module.weights
        )
        instructions = tuple(
            attrs.evolve(one, attributes={**one.attributes, "Ty": type})
            if one.name in sources
            else one
            for one in self.module.instructions
        )
        changed = self._evolve(weights=weights, instructions=instructions)
        return attrs.evolve(changed, inputs=inputs)

    def without_instruction(self, opcode: str) -> Network:
        """Return a network in which an activation is a view of its input."""
        (clip,) = (one for one in self.module.instructions if one.opcode == opcode)
        target, source = (one.name for one in clip.operands)
        instructions = [
            attrs.evolve(
                one,
                operands=tuple(
                    attrs.evolve(o, name=target) if o.name == source else o for o in one.operands
                ),
            )
            for one in self.module.instructions
            if one is not clip and one.name != source
        ]
        return self._evolve(
            instructions=tuple(attrs.evolve(o, number=n) for n, o in enumerate(instructions))
        )

    def _evolve(self, **changes: Any) -> Network:
        return attrs.evolve(self, module=attrs.evolve(self.module, **changes))

    def compile(self) -> Bundle:
        verify(self.module)
        return parse_bundle(compile_module(self.module, CONFIG, numerics=self.numerics))


def make_network(structure: str, rng: Rng, numerics: str = "glow-int") -> Network:
    """Return a random network: the maximum of two inputs, then a layer of a structure."""
    draft = Draft()
    height, width = (int(rng.integers(5, 10)) for _ in range(2))
    channels = int(rng.choice([4, 8])) if "grouped" in structure else int(rng.choice([3, 4, 8]))
    shape = (1, height, width, channels)
    if structure.startswith(("fc", "rowwise")):
        shape = (6, 24)
    elem = "i16" if "int16" in structure else "i8"
    is_symmetric = (numerics in ("q31", "onnx") and structure != "add") or elem == "i16"
    offset = int(rng.integers(-20, 20)) if elem == "i8" else 0
    kind = tensor_type(elem, shape, float(rng.uniform(0.01, 0.05)), offset)
    left, right = draft.input(kind), draft.input(kind)
    source = draft.emit("elementmax", draft.buffer(kind), left, right)
    build = STRUCTURES[structure]
    result = build(draft, source, rng, is_symmetric)
    name = draft.instructions[-1].name
    module = draft.module()
    inputs = {name: _draw_values(rng, kind.dtype, kind.shape, 45, offset) for name in draft.inputs}
    network = Network(module, inputs, numerics, name)
    network = _fit_scale(network, result)
    if structure.endswith("relu"):
        network = add_activation(network, result)
    return network


def _fit_scale(network: Network, result: Ref) -> Network:
    """Return a network whose result uses most of its type."""
    if network.operation.opcode in ("maxpool", "avgpool", "inserttensor"):
        return network
    types = {one.name: one.type for one in network.module.weights}
    reals = {name: dequantize(array, types[name]) for name, array in network.inputs.items()}
    real = list(execute_real(network.module, reals))[-1][2]
    step = 2.2 * float(np.std(real)) / 100
    if result.type.elem == "i16":
        return network.with_type(result.name, step / 256 / 0.5, 0)
    return network.with_type(result.name, step / 0.5, int(np.clip(-real.mean() / step, -90, 90)))


def add_activation(
    network: Network, result: Ref, opcode: str = "relu", **attributes: float
) -> Network:
    """Return a network with a ReLU or clip as last instruction."""
    type = next(one.type for one in network.module.weights if one.name == result.name)
    draft = Draft()
    draft.weights = list(network.module.weights)
    draft.instructions = list(network.module.instructions)
    draft.constants = dict(network.module.constants)
    draft._names = 100
    last = draft.output(type)
    before = draft.buffer(type)
    draft.weights = [one for one in draft.weights if one.name != result.name]
    old = draft.instructions.pop(-2)
    buffer = draft.instructions.pop(-1)
    first = attrs.evolve(old.operands[0], name=before.name)
    draft.instructions += [
        attrs.evolve(buffer, number=old.number),
        attrs.evolve(old, number=old.number + 1, operands=(first, *old.operands[1:])),
    ]
    draft.emit(opcode, last, before, **attributes)
    return attrs.evolve(network, module=draft.module())


def _pick_window(
    rng: Rng, shape: tuple[int, ...], largest: int = 3, *, padded: bool = True, dilation: int = 1
) -> tuple[dict[str, Any], tuple[int, int]]:
    kernel = tuple(int(rng.integers(2, largest + 1)) for _ in range(2))
    if rng.random() < 0.6:
        kernel = (3, 3)
    strides = tuple(int(rng.choice([1, 2])) for _ in range(2))
    pads = []
    for size, k, s in zip(shape[1:3], kernel, strides, strict=True):
        span = (k - 1) * dilation + 1
        total = max((-(-size // s) - 1) * s + span - size, 0) if padded else 0
        pads.append((total // 2, total - total // 2))
    attributes = {
        "Kernels": kernel,
        "Strides": strides,
        "Pads": (pads[0][0], pads[1][0], pads[0][1], pads[1][1]),
    }
    out = tuple(
        (size + sum(pad) - (k - 1) * dilation - 1) // s + 1
        for size, pad, k, s in zip(shape[1:3], pads, kernel, strides, strict=True)
    )
    return attributes, out


def _draw_values(
    rng: Rng, dtype: Any, shape: tuple[int, ...], spread: float = 40, mean: float = 0
) -> Array:
    """Return normally distributed integers; spread and mean are those of int8."""
    limits = np.iinfo(dtype)
    unit = (limits.max + 1) // 128
    return np.clip(
        rng.normal(mean * unit, spread * unit, shape), limits.min + 1, limits.max
    ).astype(dtype)


def _bias(rng: Rng, count: int, elem: str = "i8") -> Array:
    largest = 9000 if elem == "i8" else 9000 << 15
    return rng.integers(-largest, largest, count).astype(np.int32)


def _conv(
    draft: Draft,
    source: Ref,
    rng: Rng,
    symmetric: bool,
    *,
    group: int = 1,
    channelwise: bool = False,
    padded: bool = True,
    dilation: int = 1,
) -> Ref:
    """Add a convolution; ``group`` 0 means depthwise."""
    attributes, out = _pick_window(rng, source.shape, padded=padded, dilation=dilation)
    depth, elem = source.shape[3], source.type.elem
    group = group or depth
    count = depth if group == depth else int(rng.choice([depth, 2 * depth]))
    shape = (count, *attributes["Kernels"], depth // group)
    scale, offset = float(rng.uniform(0.002, 0.01)), 0 if symmetric else int(rng.integers(-5, 6))
    if channelwise:
        offset = 0
    values = _draw_values(rng, source.type.dtype, shape)
    weights = draft.constant(values, elem, scale, offset)
    product = source.type.quant.scale * weights.type.quant.scale
    bias = draft.constant(_bias(rng, count, elem), "i32", product)
    result = draft.output(tensor_type(elem, (1, *out, count), 0.5))
    attributes |= {"Group": group, "Dilation": (dilation, dilation)}
    attributes |= {"FusedActivation": "NONE", "FusedActivationArgs": ()}
    if not channelwise:
        operands = (result, source, weights, bias)
        return draft.emit("convolution", *operands, Layout="NHWC", **attributes)
    scales = (scale * rng.uniform(0.5, 2, count)).astype(np.float32)
    tables = [
        draft.constant(scales, "float"),
        draft.constant(np.zeros(count, np.int32), "index32"),
        draft.constant((np.float32(source.type.quant.scale) * scales).astype(np.float32), "float"),
        draft.constant(np.zeros(count, np.int32), "index32"),
    ]
    operands = (result, source, weights, bias, *tables)
    return draft.emit("channelwisequantizedconvolution", *operands, **attributes)


def _fc(draft: Draft, source: Ref, rng: Rng, symmetric: bool, *, rowwise: bool = False) -> Ref:
    rows, depth = source.shape
    count, elem = 10, source.type.elem
    scale, offset = float(rng.uniform(0.002, 0.01)), 0 if symmetric else int(rng.integers(-5, 6))
    shape = (count, depth) if rowwise else (depth, count)
    values = _draw_values(rng, source.type.dtype, shape)
    weights = draft.constant(values, elem, scale, 0 if rowwise else offset)
    product = source.type.quant.scale * weights.type.quant.scale
    bias = draft.constant(_bias(rng, count, elem), "i32", product)
    result = draft.output(tensor_type(elem, (rows, count), 0.5))
    if not rowwise:
        return draft.emit("fullyconnected", result, source, weights, bias)
    scales = draft.constant((scale * rng.uniform(0.5, 2, count)).astype(np.float32), "float")
    offsets = draft.constant(np.zeros(count, np.int32), "index32")
    operands = (result, source, weights, bias, scales, offsets)
    return draft.emit("rowwisequantizedfullyconnected", *operands)


def _add(draft: Draft, source: Ref, rng: Rng, symmetric: bool) -> Ref:
    other = draft.input(
        int8(source.shape, source.type.quant.scale * 1.7, -source.type.quant.offset)
    )
    return draft.emit("elementadd", draft.output(int8(source.shape)), source, other)


def _pool(draft: Draft, source: Ref, rng: Rng, symmetric: bool, opcode: str = "maxpool") -> Ref:
    attributes, out = _pick_window(rng, source.shape)
    shape = (1, *out, source.shape[3])
    quant = source.type.quant
    result = draft.output(int8(shape, quant.scale, quant.offset))
    more = {"CountIncludePads": 0} if opcode == "avgpool" else {}
    return draft.emit(opcode, result, source, Layout=0, **more, **attributes)


def _concat(draft: Draft, source: Ref, rng: Rng, symmetric: bool) -> Ref:
    quant, shape = source.type.quant, source.shape
    kind = int8((*shape[:3], 3 * shape[3]), quant.scale, quant.offset)
    result = draft.output(kind)
    others = [draft.input(source.type) for _ in range(2)]
    draft.emit("touch", result)
    draft.emit("inserttensor", result, others[0], Offsets=(0, 0, 0, 0), Count=1, Axis=3)
    draft.emit("inserttensor", result, others[1], Offsets=(0, 0, 0, shape[3]), Count=1, Axis=3)
    offsets = (0, 0, 0, 2 * shape[3])
    return draft.emit("inserttensor", result, source, Offsets=offsets, Count=1, Axis=3)


STRUCTURES: dict[str, Callable[..., Ref]] = {
    "conv": _conv,
    "conv relu": _conv,
    "conv unpadded": partial(_conv, padded=False),
    "conv dilated": partial(_conv, dilation=2),
    "conv int16": _conv,
    "grouped": partial(_conv, group=2),
    "channelwise": partial(_conv, channelwise=True),
    "channelwise grouped": partial(_conv, channelwise=True, group=2),
    "depthwise": partial(_conv, group=0, channelwise=True),
    "fc": _fc,
    "fc int16": _fc,
    "rowwise": partial(_fc, rowwise=True),
    "add": _add,
    "maxpool": _pool,
    "avgpool": partial(_pool, opcode="avgpool"),
    "concat": _concat,
}
