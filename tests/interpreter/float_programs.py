"""Float forms of Glow's recorded programs: the types without scales, the weights of the model.

There is no float dump beside the quantized ones, so it is made from them: quantized types become
float, changes of scale become copies, and each constant is taken from ``model.onnx`` in the layout
that comes closest to the quantized one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import onnx
from onnx import numpy_helper
from shared_files import shared_folder

from nmpsim.interpreter import dequantize
from nmpsim.lir.constants import attach_constants, find_tensors_file
from nmpsim.lir.nodes import Instruction, Module, TensorType
from nmpsim.lir.parser import parse_file
from nmpsim.lir.verify import verify

Array = np.ndarray[Any, Any]
CHANGES_OF_SCALE = ("quantize", "dequantize", "rescalequantized")


def recorded_module(text: Path) -> Module:
    """Return a recorded program with its constants."""
    stem = text.name.removesuffix(".lir.txt")
    module, _ = attach_constants(
        parse_file(text), text.with_name(f"{stem}.npz"), find_tensors_file(text)
    )
    return module


def layer_floats(name: str) -> dict[str, Array]:
    """Return the float constants of the recorded program ``name`` in the shared folder."""
    text = shared_folder() / name
    quantized = recorded_module(text)
    return {
        w.name: _float_constant(w.name, w.type, quantized.constants[w.name], text)
        for w in quantized.weights
        if w.constant
    }


def float_form(name: str) -> Module:
    """Return the float form of the recorded program ``name`` in the shared folder."""
    quantized = recorded_module(shared_folder() / name)
    module = attrs.evolve(
        quantized,
        weights=tuple(attrs.evolve(w, type=float_type(w.type)) for w in quantized.weights),
        instructions=tuple(map(_float_instruction, quantized.instructions)),
        constants=layer_floats(name),
    )
    verify(module)
    return module


def float_type(type_: TensorType) -> TensorType:
    return type_ if type_.quant is None else TensorType("float", type_.shape)


def _float_instruction(instruction: Instruction) -> Instruction:
    attributes = {
        key: float_type(value) if isinstance(value, TensorType) else value
        for key, value in instruction.attributes.items()
    }
    opcode = "copy" if instruction.opcode in CHANGES_OF_SCALE else instruction.opcode
    return attrs.evolve(instruction, opcode=opcode, attributes=attributes)


def _float_constant(name: str, type_: TensorType, values: Array, text: Path) -> Array:
    if type_.quant is None:
        return values
    target, step = dequantize(values, type_), type_.quant.scale
    model = text.parents[1] / "model.onnx"
    for candidate in _initializers(model):
        for layout in _layouts(candidate, type_.shape):
            if np.abs(layout - target).max() <= 0.6 * step:
                return np.ascontiguousarray(layout, dtype=np.float32)
    raise LookupError(f"no initializer of {model} is %{name}")


@cache
def _initializers(model: Path) -> list[Array]:
    """Return a model's tensors and its filters with folded batch normalization."""
    graph = onnx.load(model).graph
    tensors = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    made_by = {output: node for node in graph.node for output in node.output}
    arrays = list(tensors.values())
    for node in graph.node:
        if node.op_type == "BatchNormalization":
            conv = made_by[node.input[0]]
            statistics = [tensors[n] for n in node.input[1:]]
            epsilon = next(a.f for a in node.attribute if a.name == "epsilon")
            arrays += _fold_batch_normalization(
                [tensors[n] for n in conv.input[1:]], statistics, epsilon
            )
    return arrays


def _fold_batch_normalization(
    conv: list[Array], statistics: list[Array], epsilon: float
) -> list[Array]:
    gamma, beta, mean, variance = statistics
    factor = gamma * (np.float32(1) / np.sqrt(variance + np.float32(epsilon)))
    bias = conv[1] if len(conv) > 1 else np.zeros_like(beta)
    return [conv[0] * factor[:, None, None, None], bias * factor + (beta - mean * factor)]


def _layouts(array: Array, shape: tuple[int, ...]) -> Iterator[Array]:
    """Yield each layout in which Glow may store an initializer as a constant of this shape."""
    if array.size != int(np.prod(shape)):
        return
    if array.ndim == 4:
        yield array.transpose(0, 2, 3, 1).reshape(shape)
    if array.ndim == 2:
        for matrix in (array, array.T):
            if matrix.shape == shape:
                yield matrix
                yield from _nhwc_rows(matrix)
    if array.shape == shape:
        yield array
    if len(shape) == 1:
        yield array.reshape(-1)


def _nhwc_rows(matrix: Array) -> Iterator[Array]:
    """Yield a weight with its NCHW rows reordered to NHWC for each possible square image."""
    rows, columns = matrix.shape
    for channels, height in itertools.product(range(1, rows + 1), range(1, rows + 1)):
        if rows % (channels * height) == 0:
            width = rows // (channels * height)
            if height == width:
                blocks = matrix.reshape(channels, height, width, columns)
                yield blocks.transpose(1, 2, 0, 3).reshape(matrix.shape)
