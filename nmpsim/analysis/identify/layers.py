"""Layers of a program with exact sums and the results that a device recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import attrs
import numpy as np

from nmpsim.analysis.identify.evaluation import Integers
from nmpsim.arrays import Array
from nmpsim.compiler.numerics import ProfileEncoder, WeightedLayerScales, Words
from nmpsim.compiler.operations import Operation
from nmpsim.diagnostics import Place
from nmpsim.interpreter.operations import convolve_real
from nmpsim.kernels.hostops.windows import SlidingWindow
from nmpsim.records import frozen

CONVOLUTION, CONNECTED = "convolution", "fully connected"
_BLOCK = 1 << 20
"""Elements of sums that are computed at a time."""


@attrs.frozen(eq=False)
class LayerSample:
    """Sample of a layer's elements: exact sums without bias, channels and recorded results."""

    sums: Integers
    channels: Integers
    results: Integers
    operands: Mapping[str, Array] = attrs.field(factory=dict)
    """Other values of a formula by name: the right operands ``rhs`` of pairs, whose left operands
    are ``sums``, or the numbers of taps and the float32 sums of a pool."""

    def take(self, indices: Any) -> LayerSample:
        """Return a sample of the elements at ``indices``."""
        operands = {name: values[indices] for name, values in self.operands.items()}
        parts = self.sums[indices], self.channels[indices], self.results[indices]
        return LayerSample(*parts, operands)

    @property
    def size(self) -> int:
        """Number of elements in the sample."""
        return int(self.sums.size)


@attrs.frozen(eq=False)
class _QuantizedLayer:
    """Layer whose results are quantized, with what layers with and without weights share."""

    operation: Operation

    @property
    def name(self) -> str:
        """Name of the layer's LIR instruction."""
        return self.operation.instruction.name

    @property
    def opcode(self) -> str:
        """Opcode of the layer's operation."""
        return self.operation.instruction.opcode

    @property
    def element(self) -> int:
        """Value of the descriptor word ``element``: 0 for Int8, 1 for Int16."""
        return self.operation.operands[0].element

    @property
    def offset(self) -> int:
        """Zero point of the layer's result."""
        return self.operation.operands[0].offset


