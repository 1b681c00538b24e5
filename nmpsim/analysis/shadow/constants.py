"""Real values of quantized constants, and float weights from files.

Glow converts convolution filters from OIHW to OHWI, transposes the weights of fully connected
layers if necessary, and permutes those after a flattened NCHW activation, because its own
activations are NHWC. It folds batch norms into the convolutions before them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import numpy as np

from nmpsim.analysis.shadow.evaluate import Real
from nmpsim.array_files import ArrayFile
from nmpsim.arrays import Array, Arrays, Shape
from nmpsim.diagnostics import UserError, fail
from nmpsim.extras import require_extra
from nmpsim.input_files import MAX_MODEL_BYTES, read_bytes
from nmpsim.interpreter import (
    TensorLocation,
    dequantize,
    dequantize_rows,
    dequantize_sums,
    find_scale_operands,
    find_sums_operands,
    locate_tensors,
    view_tensor,
)
from nmpsim.lir.nodes import Instruction, Module
from nmpsim.lir.opcode import WEIGHTED
from nmpsim.lir.opcodes import OPCODES


def read_floats(path: Path, sizes: Collection[int]) -> dict[str, Array]:
    """Read, by name, the float arrays of a file whose number of elements is in ``sizes``.

    Parameters
    ----------
    path
        An ``.npz`` file, or an ONNX model (``.onnx``), of which only the initializers are
        read and nothing is run; its batch norms are folded, into arrays of their own.
    sizes
        Numbers of elements; other arrays are not read.

    Raises
    ------
    UserError
        FILE001 if the file cannot be read, CONST001 if it is damaged or something
        else, PKG001 for an ONNX model without the package onnx.
    """
    read = _from_onnx if path.suffix.lower() == ".onnx" else _from_npz
    return dict(read(path, sizes))


def _from_npz(path: Path, sizes: Collection[int]) -> Iterator[tuple[str, Array]]:
    with ArrayFile(path, "CONST001").keep_open() as file:
        for key in file.keys:
            array = file.get_array(key)
            if array.dtype.kind == "f" and array.size in sizes:
                yield key, array.read()


def _from_onnx(path: Path, sizes: Collection[int]) -> Iterator[tuple[str, Array]]:
    needed, instead = "ONNX files need the package onnx", "save the weights as an .npz file"
    with require_extra("onnx", needed, place=path, instead=instead):
        import onnx
        from onnx import numpy_helper
    data = read_bytes(path, "float weights", MAX_MODEL_BYTES)
    floats = {
        onnx.TensorProto.DataType.Value(k) for k in ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE")
    }
    try:
        graph = onnx.load_model_from_string(data).graph
        tensors = {one.name: one for one in graph.initializer if one.data_type in floats}

        def values(name: str) -> Array | None:
            if name not in tensors:
                return None
            return np.asarray(numpy_helper.to_array(tensors[name], str(path.parent)), np.float64)

        for name, tensor in tensors.items():
            if math.prod(tensor.dims) in sizes:
                yield name, np.asarray(values(name))
        folded = fold_batch_norms(graph, values)
        yield from ((name, array) for name, array in folded if array.size in sizes)
    except Exception as error:  # whatever protobuf and onnx raise for damaged files
        raise _unusable(path, str(error)) from error


def _unusable(path: Path, found: str) -> UserError:
    return fail(
        "CONST001",
        "the file cannot be read as an ONNX model",
        place=path,
        found=found.split("\n", 1)[0][:120],
        expected="an ONNX model with float weights",
        hint="Pass the float model (.onnx), or its weights as .npz.",
    )


def read_quantized_constants(module: Module) -> dict[str, Real]:
    """Read all quantized weights and biases; return their real values by name.

    Scales of channelwise filters and biases come from their tables. Look-up tables are omitted.
    """
    own: dict[str, Real] = {}
    tables: set[str] = set()
    for instruction, places in _uses(module):
        own |= _with_own_scales(module, instruction, places)
        roles = [role.name for role in OPCODES[instruction.opcode].operands]
        tables |= {p.storage for r, p in zip(roles, places, strict=True) if r == "Mapping"}
    return {
        weight.name: own.get(weight.name, dequantize(module.constants[weight.name], weight.type))
        for weight in module.weights
        if weight.constant and weight.type.quant is not None and weight.name not in tables
    }


def map_biases_to_filters(module: Module) -> dict[str, str]:
    """Map the name of each bias to the name of the filter in the same layer."""
    return {
        places[3].storage: places[2].storage
        for instruction, places in _uses(module)
        if OPCODES[instruction.opcode].kind in WEIGHTED
    }


def _uses(module: Module) -> Iterator[tuple[Instruction, list[TensorLocation]]]:
    places = locate_tensors(module)
    for instruction in module.instructions:
        yield instruction, [places[operand.name] for operand in instruction.operands]


def _with_own_scales(
    module: Module, instruction: Instruction, places: list[TensorLocation]
) -> dict[str, Real]:
    found: dict[str, Real] = {}
    for index, parameters in find_scale_operands(instruction).items():
        used = [places[i] for i in (index, *parameters)]
        if all(place.storage in module.constants for place in used):
            array, scales, offsets = (view_tensor(module.constants[p.storage], p) for p in used)
            found[used[0].storage] = dequantize_rows(array, scales, offsets)
    for index, table in find_sums_operands(instruction, [p.type for p in places]).items():
        if all(places[i].storage in module.constants for i in (index, table)):
            used = [places[index], places[table]]
            array, scales = (view_tensor(module.constants[p.storage], p) for p in used)
            found[places[index].storage] = dequantize_sums(array, places[1].type, scales)
    return found


Values: TypeAlias = Callable[[str], Array | None]
"""Function from a tensor's name to its values; None if the model computes them."""

