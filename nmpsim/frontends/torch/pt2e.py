"""Conversion of models quantized by PT2E to the integer operations of PyTorch's eager mode.

Such a model computes in float32 between ``quantized_decomposed.dequantize_*`` and
``quantize_per_tensor``. Each such group becomes the integer operation that eager mode has for it.
Before rounding it is the same real number up to the last bits of float32, so results are at most
one step apart. Int8 is stored as quint8, 128 more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

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
_ENGINE = "fbgemm"
"""Engine of the converted model; its bias stays float, as in the PT2E model."""
_TRANSPOSITIONS = ("aten.t", "aten.permute", "aten.transpose")
_SAME_SCALE_OPERATIONS = {
    **{
        operation: operation
        for operation in (
            *_TRANSPOSITIONS,
            *("aten.view", "aten._unsafe_view", "aten.slice", "aten.select"),
            *("aten.squeeze", "aten.unsqueeze", "aten.clone", "aten.alias"),
            *("aten.detach", "aten.split", "aten.split_with_sizes"),
            *("aten.avg_pool2d", "aten._adaptive_avg_pool2d"),
        )
    },
    "aten.max_pool2d_with_indices": "aten.quantized_max_pool2d",
    "aten.mean": "aten._adaptive_avg_pool2d",
}
"""Operation that, on a dequantized tensor, keeps scale and zero point -> its integer form."""
ErrorHandler = Callable[[RecordedCall, UnsupportedError], None]


@attrs.frozen
class _IntegerForm:
    """Integer operation for a float operation between dequantize and quantize."""

    operation: str
    operands: Mapping[str, str]
    """Operand of the integer operation -> operand of the float operation."""
    weights: str = ""
    """Argument that holds the weights; empty if there are none."""
    bias: str = ""


_PAIR = {"qa": "self", "qb": "other"}
_INTEGER_FORMS = {
    "aten.add": _IntegerForm("quantized.add", _PAIR),
    "aten.addmm": _IntegerForm("quantized.linear", {"X": "mat1"}, "mat2", "self"),
    "aten.convolution": _IntegerForm("quantized.conv2d", {"qx": "input"}, "weight", "bias"),
    "aten.mm": _IntegerForm("quantized.linear", {"X": "self"}, "mat2"),
    "aten.mul": _IntegerForm("quantized.mul", _PAIR),
}


@attrs.frozen(eq=False)
class _PendingOperation:
    """An operation whose float result is quantized by a later call."""

    call: RecordedCall
    operation: str
    arguments: Mapping[str, Any]


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
    outputs = tuple(
        (name, conversion.convert_output(one, on_error)) for name, one in recording.outputs
    )
    calls = tuple(attrs.evolve(call, number=at) for at, call in enumerate(conversion.calls))
    return attrs.evolve(recording, engine=_ENGINE, calls=calls, outputs=outputs)


class _Conversion:
    def __init__(self, recording: ModelRecording) -> None:
        self.calls: list[RecordedCall] = []
        self._integers: dict[int, RecordedTensor] = {}
        """Number of an integer tensor -> the same as quint8."""
        self._floats: dict[int, RecordedTensor | QuantizedWeights | _PendingOperation] = {}
        """Number of a float tensor -> the quint8 tensor, constant or operation it stands for."""
        self._count = 1 + max(
            (t.number for call in recording.calls for t in call.results), default=0
        )

    def convert(self, call: RecordedCall) -> None:
        """Convert one operation."""
        operation = call.operation
        if operation.startswith(f"{_NAMESPACE}dequantize_per_"):
            self._dequantize(call)
        elif operation == f"{_NAMESPACE}quantize_per_tensor":
            self._quantize(call)
        elif operation in _SAME_SCALE_OPERATIONS:
            self._keep_scale(call)
        elif operation == "aten.relu":
            self._clip_negative(call)
        else:
            require(
                operation in _INTEGER_FORMS,
                f"{operation} in float32",
                "an operation that has an integer form",
            )
            self._floats[call.results[0].number] = self._begin_group(call)

    def convert_output(self, tensor: RecordedTensor, on_error: ErrorHandler) -> RecordedTensor:
        """Return an output of the model, dequantized if it is float."""
        source = self._floats.get(tensor.number)
        if isinstance(source, _PendingOperation):
            on_error(
                source.call,
                UnsupportedError("a float32 result", "quantize_per_tensor after the operation"),
            )
        if isinstance(source, RecordedTensor):
            self._add("aten.dequantize", "dequantize", {"self": source}, tensor)
        return self._integers.get(tensor.number, tensor)

    # --- conversions -------------------------------------------------------------------------

    def _dequantize(self, call: RecordedCall) -> None:
        given, number = call.arguments, call.results[0].number
        stored, is_per_channel = given["input"], call.operation.endswith("per_channel")
        if is_per_channel:
            found = f"scales along dimension {given['axis']}"
            require(given["axis"] == 0, found, "scales along dimension 0")
            found = "scales per channel of a computed tensor"
            require(stored.values is not None, found, "a constant tensor, or one scale")
            scales, zeros = given["scales"].values, given["zero_points"].values
        else:
            scales, zeros = np.array([float(given["scale"])]), np.array([int(given["zero_point"])])
        if stored.values is None:
            self._floats[number] = self._integers[stored.number]
            return
        scales, zeros = scales.astype(np.float32), zeros.astype(np.int64)
        weights = QuantizedWeights(stored.values, scales, zeros, is_per_channel, None, _ENGINE)
        self._floats[number] = weights

    def _quantize(self, call: RecordedCall) -> None:
        given, (result,) = call.arguments, call.results
        low, high, dtype = int(given["quant_min"]), int(given["quant_max"]), given["dtype"]
        require(dtype in ("int8", "uint8"), f"quantization to {dtype}", "int8 or uint8")
        offset = 128 if dtype == "int8" else 0
        scale, zero = float(given["scale"]), int(given["zero_point"]) + offset
        target = self._make_tensor(result.shape, scale, zero)
        source = self._floats.get(given["input"].number)
        require(
            not isinstance(source, QuantizedWeights),
            "a second quantization of a constant",
            "one quantization of each constant",
        )
        if isinstance(source, _PendingOperation):
            self._add(source.operation, source.call.name, source.arguments, target)
        elif isinstance(source, RecordedTensor):
            target = self._rescale(call, source, target)
        else:
            self._add("aten.quantize_per_tensor", call.name, {"self": given["input"]}, target)
        if (low + offset, high + offset) != (0, 255):
            target = self._clip(call, target, low + offset, high + offset)
        self._integers[result.number] = target

    def _rescale(
        self, call: RecordedCall, source: RecordedTensor, target: RecordedTensor
    ) -> RecordedTensor:
        """Return the same integers if the scales are equal, otherwise add a table."""
        if (source.scale, source.zero_point) == (target.scale, target.zero_point):
            return source
        floats = (np.arange(256) - source.zero_point).astype(np.float32) * np.float32(source.scale)
        steps = np.rint(floats * (np.float32(1) / np.float32(target.scale))) + target.zero_point
        return self._look_up(call, source, target, np.clip(steps, 0, 255))

    # --- operations --------------------------------------------------------------------------

    def _begin_group(self, call: RecordedCall) -> _PendingOperation:
        """Return the integer form of an operation on dequantized tensors."""
        given, form = call.arguments, _INTEGER_FORMS[call.operation]
        arguments: dict[str, Any] = {}
        for factor in ("alpha", "beta"):
            require(given.get(factor, 1) == 1, f"{factor} {given.get(factor)}", f"{factor} 1")
        found, expected = "a transposed convolution", "a convolution that is not transposed"
        require(not given.get("transposed"), found, expected)
        dims = len(given.get("stride", (1, 1)))
        found = f"a convolution with {dims} spatial dimensions"
        require(dims == 2, found, "2 spatial dimensions")
        if form.weights:
            bias = given[form.bias] if form.bias else None
            weights = self._find_weights(given[form.weights], bias)
            if "stride" in given:
                names = ("stride", "padding", "dilation", "groups")
                weights = attrs.evolve(weights, **{name: given[name] for name in names})
            else:
                weights = _transpose(weights)
            arguments["packed_weight"] = weights
        for name, operand in form.operands.items():
            arguments[name] = self._find_quantized(given[operand])
        return _PendingOperation(call, form.operation, arguments)

    def _keep_scale(self, call: RecordedCall) -> None:
        """Add the integer form of an operation whose result has the scale of its input."""
        (name, tensor), *_ = call.arguments.items()
        weights = self._floats.get(tensor.number)
        if isinstance(weights, QuantizedWeights):
            require(
                call.operation in _TRANSPOSITIONS,
                f"{call.operation} on weights",
                "a transposition",
            )
            self._floats[call.results[0].number] = _transpose(weights)
            return
        source, given = self._find_quantized(tensor), call.arguments
        if call.operation == "aten.mean":
            axes = sorted(int(axis) % len(source.shape) for axis in given["dim"] or ())
            require(len(source.shape) == 4, f"a mean of shape {list(source.shape)}", "4 dimensions")
            require(axes == [2, 3], f"a mean along {axes}", "a mean along [2, 3]")
            require(given["keepdim"], "keepdim False", "keepdim True")
        results = [one for one in call.results if one.dtype == "float32"]
        moved = [self._make_tensor(one.shape, source.scale, source.zero_point) for one in results]
        operation = _SAME_SCALE_OPERATIONS[call.operation]
        self._add(operation, call.name, {**given, name: source}, *moved)
        self._floats |= {one.number: new for one, new in zip(results, moved, strict=True)}

    def _clip_negative(self, call: RecordedCall) -> None:
        """Fuse a ReLU into the operation before it, or clip quantized values."""
        tensor, number = call.arguments["self"], call.results[0].number
        source = self._floats.get(tensor.number)
        if isinstance(source, _PendingOperation):
            operation = source.operation.removesuffix("_relu") + "_relu"
            self._floats[number] = attrs.evolve(source, operation=operation)
        else:
            quantized = self._find_quantized(tensor)
            self._floats[number] = self._clip(call, quantized, quantized.zero_point, 255)

    def _clip(
        self, call: RecordedCall, source: RecordedTensor, low: int, high: int
    ) -> RecordedTensor:
        """Add a clip of stored integers."""
        result = self._make_tensor(source.shape, source.scale, source.zero_point)
        return self._look_up(call, source, result, np.clip(np.arange(256), low, high))

    def _look_up(
        self, call: RecordedCall, source: RecordedTensor, result: RecordedTensor, table: Array
    ) -> RecordedTensor:
        tables = (table.astype(np.uint8),)
        self._add("aten.clamp", call.name, {"self": source}, result, tables=tables)
        return result

    # --- tensors -----------------------------------------------------------------------------

    def _find_quantized(self, tensor: Any) -> RecordedTensor:
        """Return the quint8 tensor of a float tensor."""
        is_tensor = isinstance(tensor, RecordedTensor)
        source = self._floats.get(tensor.number) if is_tensor else None
        if not isinstance(source, RecordedTensor):
            found = f"an input of type {tensor.dtype}" if is_tensor else f"the input {tensor}"
            raise UnsupportedError(found, "the result of dequantize_per_tensor")
        return source

    def _find_weights(self, tensor: RecordedTensor, bias: Any) -> QuantizedWeights:
        """Return the weights of a layer, given as float tensors."""
        weights = self._floats.get(tensor.number)
        if not isinstance(weights, QuantizedWeights):
            found = f"weights {tensor.name} of type {tensor.dtype}"
            raise UnsupportedError(found, "quantized weights")
        require(weights.weights.dtype == np.int8, f"weights of {weights.weights.dtype}", "int8")
        if bias is None:
            return weights
        values = bias.values if isinstance(bias, RecordedTensor) else None
        if values is None:
            raise UnsupportedError("a computed bias", "a constant bias")
        return attrs.evolve(weights, bias=values.astype(np.float32))

    def _add(
        self,
        operation: str,
        name: str,
        arguments: Mapping[str, Any],
        *results: RecordedTensor,
        tables: Sequence[Array] = (),
    ) -> None:
        self.calls.append(RecordedCall(0, operation, name, arguments, results, tuple(tables)))

    def _make_tensor(
        self, shape: tuple[int, ...], scale: float | None, zero_point: int
    ) -> RecordedTensor:
        self._count += 1
        return RecordedTensor(self._count, "quint8", shape, scale, zero_point)


def _transpose(weights: QuantizedWeights) -> QuantizedWeights:
    return attrs.evolve(weights, weights=np.ascontiguousarray(weights.weights.T))
