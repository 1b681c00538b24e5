"""Nodes whose inputs are all known: shapes that a file computes, mostly."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nmpsim.frontends.graph.lowering import Lowering
from nmpsim.frontends.graph.nodes import DTYPES, Array, Node
from nmpsim.frontends.imported_model import UnsupportedError

_MAX_ELEMENTS = 1 << 24
"""Of a result; each of these functions makes no more than that of its inputs."""
Fold = Callable[[Node, list[Array]], Any]


def _axes(node: Node, inputs: list[Array], place: int = 1) -> tuple[int, ...]:
    given = node.attributes.get("axes")
    if given is None and len(inputs) > place:
        given = inputs[place].reshape(-1)
    return tuple(int(axis) for axis in given) if given is not None else ()


def _squeeze(node: Node, inputs: list[Array]) -> Array:
    axes = _axes(node, inputs)
    return np.squeeze(inputs[0], axes or None)


def _unsqueeze(node: Node, inputs: list[Array]) -> Array:
    return np.expand_dims(inputs[0], _axes(node, inputs))


def _slice(node: Node, inputs: list[Array]) -> Array:
    if "starts" in node.attributes:
        raise UnsupportedError("a slice of a constant by attributes")
    data, starts, ends = inputs[0], inputs[1].reshape(-1), inputs[2].reshape(-1)
    axes = inputs[3].reshape(-1) if len(inputs) > 3 else np.arange(starts.size)
    steps = inputs[4].reshape(-1) if len(inputs) > 4 else np.ones(starts.size, np.int64)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        parts = [slice(None)] * data.ndim
        parts[int(axis)] = slice(int(start), int(end) if end > -(1 << 62) else None, int(step))
        data = data[tuple(parts)]
    return data


def _divide(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.asarray(x / y)
    if not y.all():
        raise UnsupportedError("a division by 0")
    return np.asarray(np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y)))


def _remainder(node: Node, inputs: list[Array]) -> Array:
    """ONNX: the sign is the dividend's if ``fmod`` is set, as it is for reals, or the divisor's."""
    x, y = inputs
    if x.dtype.kind != "f" and not y.all():
        raise UnsupportedError("a division by 0")
    remainder = np.fmod if node.attributes.get("fmod") else np.mod
    return np.asarray(remainder(x, y))


def _reshape(node: Node, inputs: list[Array]) -> Array:
    given = node.attributes.get("shape") or inputs[1].reshape(-1)
    shape = [inputs[0].shape[i] if d == 0 else int(d) for i, d in enumerate(given)]
    return inputs[0].reshape(shape)


def _cast(node: Node, inputs: list[Array]) -> Array:
    dtype = DTYPES.get(int(node.attributes.get("to", 0)))
    if dtype is None:
        raise UnsupportedError(f"a cast to type {node.attributes.get('to')}")
    return inputs[0].astype(dtype)


def _small(shape: Array) -> tuple[int, ...]:
    """A shape of no more elements than are computed here."""
    dims = tuple(int(dim) for dim in shape.reshape(-1))
    if min(dims, default=1) < 0 or math.prod(dims) > _MAX_ELEMENTS:
        raise UnsupportedError(f"a constant {list(dims)}")
    return dims


def _constant_of_shape(node: Node, inputs: list[Array]) -> Array:
    value = np.asarray(node.attributes.get("value", np.zeros(1, np.float32)))
    return np.full(_small(inputs[0]), value.reshape(()), value.dtype)


def _range(node: Node, inputs: list[Array]) -> Array:
    start, limit, step = (one.reshape(()) for one in inputs)
    if not step or not 0 <= (limit - start) / step <= _MAX_ELEMENTS:
        raise UnsupportedError(f"a range from {start} to {limit} by {step}")
    ends: list[Any] = [start.item(), limit.item(), step.item()]
    values: Array = np.arange(*ends, dtype=start.dtype)
    return values


_FOLDS: dict[str, Fold] = {
    "Add": lambda node, x: x[0] + x[1],
    "Cast": _cast,
    "Ceil": lambda node, x: np.ceil(x[0]),
    "Concat": lambda node, x: np.concatenate(x, int(node.attributes.get("axis", 0))),
    "ConstantOfShape": _constant_of_shape,
    "Div": lambda node, x: _divide(x[0], x[1]),
    "Equal": lambda node, x: x[0] == x[1],
    "Exp": lambda node, x: np.exp(x[0]),
    "Floor": lambda node, x: np.floor(x[0]),
    "Gather": lambda node, x: np.take(x[0], x[1], int(node.attributes.get("axis", 0))),
    "Greater": lambda node, x: x[0] > x[1],
    "Identity": lambda node, x: x[0],
    "Less": lambda node, x: x[0] < x[1],
    "Max": lambda node, x: functools.reduce(np.maximum, x),
    "Min": lambda node, x: functools.reduce(np.minimum, x),
    "Mod": _remainder,
    "Mul": lambda node, x: x[0] * x[1],
    "Neg": lambda node, x: -x[0],
    "Not": lambda node, x: ~x[0],
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Sqrt": lambda node, x: np.sqrt(x[0]),
    "Squeeze": _squeeze,
    "Sub": lambda node, x: x[0] - x[1],
    "Transpose": lambda node, x: np.transpose(x[0], node.attributes.get("perm")),
    "Unsqueeze": _unsqueeze,
    "Where": lambda node, x: np.where(x[0], x[1], x[2]),
}
"""Operator -> its values, in NumPy."""
_GROWS = (
    *("Add", "Sub", "Mul", "Div", "Gather", "Equal", "Greater", "Less", "Max", "Min", "Mod"),
    "Where",
)
"""Operators whose result may be larger than all inputs together."""
_MAX_ALL_ELEMENTS = 1 << 27
"""Of all results of a model that are no views of other arrays: at most 1 GiB. NumPy takes 10 to
40 ns an element, and up to 0.6 us for remainders of float64, so that a model cannot take minutes.
"""


def constant_of(node: Node) -> Array:
    """What a node of kind Constant holds."""
    held: dict[str, Callable[[Any], Any]] = {
        "value": np.asarray,
        "value_float": np.float32,
        "value_floats": lambda v: np.array(v, np.float32),
        "value_int": np.int64,
        "value_ints": lambda v: np.array(v, np.int64),
    }
    for name, form in held.items():
        if node.attributes.get(name) is not None:
            return np.asarray(form(node.attributes[name]))
    raise UnsupportedError(f"a constant of {', '.join(node.attributes) or 'nothing'}")


FOLDED = frozenset(("Constant", "Shape", "Size", *_FOLDS))
"""Operators whose values are computed when a model is read, if what they read is known."""


def folded(graph: Lowering, node: Node) -> Array | None:
    """A node's values if all that it reads is known; None if not."""
    if node.op == "Shape":
        shape = np.array(graph.shape(node.inputs[0]), np.int64)
        end = node.attributes.get("end")
        return shape[int(node.attributes.get("start", 0)) : None if end is None else int(end)]
    if node.op == "Size":
        return np.array(math.prod(graph.shape(node.inputs[0])), np.int64)
    if node.op not in _FOLDS or not node.inputs:
        return None
    if not all(name and graph.is_constant(name) for name in node.inputs):
        return None
    if graph.folded_elements > _MAX_ALL_ELEMENTS:  # before any more is computed
        raise UnsupportedError(
            f"more than {_MAX_ALL_ELEMENTS} elements of constants that nodes compute"
        )
    inputs = [graph.constant(name) for name in node.inputs]
    if node.op in _GROWS:
        dims = np.prod([max(x.size, 1) for x in inputs], dtype=float)
        if dims > _MAX_ELEMENTS and any(x.size > 1 for x in inputs[1:]):
            raise UnsupportedError(f"a constant of up to {dims:g} elements")
    if node.op == "Concat" and sum(one.size for one in inputs) > _MAX_ELEMENTS:
        raise UnsupportedError(f"a constant of {sum(one.size for one in inputs)} elements")
    try:
        with np.errstate(all="ignore"):
            values = np.asarray(_FOLDS[node.op](node, inputs))
    except (ValueError, IndexError, TypeError, OverflowError) as error:
        raise UnsupportedError(f"{type(error).__name__}: {error}"[:120]) from error
    if not any(np.may_share_memory(values, one) for one in inputs):
        graph.folded_elements += values.size
    return values
