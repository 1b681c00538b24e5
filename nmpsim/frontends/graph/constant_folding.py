"""Constant folding: evaluate nodes whose inputs are all constant, mostly shapes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from nmpsim.bundle.metadata import OperatorMapping
from nmpsim.diagnostics import list_alternatives
from nmpsim.frontends.graph.nodes import ONNX_DTYPES, Array, Graph, Node
from nmpsim.frontends.graph.operation import GraphLowering, bind_attributes
from nmpsim.frontends.graph.problems import UnsupportedOperators
from nmpsim.frontends.imported_model import UnsupportedError, require

IS_CONSTANT = "a constant"
"""Why a folded node has no layers."""
_MAX_ELEMENTS = 1 << 24
"""Limit for one result; operators outside ``_GROWING`` make no more than their inputs have."""
_MAX_ALL_ELEMENTS = 1 << 27
"""Limit for all results of a model that are not views: 1 GiB. NumPy takes 10 to 40 ns an element,
and up to 0.6 us for remainders of float64, so that a model cannot take minutes."""


def _fold_slice(data: Array, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Array:
    count = np.size(starts)
    axes = range(count) if axes is None else np.ravel(axes)
    steps = [1] * count if steps is None else np.ravel(steps)
    parts = [slice(None)] * data.ndim
    for start, end, axis, step in zip(np.ravel(starts), np.ravel(ends), axes, steps, strict=True):
        parts[int(axis)] = slice(int(start), int(end) if end > -(1 << 62) else None, int(step))
    return data[tuple(parts)]


def _divide(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.asarray(x / y)
    _require_divisors(y)
    return np.asarray(np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y)))


def _require_divisors(divisors: Array) -> None:
    zeros = divisors.size - np.count_nonzero(divisors)
    require(not zeros, f"{zeros} integer divisors that are 0", "divisors other than 0")


def _remainder(x: Array, y: Array, fmod: bool = False) -> Array:
    """Compute ONNX's Mod: the sign is the dividend's with ``fmod``, otherwise the divisor's."""
    if x.dtype.kind != "f":
        _require_divisors(y)
    return np.asarray((np.fmod if fmod else np.mod)(x, y))


def _reshape(x: Array, shape: Array) -> Array:
    return x.reshape([x.shape[i] if d == 0 else int(d) for i, d in enumerate(np.ravel(shape))])


def _cast(x: Array, to: int = 0) -> Array:
    require(
        to in ONNX_DTYPES,
        f"a cast to type number {to}",
        "a cast to an ONNX type that NumPy supports",
    )
    return x.astype(ONNX_DTYPES[to])


def _constant_of_shape(shape: Array, value: Array | None = None) -> Array:
    dims = tuple(int(dim) for dim in shape.reshape(-1))
    found = f"a constant of shape {list(dims)}"
    require(min(dims, default=1) >= 0, found, "dimensions of 0 or more")
    require(math.prod(dims) <= _MAX_ALL_ELEMENTS, found, f"at most {_MAX_ALL_ELEMENTS} elements")
    fill = np.zeros(1, np.float32) if value is None else np.asarray(value)
    return np.broadcast_to(fill.reshape(()), dims)


def _range(*limits: Array) -> Array:
    start, limit, step = (one.reshape(()) for one in limits)
    found = f"a range from {start} to {limit} in steps of {step}"
    require(step, found, "a step other than 0")
    count = (limit - start) / step
    require(count >= 0, found, "a step towards the limit")
    require(count <= _MAX_ELEMENTS, found, f"a range of at most {_MAX_ELEMENTS} elements")
    ends: list[Any] = [start.item(), limit.item(), step.item()]
    values: Array = np.arange(*ends, dtype=start.dtype)
    return values


def _axes(axes: Any) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.ravel(axes))


