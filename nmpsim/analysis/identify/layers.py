"""Layers of a program with exact sums and the results that a device recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import attrs
import numpy as np

from nmpsim.analysis.identify.dumps import CONSTANT_PREFIX, Dumps
from nmpsim.analysis.identify.evaluation import Integers
from nmpsim.analysis.program import Program
from nmpsim.analysis.weighted import read_weighted_scales
from nmpsim.arrays import Array
from nmpsim.compiler.assign import assign_numerics
from nmpsim.compiler.clip_bounds import get_clip_range
from nmpsim.compiler.fuse import fuse_clips
from nmpsim.compiler.numerics import ProfileEncoder, WeightedLayerScales, Words
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.compiler.placement import assign_placement
from nmpsim.compiler.resolve import get_instruction_place, resolve_operands
from nmpsim.diagnostics import Place
from nmpsim.interpreter.convolution import convolve_real
from nmpsim.kernels.hostops.tensors import HostTensor, UnsupportedHostOp
from nmpsim.lir.host_execution import execute_operation
from nmpsim.lir.nodes import Module
from nmpsim.lir.opcode import INOUT, WEIGHTED, OpcodeKind
from nmpsim.records import frozen

CONVOLUTION, CONNECTED = "convolution", "fully connected"
_BLOCK = 1 << 20
"""Elements of sums that are computed at a time."""
_EXACT = frozenset(
    {
        OpcodeKind.MOVE,
        OpcodeKind.FILL,
        OpcodeKind.MAX_POOL,
        OpcodeKind.CONVERSION,
        OpcodeKind.CLIP,
    }
)
"""Operations that are executed if a dump lacks their result."""


@attrs.frozen(eq=False)
class LayerSample:
    """Sample of a layer's elements: exact sums without bias, channels and recorded results."""

    sums: Integers
    channels: Integers
    results: Integers
    rhs: Integers | None = None
    """Right operands of an operation of two tensors, whose left operands are ``sums``."""

    def take(self, indices: Any) -> LayerSample:
        """Return a sample of the elements at ``indices``."""
        rhs = None if self.rhs is None else self.rhs[indices]
        parts = self.sums[indices], self.channels[indices], self.results[indices]
        return LayerSample(*parts, rhs)

    @property
    def size(self) -> int:
        """Number of elements in the sample."""
        return int(self.sums.size)


@attrs.frozen(eq=False)
class RecordedLayer:
    """Quantized layer with weights, and the recorded values of its input and result."""

    operation: Operation
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
    def name(self) -> str:
        """Name of the layer's LIR instruction."""
        return self.operation.instruction.name

    @property
    def kind(self) -> str:
        """Kind of the layer: "convolution" or "fully connected"."""
        return CONVOLUTION if self.scales.is_convolution else CONNECTED

    @property
    def source_name(self) -> str:
        """Name of the tensor that the layer reads."""
        return self.operation.operands[1].name

    @property
    def stored_weights(self) -> Integers:
        """Weights as stored, including their zero points, in the layout of the operation."""
        return self.weights + _align_offsets(self.operation, self.scales, self.weights.ndim)

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

    @property
    def element(self) -> int:
        """Value of the descriptor word ``element``: 0 for Int8, 1 for Int16."""
        return self.operation.operands[0].element

    @property
    def offset(self) -> int:
        """Zero point of the layer's result."""
        return self.scales.target.offset

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
    """Kind of an operation: its name, and the kind and the operand names of its formula."""

    name: str
    formula: str
    """Kind of the formula in ``isa/formulas.toml``."""
    values: tuple[str, ...]
    """Names of the operands in the formula."""


_PAIR = "lhs", "rhs"
OPERATION_KINDS = {
    "elementadd": OperationKind("addition", "add", _PAIR),
    "elementsub": OperationKind("subtraction", "sub", _PAIR),
    "elementmul": OperationKind("multiplication", "mul", _PAIR),
    "rescalequantized": OperationKind("rescale", "rescale", ("x",)),
}
"""Kinds of operations whose rules are identified, by opcode."""


