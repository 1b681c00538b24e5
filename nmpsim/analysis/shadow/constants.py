"""Which constants of a program were quantized, what they stand for, and float weights in files."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.analysis.shadow.batch_norms import folded_arrays
from nmpsim.analysis.shadow.errors import Real
from nmpsim.analysis.shadow.recording import part
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.extras import missing
from nmpsim.input_files import MAX_MODEL_BYTES, read_bytes
from nmpsim.interpreter import Location, dequantize, dequantize_rows, find_scale_operands, locate
from nmpsim.lir.nodes import Instruction, Module
from nmpsim.lir.npz import NpzFile
from nmpsim.lir.opcode import WEIGHTED
from nmpsim.lir.opcodes import OPCODES

Array = npt.NDArray[Any]


def read_floats(path: Path, sizes: Collection[int]) -> dict[str, Array]:
    """Every float array of a file that has one of these numbers of elements, by name.

    Args:
        path: an ``.npz`` file, or an ONNX model (``.onnx``), of which only the initializers are
            read and nothing is run; its batch norms are folded, into arrays of their own.
        sizes: numbers of elements that are of interest; no other data is read.

    Raises:
        UserError: FILE001 if the file cannot be read, CONST001 if it is damaged or something
            else, PKG001 for an ONNX model without the package onnx.
    """
    read = _from_onnx if path.suffix.lower() == ".onnx" else _from_npz
    return dict(read(path, sizes))


def _from_npz(path: Path, sizes: Collection[int]) -> Iterator[tuple[str, Array]]:
    with NpzFile(path) as file:
        for key in file:
            header = file.header(key)
            if header.dtype.kind == "f" and math.prod(header.shape) in sizes:
                yield key, file.read(key)


def _from_onnx(path: Path, sizes: Collection[int]) -> Iterator[tuple[str, Array]]:
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError as error:
        needed, instead = "ONNX files need the package onnx", "or save the weights as an .npz file"
        raise missing(error, "onnx", needed, place=Place(str(path)), instead=instead) from error
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
        folded = folded_arrays(graph, values)
        yield from ((name, array) for name, array in folded if array.size in sizes)
    except Exception as error:  # whatever protobuf and onnx raise for damaged files
        raise _unusable(path, str(error)) from error


def _unusable(path: Path, found: str) -> UserError:
    message = "the file is damaged or is no ONNX model"
    return fail("CONST001", message, place=Place(str(path)), found=found.split("\n", 1)[0][:120])


def quantized_constants(module: Module) -> dict[str, Real]:
    """The real values of every constant that holds quantized weights, by name.

    Filters and biases whose scales are constants themselves get those. Look-up tables are no
    weights and are left out.
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


def filters_of_biases(module: Module) -> dict[str, str]:
    """Constant that is a bias -> constant that is the filter of its layer."""
    return {
        places[3].storage: places[2].storage
        for instruction, places in _uses(module)
        if OPCODES[instruction.opcode].kind in WEIGHTED
    }


def _uses(module: Module) -> Iterator[tuple[Instruction, list[Location]]]:
    places = locate(module)
    for instruction in module.instructions:
        yield instruction, [places[operand.name] for operand in instruction.operands]


def _with_own_scales(
    module: Module, instruction: Instruction, places: list[Location]
) -> dict[str, Real]:
    found: dict[str, Real] = {}
    for index, parameters in find_scale_operands(instruction).items():
        used = [places[i] for i in (index, *parameters)]
        if all(place.storage in module.constants for place in used):
            array, scales, offsets = (part(module.constants[p.storage], p) for p in used)
            found[used[0].storage] = dequantize_rows(array, scales, offsets)
    return found