FOLDS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Cast": _cast,
    "Ceil": np.ceil,
    "Concat": lambda *x, axis=0: np.concatenate(x, axis),
    "ConstantOfShape": _constant_of_shape,
    "Div": _divide,
    "Equal": np.equal,
    "Exp": np.exp,
    "Floor": np.floor,
    "Gather": lambda x, indices, axis=0: np.take(x, indices, axis),
    "Greater": np.greater,
    "Identity": lambda x: x,
    "Less": np.less,
    "Max": lambda *x: functools.reduce(np.maximum, x),
    "Min": lambda *x: functools.reduce(np.minimum, x),
    "Mod": _remainder,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.invert,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _fold_slice,
    "Sqrt": np.sqrt,
    "Squeeze": lambda x, axes=(): np.squeeze(x, _axes(axes) or None),
    "Sub": np.subtract,
    "Transpose": lambda x, perm=None: np.transpose(x, perm),
    "Unsqueeze": lambda x, axes=(): np.expand_dims(x, _axes(axes)),
    "Where": lambda *x: np.where(*x),
}
"""Operator -> its function of input arrays and, as keyword arguments, attributes."""
_GROWING = (
    *("Add", "Sub", "Mul", "Div", "Gather", "Equal", "Greater", "Less", "Max", "Min", "Mod"),
    "Where",
)
"""Operators whose result may be larger than all inputs together."""
_CONSTANT_TYPES: dict[str, Any] = {
    "value": None,
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}
"""Attribute of the operator Constant -> type of its values; None: its own."""
FOLDED_OPERATORS = frozenset(("Constant", "Shape", "Size", *FOLDS))
"""Operators that are computed at compile time if their inputs are known."""


def extract_constants(
    graph: Graph, mappings: dict[int, OperatorMapping], problems: UnsupportedOperators
) -> Graph:
    """Extract the constants that Constant and Identity nodes define; return the new graph.

    Parameters
    ----------
    graph : Graph
        The graph as read.
    mappings : dict of int to OperatorMapping
        Receives what became of the removed nodes.
    problems : Problems
        Receives constants that are not supported.
    """
    constants, nodes = dict(graph.constants), []
    for node in graph.nodes:
        is_renamed = node.op == "Identity" and node.get_input(0) in constants
        if node.op != "Constant" and not is_renamed:
            nodes.append(node)
            continue
        with problems.collect_errors(node.index, node.label):
            values = constants[node.inputs[0]] if is_renamed else _constant(node)
            constants[node.outputs[0]] = values
        mappings[node.index] = OperatorMapping(node.label, (), IS_CONSTANT)
    return attrs.evolve(graph, nodes=tuple(nodes), constants=constants)


def _constant(node: Node) -> Array:
    for name, dtype in _CONSTANT_TYPES.items():
        if node.attributes.get(name) is not None:
            return np.asarray(node.attributes[name], dtype)
    found = f"the attributes {', '.join(node.attributes)}" if node.attributes else "no attributes"
    raise UnsupportedError(found, f"the attribute {list_alternatives(_CONSTANT_TYPES)}")


def fold_node(lowering: GraphLowering, node: Node) -> Array | None:
    """Fold a node with constant inputs; return its result, or None if the node is not foldable.

    Raises
    ------
    UnsupportedError
        If the values cannot be computed, or are too large.
    """
    if node.op in ("Shape", "Size"):
        shape = np.array(lowering.get_shape(node.inputs[0]), np.int64)
        if node.op == "Size":
            return np.array(math.prod(shape.tolist()), np.int64)
        return shape[node.attributes.get("start", 0) : node.attributes.get("end")]
    is_known = all(name and lowering.is_constant(name) for name in node.inputs)
    if node.op not in FOLDS or not node.inputs or not is_known:
        return None
    require(  # before any more is computed
        lowering.folded_elements <= _MAX_ALL_ELEMENTS,
        f"{lowering.folded_elements} elements in all computed constants",
        f"at most {_MAX_ALL_ELEMENTS} elements",
    )
    inputs = [lowering.get_constant(name) for name in node.inputs]
    count = 0
    if node.op in _GROWING and any(x.size > 1 for x in inputs[1:]):
        count = math.prod(max(x.size, 1) for x in inputs)
    if node.op == "Concat":
        count = sum(x.size for x in inputs)
    require(
        count <= _MAX_ELEMENTS,
        f"a constant of {count} elements",
        f"at most {_MAX_ELEMENTS} elements",
    )
    function = FOLDS[node.op]
    try:
        with np.errstate(all="ignore"):
            values = np.asarray(function(*inputs, **bind_attributes(function, node.attributes)))
    except (ValueError, IndexError, TypeError, OverflowError) as error:
        raise UnsupportedError(
            f"{type(error).__name__}: {error}"[:120], f"valid constant inputs of {node.op}"
        ) from error
    if not any(np.may_share_memory(values, one) for one in inputs):
        lowering.folded_elements += values.size
    return values