@attrs.frozen(eq=False)
class RecordedOperation:
    """Quantized operation without weights, and the recorded values of its inputs and result."""

    operation: Operation
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
    channels: int = 1
    """All elements have the same factors."""

    @property
    def name(self) -> str:
        """Name of the operation's LIR instruction."""
        return self.operation.instruction.name

    @property
    def operation_kind(self) -> OperationKind:
        """Kind of the operation, which its opcode determines."""
        return OPERATION_KINDS[self.operation.instruction.opcode]

    @property
    def kind(self) -> str:
        """Name of the operation's kind, such as "addition"."""
        return self.operation_kind.name

    @property
    def element(self) -> int:
        """Value of the descriptor word ``element``: 0 for Int8, 1 for Int16."""
        return self.operation.operands[0].element

    @property
    def offset(self) -> int:
        """Zero point of the result."""
        return self.operation.operands[0].offset

    @property
    def has_bias(self) -> bool:
        """False, because the operation has no bias."""
        return False

    def encode_factors(self, encoder: ProfileEncoder) -> Words:
        """Encode the factors of the operation as descriptor words of a profile."""
        return encoder.get_factor_words(self.operation, self.place)

    def iterate_samples(self) -> Iterator[LayerSample]:
        """Yield all elements of the operation as consecutive samples of limited size."""
        results = self.results.reshape(-1).astype(np.int64)
        views = self.operation.operands[1:]
        operands = [
            np.broadcast_to(values, self.results.shape).reshape(-1).astype(np.int64) - view.offset
            for values, view in zip(self.inputs, views, strict=True)
        ]
        for first in range(0, max(results.size, 1), _BLOCK):
            part = slice(first, first + _BLOCK)
            left, *right = (one[part] for one in operands)
            rhs = right[0] if right else None
            yield LayerSample(left, np.zeros(left.size, np.int64), results[part], rhs)

    def compute_ideal_results(self, sample: LayerSample) -> Array:
        """Compute the unrounded results of a sample, without the zero point, as float64."""
        target, *views = self.operation.operands
        left = sample.sums * np.float64(views[0].scale)
        if sample.rhs is not None:
            right = sample.rhs * np.float64(views[1].scale)
            opcode = self.operation.instruction.opcode
            left = left * right if opcode == "elementmul" else (
                left - right if opcode == "elementsub" else left + right
            )  # fmt: skip
        ideal: Array = left / np.float64(target.scale)
        return ideal


AnyLayer: TypeAlias = RecordedLayer | RecordedOperation


def list_operations(program: Program) -> list[Operation]:
    """Return the operations of a program with fused activations."""
    assigned = assign_numerics(
        resolve_operands(program.module)[1], program.numerics, program.layer_numerics
    )
    return list(fuse_clips(assign_placement(assigned, program.device)))


def find_transpose_sources(program: Program) -> dict[str, str]:
    """Find the source of each transposed tensor, by name; other tensors are their own source."""
    found = {name: name for name in resolve_operands(program.module)[0]}
    for op in list_operations(program):
        if op.instruction.opcode == "transpose":
            found[op.output.name] = op.list_inputs()[0].name
    return found


def list_result_names(op: Operation) -> list[str]:
    """Return the names under which the result of an operation may be recorded.

    Operations may share a buffer, so the name of the instruction comes first.
    """
    return [op.last_fused.instruction.name, op.output.name]


def read_layers(program: Program, dumps: Dumps) -> tuple[list[AnyLayer], list[str]]:
    """Read recorded layers from dumps; also return the names of layers whose values are missing.

    Operations without weights are not missing.
    """
    module, replaced = _replace_constants(program.module, dumps)
    known: dict[str, Array] = {}
    uncertain = set(dumps.by_order)
    """Instructions and buffers whose values were matched by order."""
    for name, view in resolve_operands(module)[0].items():
        if view.buffer.constant:
            continue
        found = dumps.read(view, (name,), is_weight=True)
        if found is not None:
            known[name] = found
    layers, missing = list[AnyLayer](), list[str]()
    names = {tensor.name for tensor in program.list_inputs()}
    program_inputs = {name: values for name, values in known.items() if name in names}
    for op in list_operations(program):
        own, result = _read_results(op, dumps)
        inputs = [_read_view(known, module, view) for view in op.list_inputs()]
        if op.kind in WEIGHTED and op.operands[0].is_narrow:
            layer, recorded = None, result if own is None else own
            if recorded is not None and inputs[0] is not None:
                layer = make_recorded_layer(
                    module, op, inputs[0], recorded, is_activated=own is None
                )
            if layer is not None:
                is_replaced = any(view.buffer.name in replaced for view in op.operands[2:4])
                layer = attrs.evolve(
                    layer, program_inputs=program_inputs, has_recorded_constants=is_replaced
                )
            sources = {op.last_fused.instruction.name, op.operands[1].buffer.name}
            if layer is not None and sources & uncertain:
                layer = attrs.evolve(layer, is_by_order=True)
            layers += [layer] if layer else []
            missing += [] if layer else [op.instruction.name]
        recorded = result if own is None else own
        if recorded is not None and all(one is not None for one in inputs):
            operation = _make_recorded_operation(module, op, inputs, recorded, own is None)
            if operation is not None:
                names = {op.last_fused.instruction.name, *(v.buffer.name for v in op.list_inputs())}
                is_by_order = not names.isdisjoint(uncertain)
                layers.append(attrs.evolve(operation, is_by_order=is_by_order))
        sources = {op.last_fused.instruction.name}
        if result is None:
            sources |= {view.buffer.name for view in op.list_inputs()}
        if sources & uncertain:
            uncertain.add(op.output.buffer.name)
        else:
            uncertain.discard(op.output.buffer.name)
        result = _compute_result(op, program, own, result, inputs)
        _set_result(known, op, result)
    return layers, missing


