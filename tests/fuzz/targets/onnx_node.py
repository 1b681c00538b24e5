"""ONNX models with one node of any operator and any number of inputs, also empty ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
from onnx import AttributeProto, TensorProto, defs, helper, numpy_helper

from nmpsim.frontends.onnx import SUPPORTED_OPERATORS

from ..target import Target
from . import onnx as models

OPERATORS = tuple(sorted({*SUPPORTED_OPERATORS, *(one.name for one in defs.get_all_schemas())}))
CONSTANTS = {
    "scale": np.float32(0.5),
    "zero": np.uint8(3),
    "filter": np.ones((2, 4, 1, 1), np.float32),
    "integers": np.array([1, 4, 2, 2], np.int64),
    "axis": np.array([1], np.int64),
    "nothing": np.zeros(0, np.float32),
    "flag": np.array(True),
}
TENSORS = ("x", "q", "real", *CONSTANTS, "")
VALUES = (
    0,
    1,
    -1,
    2,
    1 << 40,
    0.5,
    "linear",
    "NOTSET",
    [],
    [1],
    [1, 1],
    [0, 1, 2, 3],
    [-9, 1 << 40],
)


def seeds() -> Iterator[bytes]:
    """Yield each supported operator without inputs, with empty ones and with too many."""
    for op in sorted(SUPPORTED_OPERATORS):
        for inputs in ((), ("",), ("", "", ""), ("real",), ("real",) * 12):
            yield _model(op, inputs, {})


def mutate(data: bytes, random: Random) -> bytes:
    """Return a random node, independent of the data."""
    op = random.choice(OPERATORS)
    inputs = [random.choice(TENSORS) for _ in range(random.choice((0, 1, 1, 2, 2, 3, 4, 5, 9)))]
    return _model(op, inputs, _attributes(op, random))


def _attributes(op: str, random: Random) -> dict[str, Any]:
    name = op.rpartition(".")[2]
    known = list(defs.get_schema(name).attributes) if defs.has(name) else []
    chosen = [one for one in known if random.randrange(2)]
    return {one: random.choice(VALUES) for one in chosen}


def _model(op: str, inputs: Sequence[str], attributes: dict[str, Any]) -> bytes:
    domain, _, name = op.rpartition(".")
    node = helper.make_node(name, inputs, ["y"], domain=domain)
    for key, value in attributes.items():
        kind = AttributeProto.INTS if value == [] else None  # which an empty list does not tell
        node.attribute.append(helper.make_attribute(key, value, attr_type=kind))
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["real"]), node],
        "graph",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 4, 4)),
            helper.make_tensor_value_info("q", TensorProto.UINT8, (1, 4, 4, 4)),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in CONSTANTS.items()],
    )
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=versions).SerializeToString())


TARGET = Target(models.run, seeds, mutate)
