"""ONNX models, from the file to the bundle."""

from __future__ import annotations

from random import Random
from typing import Any

from onnx import load_model_from_string

from nmpsim import compile
from nmpsim.frontends import find_front_end

from ..target import Target, allow_errors, write_file

_NUMBERS = (0, 1, -1, 2, 3, 7, 127, 128, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, -(1 << 63))


def run(data: bytes) -> None:
    """Read a model and compile it."""
    path = write_file(data, "model.onnx")
    with allow_errors("MODEL", "LIR", "COMP"):
        if find_front_end(path) is not None:
            compile(path, tiling="simple")


def mutate(data: bytes, rng: Random) -> bytes:
    """Change the graph of a model, or bytes of the file."""
    if rng.randrange(3) == 0:
        return _bytes(data, rng)
    try:
        model = load_model_from_string(data)
    except Exception as error:  # whatever protobuf raises
        raise ValueError("no model") from error
    for _ in range(rng.choice((1, 1, 2, 3))):
        _change(model.graph, rng)
    return bytes(model.SerializeToString())


def _bytes(data: bytes, rng: Random) -> bytes:
    if len(data) < 16:
        raise ValueError("too short for a model")
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        changed[rng.randrange(len(changed))] = rng.choice((0, 1, 2, 8, 127, 128, 255))
    return bytes(changed)


def _change(graph: Any, rng: Random) -> None:
    """Change one property of a node, a tensor, an input or an output."""
    choice = rng.randrange(7)
    if choice == 0 and graph.node:
        node = rng.choice(graph.node)
        names = [name for one in graph.node for name in (*one.input, *one.output)]
        names += [tensor.name for tensor in graph.initializer]
        row = rng.choice((node.input, node.output))
        if row:
            row[rng.randrange(len(row))] = rng.choice([*names, ""])
    elif choice == 1 and graph.node:
        kinds = ["Add", "Clip", "Concat", "Conv", "Flatten", "Gather", "Gemm", "MaxPool", "Mul"]
        kinds += ["Pad", "Reshape", "Resize", "Shape", "Slice", "Softmax", "Split", "Transpose"]
        kinds += ["AveragePool", "DepthToSpace", "Squeeze", "Unsqueeze", "ReduceMean", "MatMul"]
        rng.choice(graph.node).op_type = rng.choice(kinds + [one.op_type for one in graph.node])
    elif choice == 2:
        attributes = [one for node in graph.node for one in node.attribute]
        if attributes:
            one = rng.choice(attributes)
            one.i = rng.choice(_NUMBERS)
            if one.ints:
                one.ints[rng.randrange(len(one.ints))] = rng.choice(_NUMBERS)
            one.type = rng.choice((one.type, one.type, rng.randrange(1, 9)))
    elif choice == 3 and graph.initializer:
        tensor = rng.choice(graph.initializer)
        if tensor.dims and rng.randrange(2):
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(_NUMBERS)
        else:
            tensor.data_type = rng.randrange(24)
    elif choice == 4 and graph.initializer:
        tensor = rng.choice(graph.initializer)
        raw = bytearray(tensor.raw_data)
        if raw:
            raw[rng.randrange(len(raw))] = rng.choice((0, 1, 127, 128, 255))
            tensor.raw_data = bytes(raw)
    elif choice == 5:
        rows = [row for row in (graph.node, graph.initializer, graph.input, graph.output) if row]
        if rows:
            row = rng.choice(rows)
            del row[rng.randrange(len(row))]
    else:
        kinds = [one.type.tensor_type for one in (*graph.input, *graph.output)]
        if kinds:
            kind = rng.choice(kinds)
            kind.elem_type = rng.choice((kind.elem_type, rng.randrange(20)))
            if kind.shape.dim:
                rng.choice(kind.shape.dim).dim_value = rng.choice(_NUMBERS)


TARGET = Target(run, mutate=mutate)