def _replace_constants(module: Module, dumps: Dumps) -> tuple[Module, list[str]]:
    """Return a module with the constants of dumps in place of its own, and their names."""
    found = {}
    for name, values in module.constants.items():
        key = CONSTANT_PREFIX + name
        if key in dumps.keys:
            found[name] = dumps.read_constant(key, values)
    return attrs.evolve(module, constants={**module.constants, **found}), list(found)


def estimate_results(program: Program, dumps: Dumps) -> dict[str, Array]:
    """Estimate results that are not recorded from recorded values.

    Returns the first item of each result by name of the instruction.
    """
    known: dict[str, Array] = {}
    for name, view in resolve_operands(program.module)[0].items():
        found = None if view.buffer.constant else dumps.read(view, (name,), is_weight=True)
        if found is not None:
            known[name] = found[:1]
    estimates = {}
    for op in list_operations(program):
        own, result = _read_results(op, dumps)
        inputs = [_read_view(known, program.module, view) for view in op.list_inputs()]
        is_known = own is not None or result is not None
        if not is_known and all(one is not None for one in inputs):
            result = _estimate_result(op, program, inputs)
            if result is not None:
                estimates[op.instruction.name] = result[0]
        elif result is None and own is not None:
            result = np.clip(own, op.clip_low, op.clip_high)
        _set_result(known, op, None if result is None else result[:1])
    return estimates


def _estimate_result(op: Operation, program: Program, inputs: list[Any]) -> Array | None:
    """Return the result of an operation with real factors, or None if it is unsupported."""
    view = op.output
    if op.kind not in WEIGHTED or not op.operands[0].is_narrow:
        result = _execute(op, program, inputs)
        if result is not None and op.fused:
            result = np.clip(result, op.clip_low, op.clip_high)
        return result
    empty = np.zeros((1, *op.operands[0].shape), view.type.dtype)
    layer = make_recorded_layer(program.module, op, inputs[0], empty)
    if layer is None:
        return None
    exact = (layer.compute_sums(layer.inputs) + layer.biases) * layer.ideal_factors
    rounded = np.clip(np.rint(exact + layer.offset), *layer.clip)
    estimate: Array = rounded.astype(view.type.dtype).reshape(1, *view.shape)
    return estimate


def _set_result(known: dict[str, Array], op: Operation, result: Array | None) -> None:
    """Set the known values of an operation's buffer, which must be those of the result."""
    view = op.output
    if result is None or view.type.elements * view.element_bytes != view.buffer.nbytes:
        known.pop(view.buffer.name, None)
    else:
        known[view.buffer.name] = result


def _read_results(op: Operation, dumps: Dumps) -> tuple[Array | None, Array | None]:
    """Return the recorded results of an operation before and after its fused activations."""
    view, names = op.output, list_result_names(op)
    if not op.fused:
        return None, dumps.read(view, names)
    own = dumps.read(op.operands[0], [op.instruction.name])
    if own is not None and op.operands[0].buffer.name == view.buffer.name:
        names = names[:1]
    return own, dumps.read(view, names)


def _compute_result(
    op: Operation, program: Program, own: Array | None, result: Array | None, inputs: list[Any]
) -> Array | None:
    """Return the result of an operation, computed if it is not recorded but exact, else None."""
    if result is not None:
        return result
    if own is not None:
        return np.clip(own, op.clip_low, op.clip_high)
    is_exact = op.kind in _EXACT and all(one is not None for one in inputs)
    return _execute(op, program, inputs) if is_exact else None