@attrs.frozen(eq=False)
class RecordedLayer(_QuantizedLayer):
    """Quantized layer with weights, and the recorded values of its input and result."""

    scales: WeightedLayerScales
    weights: Integers
    """Weights without zero points, in the layout of the operation."""
    inputs: Array
    """[N, *shape of one input]: stored elements."""
    results: Array
    """[N, *shape of one result]"""
    clip: tuple[int, int]
    """Range to which the layer clips results."""
    is_by_order: bool = False
    """Whether the recorded input or result was matched by order."""
    program_inputs: Mapping[str, Array] = attrs.field(factory=dict)
    """Recorded inputs [N, *shape] of the program by name."""
    has_recorded_constants: bool = False
    """Whether the weights or the bias are in the dumps, in place of those of the program."""

    @property
    def kind(self) -> str:
        """Kind of the layer: "convolution" or "fully connected"."""
        return CONVOLUTION if self.scales.is_convolution else CONNECTED

    @property
    def sources(self) -> dict[str, Array]:
        """Recorded values [N, *shape] of the tensor that the layer reads, by its name."""
        return {self.operation.operands[1].name: self.inputs}

    @property
    def stored_weights(self) -> Integers:
        """Weights as stored, including their zero points, in the layout of the operation."""
        return self.weights + align_offsets(self.operation, self.scales, self.weights.ndim)

    @property
    def channels(self) -> int:
        """Number of output channels."""
        return self.scales.channels

    @property
    def has_bias(self) -> bool:
        """Whether the bias of any channel differs from 0."""
        return bool(self.biases.any())

    @property
    def taps(self) -> int:
        """Number of products in each sum, which is the number of weights per output channel."""
        return self.weights.size // self.scales.channels

    @cached_property
    def biases(self) -> Integers:
        """Bias of each channel, rounded to an integer on the scale of the sums."""
        layer = self.scales
        return layer.round_bias(layer.bias.real_values / layer.products)

    @cached_property
    def ideal_factors(self) -> Array:
        """Ideal factor of each channel from the sums' scale to the result's scale: float64."""
        layer = self.scales
        product = np.float64(layer.source.scale) * layer.weight_scales.astype(np.float64)
        return product / np.float64(layer.target.scale)

    def compute_ideal_results(self, sample: LayerSample) -> Array:
        """Compute the unrounded results of a sample, without the zero point, as float64."""
        totals = sample.sums + self.biases[sample.channels]
        ideal: Array = totals * self.ideal_factors[sample.channels]
        return ideal

    def estimate_results(self, sample: LayerSample) -> Integers:
        """Estimate the clipped results of a sample by rounding the ideal ones."""
        rounded = np.rint(self.compute_ideal_results(sample)).astype(np.int64)
        estimate: Integers = np.clip(rounded + self.offset, *self.clip)
        return estimate

    def iterate_samples(self) -> Iterator[LayerSample]:
        """Yield all elements of the layer as consecutive samples of limited size."""
        per_item = max(self.results[0].size, 1)
        rows = max(_BLOCK // per_item, 1)
        for first in range(0, len(self.inputs), rows):
            part = slice(first, first + rows)
            yield self._compute_sample(self.inputs[part], self.results[part])

    def _compute_sample(self, inputs: Array, results: Array) -> LayerSample:
        sums = self.compute_sums(inputs)
        channels = np.broadcast_to(np.arange(sums.shape[-1]), sums.shape)
        flat = (sums.reshape(-1), channels.reshape(-1), results.reshape(-1).astype(np.int64))
        return LayerSample(*flat)

    def compute_sums(self, inputs: Array) -> Integers:
        """Compute the layer's exact sums, channels last and without bias, for inputs [N, ...]."""
        op, centered = self.operation, inputs.astype(np.float64) - self.scales.source.offset
        weights = self.weights.astype(np.float64)
        if self.kind == CONNECTED:
            columns = weights if op.instruction.opcode == "fullyconnected" else weights.T
            product = centered.reshape(-1, columns.shape[0]) @ columns
            rows: Integers = product.astype(np.int64)
            return rows.reshape(len(inputs), -1, columns.shape[1])
        one, shape = op.operands[1].shape, op.operands[0].shape
        batch = len(inputs) * one[0]
        attributes = {**op.instruction.attributes, "FusedActivation": "NONE"}
        attributes.pop("FusedActivationArgs", None)
        sums = convolve_real(
            centered.reshape(batch, *one[1:]), weights, np.zeros(shape[-1]),
            (batch, *shape[1:]), attributes,
        )  # fmt: skip
        return sums.astype(np.int64).reshape(len(inputs), *shape)


@frozen
class OperationKind:
    """Kind of an operation: its name, and the kind and the value of its formula."""

    name: str
    formula: str
    """Kind of the formula in ``isa/formulas.toml``."""
    value: str
    """Name of the value that the formula rescales, or of the left operand of a pair."""


AVERAGE_POOL, MATMUL = "avgpool", "matmul"
OPERATION_KINDS = {
    "elementadd": OperationKind("addition", "add", "lhs"),
    "elementsub": OperationKind("subtraction", "sub", "lhs"),
    "elementmul": OperationKind("multiplication", "mul", "lhs"),
    "rescalequantized": OperationKind("rescale", "rescale", "x"),
    AVERAGE_POOL: OperationKind("average pool", "average", "acc"),
    MATMUL: OperationKind("matrix product", "sums", "acc"),
}
"""Kinds of operations whose rules are identified, by opcode."""


@attrs.frozen(eq=False)
class RecordedOperation(_QuantizedLayer):
    """Quantized operation without weights, and the recorded values of its inputs and result."""

    place: Place
    inputs: tuple[Array, ...]
    """Stored elements of each operand: [N, *shape] or [1, *shape]."""
    results: Array
    """[N, *shape of one result]"""
    clip: tuple[int, int]
    """Range to which the operation clips results."""
    is_by_order: bool = False
    """Whether a recorded tensor was matched by order."""
    has_recorded_constants: bool = False
    """Always False: constants are read from the program."""
    program_inputs: Mapping[str, Array] = attrs.field(factory=dict)
    """Always empty: the operands of a probe are inputs of the program."""
    channels: int = 1
    """All elements have the same factors."""

    @property
    def operation_kind(self) -> OperationKind:
        """Kind of the operation, which its opcode determines."""
        return OPERATION_KINDS[self.opcode]

    @property
    def kind(self) -> str:
        """Name of the operation's kind, such as "addition"."""
        return self.operation_kind.name

    @property
    def has_bias(self) -> bool:
        """False, because the operation has no bias."""
        return False

    def encode_factors(self, encoder: ProfileEncoder) -> Words:
        """Encode the factors of the operation as descriptor words of a profile."""
        return encoder.get_factor_words(self.operation, self.place)

    @property
    def sources(self) -> dict[str, Array]:
        """Recorded values of the tensors that the operation reads and that are no constants."""
        pairs = zip(self.operation.operands[1:], self.inputs, strict=True)
        return {view.name: values for view, values in pairs if not view.buffer.constant}

    @cached_property
    def window(self) -> SlidingWindow:
        """Window of an average pool."""
        return SlidingWindow.from_attributes(self.operation.instruction.attributes)

    @property
    def has_padding(self) -> bool:
        """Whether the operation is a pool whose windows contain padding."""
        return self.opcode == AVERAGE_POOL and bool(np.any(self.window.pads))

    def iterate_samples(self) -> Iterator[LayerSample]:
        """Yield all elements of the operation as consecutive samples of limited size."""
        results = self.results.reshape(-1).astype(np.int64)
        left, operands = self._compute_values()
        for first in range(0, max(results.size, 1), _BLOCK):
            part = slice(first, first + _BLOCK)
            channels = np.zeros(results[part].size, np.int64)
            others = {name: values[part] for name, values in operands.items()}
            yield LayerSample(left[part], channels, results[part], others)

    def _compute_values(self) -> tuple[Integers, dict[str, Array]]:
        """Return the values that the formula rescales, and its other values by name: [elements]."""
        views, shape = self.operation.operands[1:], self.results.shape
        values = [
            one.astype(np.int64) - view.offset for one, view in zip(self.inputs, views, strict=True)
        ]
        if self.opcode == AVERAGE_POOL:
            return self._sum_windows(values[0].reshape(-1, *views[0].shape[1:]))
        if self.opcode == MATMUL:
            left, right = (one.astype(np.float64) for one in values)
            return (left @ right).astype(np.int64).reshape(-1), {}
        flat = [np.broadcast_to(one, shape).reshape(-1) for one in values]
        return flat[0], dict(zip(("rhs",), flat[1:], strict=False))

    def _sum_windows(self, values: Integers) -> tuple[Integers, dict[str, Array]]:
        """Return the sums of windows, and their numbers of valid taps and float32 sums."""
        source, size = self.operation.operands[1], self.operation.operands[0].shape[1:3]
        sums = self.window.reduce_windows(np.add, self.window.pad(values, 0), size)
        real = self.window.pad(values.astype(np.float32) * np.float32(source.scale), 0)
        total = np.zeros(sums.shape, np.float32)
        for _, view in self.window.iterate_views(real, size):
            total += view
        valid = np.maximum(self.window.count_valid_taps(source.shape[1:3], size), 1)[..., None]
        operands = {"divisor": np.broadcast_to(valid, sums.shape), "total": total}
        return sums.reshape(-1), {name: one.reshape(-1) for name, one in operands.items()}

    def compute_ideal_results(self, sample: LayerSample) -> Array:
        """Compute the unrounded results of a sample, without the zero point, as float64."""
        target, *views = self.operation.operands
        left = sample.sums * np.float64(views[0].scale)
        if "divisor" in sample.operands:
            counts = self.window.taps if self.operation.get_number("CountIncludePads") else (
                sample.operands["divisor"]
            )  # fmt: skip
            left = left / counts
        if self.opcode == MATMUL:
            left = left * np.float64(views[1].scale)
        if "rhs" in sample.operands:
            right = sample.operands["rhs"] * np.float64(views[1].scale)
            opcode = self.opcode
            left = left * right if opcode == "elementmul" else (
                left - right if opcode == "elementsub" else left + right
            )  # fmt: skip
        ideal: Array = left / np.float64(target.scale)
        return ideal


AnyLayer: TypeAlias = RecordedLayer | RecordedOperation


def align_offsets(op: Operation, scales: WeightedLayerScales, axes: int) -> Integers:
    """Return the zero points of the weights in a shape that broadcasts with the weights."""
    is_column = op.instruction.opcode == "fullyconnected"
    return scales.weight_offsets.reshape((1, -1) if is_column else (-1,) + (1,) * (axes - 1))