FOLDED = " with its batch norm"
"""Suffix of a folded array's name after the name of the unfolded one."""


def fold_batch_norms(graph: Any, values: Values) -> Iterator[tuple[str, Array]]:
    """Fold batch norms into convolutions; yield the name and values of each filter and bias.

    Only convolutions whose result is read by a batch norm alone are folded. The folded bias of a
    convolution without bias has the name of the batch norm's result.

    Parameters
    ----------
    graph
        Graph of an ONNX model.
    values
        Function from a tensor's name to its values.
    """
    readers = Counter(name for node in graph.node for name in node.input)
    readers.update(output.name for output in graph.output)
    convolutions = {node.output[0]: node for node in graph.node if node.op_type == "Conv"}
    for node in graph.node:
        convolution = convolutions.get(node.input[0]) if node.input else None
        if node.op_type != "BatchNormalization" or convolution is None:
            continue
        if readers[node.input[0]] == 1 and readers[convolution.input[1]] == 1:
            yield from _fold(node, convolution, values)


def _fold(node: Any, convolution: Any, values: Values) -> Iterator[tuple[str, Array]]:
    """Fold ``(w * x + b - mean) * gamma / sqrt(variance + epsilon) + beta`` into a convolution."""
    known = [values(name) for name in (convolution.input[1], *node.input[1:5])]
    if any(array is None for array in known):
        return
    filter_, gamma, beta, mean, variance = (np.asarray(array, np.float64) for array in known)
    own_bias = convolution.input[2] if len(convolution.input) > 2 else ""
    bias = values(own_bias) if own_bias else np.zeros_like(mean)
    epsilon = next((one.f for one in node.attribute if one.name == "epsilon"), 1e-5)
    factors = gamma / np.sqrt(variance + epsilon)
    yield convolution.input[1] + FOLDED, filter_ * factors.reshape(-1, *[1] * (filter_.ndim - 1))
    if bias is not None:
        yield (own_bias or node.output[0]) + FOLDED, (bias - mean) * factors + beta


def list_array_variants(name: str, arrays: Arrays) -> list[str]:
    """Return the existing names of an array, as it is and with a folded batch norm."""
    return [form for form in (name, name + FOLDED) if form in arrays]


AS_IS = "as it is"
_SAMPLES = 4096
"""Number of elements on which layouts are compared."""


@attrs.frozen(eq=False)
class Layout:
    """Layout of an array as a constant: the reordered elements, and the constant's shape."""

    name: str
    elements: Array
    """View of the array with the elements in the order of the constant, in any shape."""
    shape: Shape

    def get_values(self) -> Real:
        """Return the converted array in the constant's shape as float64."""
        return np.asarray(self.elements, np.float64).reshape(self.shape)

    def get_sample(self, indices: Array) -> Array:
        """Return the elements at flat indices of the converted array."""
        values: Array = self.elements[np.unravel_index(indices, self.elements.shape)]
        return values


def find_best_layout(array: Array, real: Real) -> Layout | None:
    """Return the layout in which an array is closest to a constant, or None if all shapes differ.

    Parameters
    ----------
    array
        Values of the float model, any shape.
    real
        Real values of the constant, in the LIR's shape.

    Returns
    -------
    Layout or None
        None if no layout has the constant's shape.
    """
    flat = np.arange(real.size)
    if real.size > _SAMPLES:
        flat = np.random.default_rng(0).choice(real.size, _SAMPLES, replace=False)
    wanted = real.reshape(-1)[flat]
    return min(
        list_layouts(array, real.shape),
        key=lambda layout: float(np.square(layout.get_sample(flat) - wanted).sum()),
        default=None,
    )


def list_layouts(array: Array, shape: Shape) -> Iterator[Layout]:
    """Yield all layouts that convert an array to a shape, the simplest layout first."""
    if array.shape == shape:
        yield Layout(AS_IS, array, shape)
    if array.ndim == len(shape) == 4 and array.transpose(0, 2, 3, 1).shape == shape:
        yield Layout("OIHW to OHWI", array.transpose(0, 2, 3, 1), shape)
    if array.ndim == len(shape) == 2:
        if array.T.shape == shape:
            yield Layout("transposed", array.T, shape)
        for name, matrix in (("", array), ("transposed, ", array.T)):
            if matrix.shape == shape:
                yield from _list_reordered(name, matrix)
    if array.shape != shape and _without_ones(array.shape) == _without_ones(shape):
        yield Layout("reshaped", array.reshape(shape), shape)


def _list_reordered(name: str, matrix: Array) -> Iterator[Layout]:
    """Yield matrices with inputs reordered from channel-first to channel-last."""
    for axis, inputs in ((0, "rows"), (1, "columns")):
        size = matrix.shape[axis]
        for channels in (d for d in range(2, size // 2 + 1) if size % d == 0):
            split = (*matrix.shape[:axis], channels, size // channels, *matrix.shape[axis + 1 :])
            text = f"{name}{inputs} from NCHW to NHWC with {channels} channels"
            reordered = matrix.reshape(split).swapaxes(axis, axis + 1)
            yield Layout(text, reordered, matrix.shape)


def _without_ones(shape: Shape) -> Shape:
    return tuple(dim for dim in shape if dim != 1)
