"""Conversion of models quantized by PT2E to the integer operations of PyTorch's eager mode.

Such a model computes in float32 between ``quantized_decomposed.dequantize_*`` and
``quantize_per_tensor``. Each such group becomes the integer operation that eager mode has for it.
Before rounding it is the same real number up to the last bits of float32, so results are at most
one step apart. Int8 is stored as quint8, 128 more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs
import numpy as np

from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.torch.recording import (
    Array,
    ModelRecording,
    QuantizedWeights,
    RecordedCall,
    RecordedTensor,
)

_NAMESPACE = "quantized_decomposed."
_MOVEMENTS = frozenset(
    {
        *("aten.view", "aten._unsafe_view", "aten.permute", "aten.transpose", "aten.slice"),
        *("aten.select", "aten.squeeze", "aten.unsqueeze", "aten.clone", "aten.alias"),
        *("aten.detach", "aten.t", "aten.split", "aten.split_with_sizes"),
    }
)
"""Operations that, on a dequantized tensor, only move its integers."""
_TRANSPOSITIONS = ("aten.t", "aten.permute", "aten.transpose")
_ENGINE = "fbgemm"
"""Engine of the converted model; its bias stays float, as in the PT2E model."""
ErrorHandler = Callable[[RecordedCall, UnsupportedError], None]


@attrs.frozen(eq=False)
class _PendingOperation:
    """An operation whose float result is quantized by a later call."""

    call: RecordedCall
    operation: str
    arguments: Mapping[str, Any]
    has_relu: bool = False


_Floats = RecordedTensor | QuantizedWeights | _PendingOperation
_F = TypeVar("_F", RecordedTensor, QuantizedWeights, _PendingOperation)


def is_pt2e_model(recording: ModelRecording) -> bool:
    """Return whether a recorded model was quantized by PT2E."""
    return any(call.operation.startswith(_NAMESPACE) for call in recording.calls)


def convert_pt2e(recording: ModelRecording, on_error: ErrorHandler) -> ModelRecording:
    """Replace the float operations of a PT2E model by eager mode's integer operations.

    Parameters
    ----------
    recording : ModelRecording
        Run of a model quantized by PT2E.
    on_error : callable
        Called with each operation that has no integer form, and why.
    """
    conversion = _Conversion(recording)
    for call in recording.calls:
        try:
            conversion.convert(call)
        except UnsupportedError as error:
            on_error(call, error)
    outputs = tuple((name, conversion.output(one, on_error)) for name, one in recording.outputs)
    calls = tuple(attrs.evolve(call, number=at) for at, call in enumerate(conversion.calls))
    return attrs.evolve(recording, engine=_ENGINE, calls=calls, outputs=outputs)


class _Conversion:
    def __init__(self, recording: ModelRecording) -> None:
        self.calls: list[RecordedCall] = []
        self._integers: dict[int, RecordedTensor] = {}
        """Number of an integer tensor -> the same as quint8."""
        self._floats: dict[int, _Floats] = {}
        """Number of a float tensor -> the quint8 tensor, constant or operation it stands for."""
        self._count = 1 + max(
            (t.number for call in recording.calls for t in call.results), default=0
        )

    def convert(self, call: RecordedCall) -> None:
        """Convert one operation."""
        name = call.operation.removeprefix(_NAMESPACE)
        if name in ("dequantize_per_tensor", "dequantize_per_channel"):
            self._dequantize(call)
        elif name == "quantize_per_tensor":
            self._quantize(call)
        elif call.operation in _MOVEMENTS:
            self._move(call)
        else:
            require(call.operation in _RULES, "a float operation without an integer form")
            self._floats[call.results[0].number] = _RULES[call.operation](self, call)

    def output(self, tensor: RecordedTensor, on_error: ErrorHandler) -> RecordedTensor:
        """Return an output of the model, dequantized if it is float."""
        source = self._floats.get(tensor.number)
        if isinstance(source, _PendingOperation):
            on_error(source.call, UnsupportedError("a float result that is not quantized"))
        if isinstance(source, RecordedTensor):
            self._add("aten.dequantize", "dequantize", tensor, self=source)
        return self._integers.get(tensor.number, tensor)

    def find(self, tensor: Any, kind: type[_F]) -> _F | None:
        """Return what a float tensor stands for, if it is of a kind."""
        is_tensor = isinstance(tensor, RecordedTensor)
        source = self._floats.get(tensor.number) if is_tensor else None
        return source if isinstance(source, kind) else None

    def quantized(self, tensor: Any) -> RecordedTensor:
        """Return the quint8 tensor of a float tensor."""
        source = self.find(tensor, RecordedTensor)
        if source is None:
            raise UnsupportedError("an input that is not quantized")
        return source

    def weights(self, tensor: Any, bias: Any, **window: Any) -> QuantizedWeights:
        """Return the weights of a layer, given as float tensors."""
        weights = self.find(tensor, QuantizedWeights)
        if weights is None:
            raise UnsupportedError("weights that are not quantized")
        require(weights.weights.dtype == np.int8, f"weights of {weights.weights.dtype}")
        values = bias.values if isinstance(bias, RecordedTensor) else None
        require(bias is None or values is not None, "a bias that is not a constant")
        values = None if values is None else values.astype(np.float32)
        return attrs.evolve(weights, bias=values, **window)

    def add_like(
        self, operation: str, call: RecordedCall, source: RecordedTensor, /, **arguments: Any
    ) -> RecordedTensor:
        """Add an operation whose result has the scale of its input."""
        result = self._new(call.results[0].shape, source)
        return self._add(operation, call.name, result, **arguments)

    def clip(
        self, call: RecordedCall, source: RecordedTensor, low: int, high: int
    ) -> RecordedTensor:
        """Add a clip of stored integers."""
        table = np.clip(np.arange(256), low, high).astype(np.uint8)
        return self._look_up(call, source, self._new(source.shape, source), table)

    def _look_up(
        self, call: RecordedCall, source: RecordedTensor, result: RecordedTensor, table: Array
    ) -> RecordedTensor:
        given = {"self": source}
        self.calls.append(RecordedCall(0, "aten.clamp", call.name, given, (result,), (table,)))
        return result

    def _dequantize(self, call: RecordedCall) -> None:
        given, (result,) = call.arguments, call.results
        stored, is_per_channel = given["input"], call.operation.endswith("per_channel")
        if is_per_channel:
            require(
                given["axis"] == 0 and stored.values is not None,
                f"scales along dimension {given['axis']}",
            )
            scales, zeros = given["scales"].values, given["zero_points"].values
        else:
            scales, zeros = np.array([float(given["scale"])]), np.array([int(given["zero_point"])])
        if stored.values is None:
            self._floats[result.number] = self._integers[stored.number]
            return
        scales, zeros = scales.astype(np.float32), zeros.astype(np.int64)
        weights = QuantizedWeights(stored.values, scales, zeros, is_per_channel, None, _ENGINE)
        self._floats[result.number] = weights

    def _quantize(self, call: RecordedCall) -> None:
        given, (result,) = call.arguments, call.results
        low, high, dtype = int(given["quant_min"]), int(given["quant_max"]), given["dtype"]
        require(dtype in ("int8", "uint8"), f"{dtype}")
        offset = 128 if dtype == "int8" else 0
        scale, zero = float(given["scale"]), int(given["zero_point"]) + offset
        target = RecordedTensor(self._next_number(), "quint8", result.shape, scale, zero)
        source = self._floats.get(given["input"].number)
        require(not isinstance(source, QuantizedWeights), "constants quantized again")
        if isinstance(source, _PendingOperation):
            operation = source.operation + "_relu" * source.has_relu
            quantized = self._add(operation, source.call.name, target, **source.arguments)
        elif isinstance(source, RecordedTensor):
            quantized = self._rescale(call, source, target)
        else:
            operation = "aten.quantize_per_tensor"
            quantized = self._add(operation, call.name, target, self=given["input"])
        if (low + offset, high + offset) != (0, 255):
            quantized = self.clip(call, quantized, low + offset, high + offset)
        self._integers[result.number] = quantized

    def _rescale(
        self, call: RecordedCall, source: RecordedTensor, target: RecordedTensor
    ) -> RecordedTensor:
        """Return the same integers if the scales are equal, otherwise add a table."""
        if (source.scale, source.zero_point) == (target.scale, target.zero_point):
            return source
        floats = (np.arange(256) - source.zero_point).astype(np.float32) * np.float32(source.scale)
        steps = np.rint(floats * (np.float32(1) / np.float32(target.scale))) + target.zero_point
        return self._look_up(call, source, target, np.clip(steps, 0, 255).astype(np.uint8))

    def _move(self, call: RecordedCall) -> None:
        (name, tensor), *rest = call.arguments.items()
        weights = self._floats.get(tensor.number)
        if isinstance(weights, QuantizedWeights):
            require(
                call.operation in _TRANSPOSITIONS,
                "an operation on weights other than a transposition",
            )
            self._floats[call.results[0].number] = _transposed(weights)
            return
        source = self.quantized(tensor)
        results = tuple(self._new(result.shape, source) for result in call.results)
        arguments = {name: source, **dict(rest)}
        self.calls.append(attrs.evolve(call, arguments=arguments, results=results))
        for result, moved in zip(call.results, results, strict=True):
            self._floats[result.number] = moved

    def _add(
        self, operation: str, name: str, result: RecordedTensor, /, **arguments: Any
    ) -> RecordedTensor:
        self.calls.append(RecordedCall(0, operation, name, arguments, (result,)))
        return result

    def _new(self, shape: tuple[int, ...], like: RecordedTensor) -> RecordedTensor:
        number = self._next_number()
        return RecordedTensor(number, "quint8", shape, like.scale, like.zero_point)

    def _next_number(self) -> int:
        self._count += 1
        return self._count


def _transposed(weights: QuantizedWeights) -> QuantizedWeights:
    return attrs.evolve(weights, weights=np.ascontiguousarray(weights.weights.T))


_Rule = Callable[[_Conversion, RecordedCall], _Floats]


def _convolution(conversion: _Conversion, call: RecordedCall) -> _Floats:
    given = call.arguments
    require(
        not given["transposed"] and len(given["stride"]) == 2,
        "a convolution that is transposed or not two-dimensional",
    )
    window = {name: given[name] for name in ("stride", "padding", "dilation")}
    groups = int(given["groups"])
    weights = conversion.weights(given["weight"], given["bias"], groups=groups, **window)
    operands = {"qx": conversion.quantized(given["input"]), "packed_weight": weights}
    return _PendingOperation(call, "quantized.conv2d", operands)


def _product(source: str, weights: str, bias: str | None) -> _Rule:
    def rule(conversion: _Conversion, call: RecordedCall) -> _Floats:
        given = call.arguments
        require(
            given.get("beta", 1) == given.get("alpha", 1) == 1, "factors alpha or beta other than 1"
        )
        packed = conversion.weights(given[weights], given[bias] if bias else None)
        operands = {"X": conversion.quantized(given[source]), "W_prepack": _transposed(packed)}
        return _PendingOperation(call, "quantized.linear", operands)

    return rule


def _pair(operation: str) -> _Rule:
    def rule(conversion: _Conversion, call: RecordedCall) -> _Floats:
        given = call.arguments
        require(given.get("alpha", 1) == 1, "a factor alpha other than 1")
        operands = {
            "qa": conversion.quantized(given["self"]),
            "qb": conversion.quantized(given["other"]),
        }
        return _PendingOperation(call, operation, operands)

    return rule


def _relu(conversion: _Conversion, call: RecordedCall) -> _Floats:
    tensor = call.arguments["self"]
    pending = conversion.find(tensor, _PendingOperation)
    if pending:
        return attrs.evolve(pending, has_relu=True)
    source = conversion.quantized(tensor)
    return conversion.clip(call, source, source.zero_point, 255)


def _max_pool(conversion: _Conversion, call: RecordedCall) -> _Floats:
    given = call.arguments
    source = conversion.quantized(given["self"])
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    window = {name: given[name] for name in names if name in given}
    return conversion.add_like("aten.quantized_max_pool2d", call, source, self=source, **window)


def _average(conversion: _Conversion, call: RecordedCall) -> _Floats:
    source, given = conversion.quantized(call.arguments["self"]), call.arguments
    if call.operation == "aten.mean":
        axes = sorted(int(axis) % len(source.shape) for axis in given["dim"] or ())
        require(
            axes == [2, 3] and given["keepdim"] and len(source.shape) == 4, f"a mean along {axes}"
        )
        return conversion.add_like("aten._adaptive_avg_pool2d", call, source, self=source)
    arguments = {**given, "self": source}
    return conversion.add_like(call.operation, call, source, **arguments)


_RULES: Mapping[str, _Rule] = {
    "aten._adaptive_avg_pool2d": _average,
    "aten.add": _pair("quantized.add"),
    "aten.addmm": _product("mat1", "mat2", "self"),
    "aten.avg_pool2d": _average,
    "aten.convolution": _convolution,
    "aten.max_pool2d_with_indices": _max_pool,
    "aten.mean": _average,
    "aten.mm": _product("self", "mat2", None),
    "aten.mul": _pair("quantized.mul"),
    "aten.relu": _relu,
}
"""Float operation between dequantize and quantize -> its integer form."""
