"""Integer islands: what a model quantized by PT2E computes between dequantize and quantize.

Such a model computes in float32 what stands between ``quantized_decomposed.dequantize_*`` and
``quantize_per_tensor``. Here each such part becomes the operation of integers that PyTorch's eager
mode has for it. Before rounding that is the same real number up to the last bits of float32, so
results are at most one step apart. Int8 is held as quint8, 128 more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.torch.recording import Call, Packed, Recorded, Tensor

_SPACE = "quantized_decomposed."
_MOVES = frozenset(
    {
        *("aten.view", "aten._unsafe_view", "aten.permute", "aten.transpose", "aten.slice"),
        *("aten.select", "aten.squeeze", "aten.unsqueeze", "aten.clone", "aten.alias"),
        *("aten.detach", "aten.t", "aten.split", "aten.split_with_sizes"),
    }
)
"""Of a dequantized tensor they are moves of its integers."""
_ENGINE = "fbgemm"
"""Its bias stays a real number, as it is in float32."""


@attrs.frozen(eq=False)
class _Weights:
    """Dequantized constants."""

    values: Any
    """int8 or uint8"""
    scales: Any
    zero_points: Any
    by_channel: bool

    def turned(self) -> _Weights:
        """Of ``aten.t``, which comes before a product."""
        return attrs.evolve(self, values=self.values.T)


@attrs.frozen(eq=False)
class _Pending:
    """A float result that a quantize is to read."""

    call: Call
    operation: str
    arguments: Mapping[str, Any]
    has_relu: bool = False


def is_pt2e(recorded: Recorded) -> bool:
    """Whether a model was quantized that way."""
    return any(call.operation.startswith(_SPACE) for call in recorded.calls)


def with_islands(recorded: Recorded, refuse: Callable[[Call, UnsupportedError], None]) -> Recorded:
    """The run with operations of integers; ``refuse`` hears what has none."""
    islands = _Islands(recorded)
    for call in recorded.calls:
        try:
            islands.take(call)
        except UnsupportedError as why:
            refuse(call, why)
    outputs = tuple((name, islands.output(tensor, refuse)) for name, tensor in recorded.outputs)
    calls = tuple(attrs.evolve(call, number=at) for at, call in enumerate(islands.calls))
    return attrs.evolve(recorded, engine=_ENGINE, calls=calls, outputs=outputs)


class _Islands:
    def __init__(self, recorded: Recorded) -> None:
        self.calls: list[Call] = []
        self._integers: dict[int, Tensor] = {}
        """Tensor of stored integers -> the same as quint8."""
        self._real: dict[int, Tensor | _Weights | _Pending] = {}
        """Float tensor -> the quint8 that it is of, constants, or what will be quantized."""
        self._count = 1 + max(
            (t.number for call in recorded.calls for t in call.results), default=0
        )

    def take(self, call: Call) -> None:
        """Rewrite one operation."""
        name = call.operation.removeprefix(_SPACE)
        if name in ("dequantize_per_tensor", "dequantize_per_channel"):
            self._dequantize(call)
        elif name == "quantize_per_tensor":
            self._quantize(call)
        elif call.operation in _MOVES:
            self._move(call)
        elif call.operation in _RULES:
            self._real[call.results[0].number] = _RULES[call.operation](self, call)
        else:
            raise UnsupportedError("a float operation that has no form in integers")

    def output(self, tensor: Tensor, refuse: Callable[[Call, UnsupportedError], None]) -> Tensor:
        """An output of the model, dequantized if it is one of real numbers."""
        held = self._real.get(tensor.number)
        if isinstance(held, _Pending):
            refuse(held.call, UnsupportedError("a float result that nothing quantizes"))
        if isinstance(held, Tensor):
            self._emit("aten.dequantize", "dequantize", tensor, self=held)
        return self._integers.get(tensor.number, tensor)

    def quantized(self, tensor: Any) -> Tensor:
        """The quint8 that a float tensor is of."""
        held = self._real.get(tensor.number) if isinstance(tensor, Tensor) else None
        if not isinstance(held, Tensor):
            raise UnsupportedError("an input that is not quantized")
        return held

    def weights(self, tensor: Any) -> _Weights:
        """The constants that a float tensor is of."""
        held = self._real.get(tensor.number) if isinstance(tensor, Tensor) else None
        if not isinstance(held, _Weights):
            raise UnsupportedError("weights that are not quantized")
        return held

    def pending(self, tensor: Any) -> _Pending | None:
        """What has made a float tensor, if it is not quantized yet."""
        held = self._real.get(tensor.number) if isinstance(tensor, Tensor) else None
        return held if isinstance(held, _Pending) else None

    def emit_like(self, operation: str, call: Call, source: Tensor, /, **arguments: Any) -> Tensor:
        """An operation whose result is on its input's scale."""
        return self._emit(
            operation, call.name, self._new(call.results[0].shape, source), **arguments
        )

    def clip(self, call: Call, source: Tensor, low: int, high: int) -> Tensor:
        """Stored integers no smaller and no larger than these."""
        table = np.clip(np.arange(256), low, high).astype(np.uint8)
        result = self._new(source.shape, source)
        self.calls.append(Call(0, "aten.clamp", call.name, {"self": source}, (result,), (table,)))
        return result

    def _dequantize(self, call: Call) -> None:
        given, (result,) = call.arguments, call.results
        stored = given["input"]
        if call.operation.endswith("per_channel"):
            scales, zeros = given["scales"].values, given["zero_points"].values
            if given["axis"] != 0 or stored.values is None:
                raise UnsupportedError(f"scales along dimension {given['axis']}")
            self._real[result.number] = _Weights(stored.values, scales, zeros, True)
            return
        scale, zero = float(given["scale"]), int(given["zero_point"])
        if stored.values is not None:
            self._real[result.number] = _Weights(
                stored.values, np.array([scale]), np.array([zero]), False
            )
            return
        self._real[result.number] = self._integers[stored.number]

    def _quantize(self, call: Call) -> None:
        given, (result,) = call.arguments, call.results
        low, high, dtype = int(given["quant_min"]), int(given["quant_max"]), given["dtype"]
        if dtype not in ("int8", "uint8"):
            raise UnsupportedError(f"{dtype}")
        moved = 128 if dtype == "int8" else 0
        scale, zero = float(given["scale"]), int(given["zero_point"]) + moved
        target = Tensor(self._next(), "quint8", result.shape, scale, zero)
        source = given["input"]
        held = self._real.get(source.number)
        if isinstance(held, _Weights):
            raise UnsupportedError("constants quantized again")
        if isinstance(held, _Pending):
            relu = "_relu" if held.has_relu else ""
            operation = f"{held.operation}{relu}"
            made = self._emit(operation, held.call.name, target, **held.arguments)
        elif isinstance(held, Tensor):
            made = self._rescaled(call, held, target)
        else:
            made = self._emit("aten.quantize_per_tensor", call.name, target, self=source)
        if (low + moved, high + moved) != (0, 255):
            made = self.clip(call, made, low + moved, high + moved)
        self._integers[result.number] = made

    def _rescaled(self, call: Call, source: Tensor, target: Tensor) -> Tensor:
        """On the same scale the very integers, else by a table."""
        if (source.scale, source.zero_point) == (target.scale, target.zero_point):
            return source
        real = (np.arange(256) - source.zero_point).astype(np.float32) * np.float32(source.scale)
        steps = np.rint(real * (np.float32(1) / np.float32(target.scale))) + target.zero_point
        table = np.clip(steps, 0, 255).astype(np.uint8)
        self.calls.append(Call(0, "aten.clamp", call.name, {"self": source}, (target,), (table,)))
        return target

    def _move(self, call: Call) -> None:
        first, *rest = call.arguments.items()
        held = self._real.get(first[1].number)
        if isinstance(held, _Weights):
            if call.operation not in ("aten.t", "aten.permute", "aten.transpose"):
                raise UnsupportedError("weights that are moved")
            self._real[call.results[0].number] = held.turned()
            return
        source = self.quantized(first[1])
        results = tuple(self._new(result.shape, source) for result in call.results)
        arguments = {first[0]: source, **dict(rest)}
        self.calls.append(attrs.evolve(call, arguments=arguments, results=results))
        for result, made in zip(call.results, results, strict=True):
            self._real[result.number] = made

    def _emit(self, operation: str, name: str, result: Tensor, /, **arguments: Any) -> Tensor:
        self.calls.append(Call(0, operation, name, arguments, (result,)))
        return result

    def _new(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        return Tensor(self._next(), "quint8", shape, like.scale, like.zero_point)

    def _next(self) -> int:
        self._count += 1
        return self._count


_Rule = Callable[[_Islands, Call], Tensor | _Weights | _Pending]


def _packed(weights: _Weights, bias: Any, **sizes: Any) -> Packed:
    values = weights.values
    if values.dtype != np.int8:
        raise UnsupportedError(f"weights of {values.dtype}")
    real = bias.values if isinstance(bias, Tensor) else None
    if bias is not None and real is None:
        raise UnsupportedError("a bias that is no constant")
    return Packed(
        np.ascontiguousarray(values),
        weights.scales.astype(np.float32),
        weights.zero_points.astype(np.int64),
        weights.by_channel,
        None if real is None else real.astype(np.float32),
        _ENGINE,
        **sizes,
    )


def _convolution(graph: _Islands, call: Call) -> _Pending:
    given = call.arguments
    if given["transposed"] or len(given["stride"]) != 2:
        raise UnsupportedError("a transposed convolution, or one of another dimension")
    packed = _packed(
        graph.weights(given["weight"]),
        given["bias"],
        stride=given["stride"],
        padding=given["padding"],
        dilation=given["dilation"],
        groups=int(given["groups"]),
    )
    source = graph.quantized(given["input"])
    return _Pending(call, "quantized.conv2d", {"qx": source, "packed_weight": packed})


def _product(source: str, weights: str, bias: str | None) -> _Rule:
    def rule(graph: _Islands, call: Call) -> _Pending:
        given = call.arguments
        if given.get("beta", 1) != 1 or given.get("alpha", 1) != 1:
            raise UnsupportedError("factors of a product")
        packed = _packed(graph.weights(given[weights]).turned(), given[bias] if bias else None)
        operands = {"X": graph.quantized(given[source]), "W_prepack": packed}
        return _Pending(call, "quantized.linear", operands)

    return rule


def _pair(operation: str) -> _Rule:
    def rule(graph: _Islands, call: Call) -> _Pending:
        if call.arguments.get("alpha", 1) != 1:
            raise UnsupportedError("a factor of a sum")
        sides = (graph.quantized(call.arguments[side]) for side in ("self", "other"))
        return _Pending(call, operation, dict(zip(("qa", "qb"), sides, strict=True)))

    return rule


def _relu(graph: _Islands, call: Call) -> Tensor | _Pending:
    source = call.arguments["self"]
    pending = graph.pending(source)
    if pending:
        if not pending.operation.startswith("quantized."):
            raise UnsupportedError("a ReLU of a mean")
        return attrs.evolve(pending, has_relu=True)
    held = graph.quantized(source)
    return graph.clip(call, held, held.zero_point, 255)


def _max_pool(graph: _Islands, call: Call) -> Tensor:
    given = call.arguments
    source = graph.quantized(given["self"])
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    window = {name: given[name] for name in names if name in given}
    return graph.emit_like("aten.quantized_max_pool2d", call, source, self=source, **window)


def _mean(operation: str) -> _Rule:
    def rule(graph: _Islands, call: Call) -> Tensor:
        source, given = graph.quantized(call.arguments["self"]), call.arguments
        if operation == "aten.mean":
            axes = sorted(int(axis) % len(source.shape) for axis in given["dim"] or ())
            if axes != [2, 3] or not given["keepdim"] or len(source.shape) != 4:
                raise UnsupportedError(f"a mean along {axes}")
            return graph.emit_like("aten._adaptive_avg_pool2d", call, source, self=source)
        rest = {name: value for name, value in given.items() if name != "self"}
        return graph.emit_like(operation, call, source, self=source, **rest)

    return rule


_RULES: Mapping[str, _Rule] = {
    "aten._adaptive_avg_pool2d": _mean("aten._adaptive_avg_pool2d"),
    "aten.add": _pair("quantized.add"),
    "aten.addmm": _product("mat1", "mat2", "self"),
    "aten.avg_pool2d": _mean("aten.avg_pool2d"),
    "aten.convolution": _convolution,
    "aten.max_pool2d_with_indices": _max_pool,
    "aten.mean": _mean("aten.mean"),
    "aten.mm": _product("self", "mat2", None),
    "aten.mul": _pair("quantized.mul"),
    "aten.relu": _relu,
}
"""Float operation -> the operation of integers, of what is dequantized before it."""

__all__: Sequence[str] = ("is_pt2e", "with_islands")
