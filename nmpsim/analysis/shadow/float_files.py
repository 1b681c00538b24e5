"""Float weights from files: ``.npz`` archives, and the initializers of ONNX models."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.lir.npz import NpzFile

Array = npt.NDArray[Any]


def read_floats(path: Path, sizes: Collection[int]) -> dict[str, Array]:
    """Every float array of a file that has one of these numbers of elements, by name.

    Args:
        path: an ``.npz`` file, or an ONNX model (``.onnx``), of which only the initializers are
            read and nothing is run.
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
        message = "an ONNX model cannot be read without the package onnx"
        hint = "pip install 'nmpsim[onnx]', or save the weights as an .npz file"
        raise fail("PKG001", message, place=Place(str(path)), hint=hint) from error
    data = _bytes(path)
    floats = {
        onnx.TensorProto.DataType.Value(k) for k in ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE")
    }
    try:
        for tensor in onnx.load_model_from_string(data).graph.initializer:
            if tensor.data_type in floats and math.prod(tensor.dims) in sizes:
                array = numpy_helper.to_array(tensor, str(path.parent))
                yield tensor.name, np.asarray(array, np.float64)
    except Exception as error:  # whatever protobuf and onnx raise for damaged files
        raise _unusable(path, str(error)) from error


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"cannot read the float weights: {error.strerror or error}"
        raise fail("FILE001", message, place=Place(str(path))) from error


def _unusable(path: Path, found: str) -> UserError:
    message = "the file is damaged or is no ONNX model"
    return fail("CONST001", message, place=Place(str(path)), found=found.split("\n", 1)[0][:120])