def _read_view(known: Mapping[str, Array], module: Module, view: BufferView) -> Array | None:
    """Return the known values [N, *shape] of a view, or None."""
    if view.buffer.name in module.constants:
        return view.get_constant_values(module.constants)[None]
    whole = known.get(view.buffer.name)
    if whole is None:
        return None
    flat = whole.reshape(len(whole), -1)
    start = view.byte_offset // view.element_bytes
    return flat[:, start : start + view.type.elements].reshape(len(whole), *view.shape)


def _execute(op: Operation, program: Program, inputs: list[Any]) -> Array | None:
    """Return the results of an operation for each item of a batch, or None if unsupported."""
    target, items = op.operands[0], max(map(len, inputs), default=1)
    views = op.list_inputs()
    has_target = op.instruction.operands[0].kind != INOUT
    results = []
    try:
        for item in range(items):
            empty = np.zeros(target.shape, target.type.dtype)
            tensors = [_make_tensor(target, empty)] if has_target else []
            tensors += [
                _make_tensor(view, one[item % len(one)])
                for view, one in zip(views, inputs, strict=True)
            ]
            made = execute_operation(
                op.instruction.opcode, tensors, op.instruction.attributes, program.numerics
            )
            results.append(made.outputs[0])
    except (UnsupportedHostOp, ValueError, KeyError):
        return None
    return np.stack(results)


def _make_tensor(view: BufferView, values: Array) -> HostTensor:
    if view.type.quant is None:
        return HostTensor(values)
    return HostTensor(values, view.scale, view.offset, quantized=True)


def make_recorded_layer(
    module: Module, op: Operation, inputs: Array, results: Array, *, is_activated: bool = True
) -> RecordedLayer | None:
    """Make a recorded layer; return None if the operation lacks quantized constant weights.

    ``is_activated`` tells whether fused activations are applied to the results.
    """
    scales = read_weighted_scales(module, op)
    view = op.operands[2]
    if scales is None or view.buffer.name not in module.constants:
        return None
    count = min(len(inputs), len(results))
    values = view.get_constant_values(module.constants).astype(np.int64)
    bounds = _get_bounds(op, is_activated)
    if op.instruction.attributes.get("FusedActivation") == "LEAKY_RELU":
        # Results below zero have a formula of their own; the others are those of a ReLU.
        bounds = max(bounds[0], scales.target.offset), bounds[1]
        results = np.maximum(results, bounds[0])
    return RecordedLayer(
        op,
        scales,
        values - _align_offsets(op, scales, values.ndim),
        inputs[:count],
        results[:count],
        bounds,
    )


def _get_bounds(op: Operation, is_activated: bool) -> tuple[int, int]:
    """Return the range to which an operation clips results, with its fused activations if set."""
    clip = (op.clip_low, op.clip_high) if op.fused and is_activated else (None, None)
    low, high = get_clip_range(op, op.operands[0])
    return (
        low if clip[0] is None else max(low, clip[0]),
        high if clip[1] is None else min(high, clip[1]),
    )


def _make_recorded_operation(
    module: Module, op: Operation, inputs: list[Any], results: Array, is_activated: bool
) -> RecordedOperation | None:
    """Make a recorded operation without weights; return None for other kinds of operations."""
    kind = OPERATION_KINDS.get(op.instruction.opcode)
    views = op.operands
    is_known = kind is not None and len(kind.values) == len(inputs)
    if not is_known or not all(one.is_narrow and one.element == views[0].element for one in views):
        return None
    if op.instruction.attributes.get("FusedActivation") == "LEAKY_RELU":
        return None
    count = min(len(results), *(len(one) for one in inputs if len(one) > 1), 1 << 30)
    inputs = [one[:count] for one in inputs]
    place = get_instruction_place(op.instruction, module.file)
    bounds = _get_bounds(op, is_activated)
    return RecordedOperation(op, place, tuple(inputs), results[:count], bounds)


def _align_offsets(op: Operation, scales: WeightedLayerScales, axes: int) -> Integers:
    """Return the zero points of the weights in a shape that broadcasts with the weights."""
    is_column = op.instruction.opcode == "fullyconnected"
    return scales.weight_offsets.reshape((1, -1) if is_column else (-1,) + (1,) * (axes - 1))
