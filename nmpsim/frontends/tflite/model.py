"""Reader of TFLite files, which returns tensors and operators as plain data.

Files are not trusted: the length of a vector is checked against the size of the file first, and any
exception of the package that reads flatbuffers becomes a coded error.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Array, Shape
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.extras import require_extra
from nmpsim.frontends.imported_model import TFLITE_IDENTIFIER, UnsupportedError, require
from nmpsim.frontends.tflite.model_data import (
    VARIABLE_OPERATORS,
    TFLiteModel,
    TFLiteOperator,
    TFLiteSignature,
    TFLiteTensor,
    decode_text,
)
from nmpsim.frontends.tflite.sparse import MAX_EXPANSION, SparseLevel, expand_sparse_values
from nmpsim.frontends.tflite.variables import replace_variables
from nmpsim.input_files import MAX_MODEL_BYTES, read_bytes
from nmpsim.lir.nodes import find_size_problem

MAX_TENSORS = 1 << 17
"""Limit for tensors and operators; a flatbuffer may refer to one table any number of times."""
_DTYPES = {
    "FLOAT32": "float32",
    "FLOAT16": "float16",
    "INT32": "int32",
    "UINT8": "uint8",
    "INT64": "int64",
    "BOOL": "bool",
    "INT16": "int16",
    "INT8": "int8",
    "INT4": "int4",
}
_OPTIONS = {"AVERAGE_POOL_2D": "Pool2D", "BATCH_MATMUL": "BatchMatMul", "MAX_POOL_2D": "Pool2D"}
"""Operators whose table of options has another name."""
_POWERS_OF_TWO = "PotScaleInt16"
"""Option that is true by the schema; without a table, as in old files, TFLite uses false."""


def read_model(path: Path) -> TFLiteModel:
    """Read a TFLite file as a TFLiteModel; raise UserError if it is damaged or not supported.

    Raises
    ------
    UserError
        FILE001; PKG001 if the package tflite is missing; MODEL001 if the file is damaged;
        MODEL002 for features that are not supported.
    """
    place = Place(str(path))
    with require_extra("tflite", "TFLite files need the package tflite", place=place):
        import tflite
    data = read_bytes(path, "model", MAX_MODEL_BYTES)
    with _translated_errors(place):
        return _Reader(tflite, data, place).read()


@contextmanager
def _translated_errors(place: Place) -> Iterator[None]:
    """Convert exceptions of the package that reads flatbuffers, which checks nothing."""
    try:
        yield
    except (struct.error, IndexError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise _damaged(place, f"{type(error).__name__}: {error}"[:120]) from error


def _damaged(place: Place, found: str, expected: str | None = None) -> UserError:
    hint = "Download or convert the model again; the file may be incomplete."
    message = "the TFLite file is damaged"
    return fail("MODEL001", message, place=place, found=found, expected=expected, hint=hint)


class _Reader:
    def __init__(self, tflite: Any, data: bytes, place: Place) -> None:
        self._tflite = tflite
        kinds = vars(tflite.TensorType).items()
        self._kinds = {value: key for key, value in kinds if key.isupper()}
        self._data = data
        self._place = place
        self._dense_elements = 0
        """Elements of all sparse tensors."""
        self._tables = 0
        """Tensors and operators of all subgraphs."""

    def read(self) -> TFLiteModel:
        """Read the first subgraph, which is the one that runs, and those that it calls once."""
        self._check(
            self._data[4:8] == TFLITE_IDENTIFIER,
            f"{bytes(self._data[4:8])!r} at byte 4",
            "the identifier TFL3",
        )
        model = self._tflite.Model.GetRootAs(self._data, 0)
        subgraph, *others = self._vector(model, "Subgraphs")
        codes = [self._opcode(code) for code in self._vector(model, "OperatorCodes")]
        tensors, operators = self._subgraph(model, subgraph, codes)
        read = TFLiteModel(
            tensors,
            operators,
            self._tensors_at(subgraph, "Inputs", tensors),
            self._tensors_at(subgraph, "Outputs", tensors),
            tuple(self._normalizations(model)),
            tuple(
                TFLiteSignature(
                    decode_text(one.SignatureKey()),
                    self._named_tensors(one, "Inputs", tensors),
                    self._named_tensors(one, "Outputs", tensors),
                )
                for one in self._vector(model, "SignatureDefs")
            ),
        )
        if not others and all(one.name not in VARIABLE_OPERATORS for one in operators):
            return read
        called = {o.options["InitSubgraphIndex"] for o in operators if o.name == "CALL_ONCE"}
        is_valid = all(0 < index <= len(others) for index in called)
        self._check(is_valid, f"CALL_ONCE of subgraphs {called}", f"subgraphs 1 to {len(others)}")
        try:
            for index, graph in enumerate(others, 1):
                found = f"subgraph {index} {decode_text(graph.Name())!r}"
                require(index in called, found, "subgraphs that CALL_ONCE calls")
            initializers = [self._subgraph(model, others[i - 1], codes)[1] for i in sorted(called)]
            return replace_variables(read, initializers)
        except UnsupportedError as error:
            raise fail(
                "MODEL002",
                "variables or subgraphs of the model are not supported",
                place=self._place,
                found=error,
                expected=error.expected,
                hint="Remove control flow (IF, WHILE) from the model.",
            ) from error

    def _subgraph(
        self, model: Any, subgraph: Any, codes: list[str]
    ) -> tuple[tuple[TFLiteTensor, ...], tuple[TFLiteOperator, ...]]:
        """Return the tensors and the operators of a subgraph."""
        stored, operators = (self._vector(subgraph, name) for name in ("Tensors", "Operators"))
        self._tables += len(stored) + len(operators)
        found = f"{self._tables} tensors and operators"
        self._check(self._tables <= 2 * MAX_TENSORS, found, f"at most {2 * MAX_TENSORS}")
        tensors = tuple(self._tensor(model, one, i) for i, one in enumerate(stored))
        return tensors, tuple(
            self._operator(one, i, codes, tensors) for i, one in enumerate(operators)
        )

    def _normalizations(self, model: Any) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
        from nmpsim.frontends.tflite.metadata import NAME, read_normalizations

        for entry in self._vector(model, "Metadata"):
            if entry.Name() == NAME and 0 < entry.Buffer() < self._count(model.BuffersLength()):
                data = model.Buffers(entry.Buffer())
                if self._count(data.DataLength()):
                    return read_normalizations(bytes(data.DataAsNumpy()), self._count)
        return []

    def _check(self, condition: object, found: str, expected: str) -> None:
        """Raise UserError (MODEL001) with the text of what was found unless a condition holds."""
        if not condition:
            raise _damaged(self._place, found, expected)

    def _count(self, length: int) -> int:
        """Return the length of a vector, checked against the size of the file."""
        self._check(
            0 <= length <= min(len(self._data), MAX_TENSORS),
            f"a vector of {length} elements",
            f"0 to {min(len(self._data), MAX_TENSORS)} elements",
        )
        return length

    def _vector(self, table: Any, name: str) -> list[Any]:
        """Return the elements of a field that is a vector."""
        read, length = getattr(table, name), getattr(table, f"{name}Length")()
        return [read(i) for i in range(self._count(length))]

    def _tensors_at(
        self, table: Any, name: str, tensors: tuple[TFLiteTensor, ...]
    ) -> tuple[TFLiteTensor, ...]:
        """Return the tensors whose indices are the elements of a field."""
        indices = self._vector(table, name)
        self._check(
            all(0 <= i < len(tensors) for i in indices),
            f"the tensor indices {list(indices)}",
            f"indices from 0 to {len(tensors) - 1}",
        )
        return tuple(tensors[i] for i in indices)

    def _named_tensors(
        self, signature: Any, name: str, tensors: tuple[TFLiteTensor, ...]
    ) -> dict[str, TFLiteTensor]:
        """Return the tensors of a signature's inputs or outputs by their names in the signature."""
        maps = self._vector(signature, name)
        indices = [one.TensorIndex() for one in maps]
        self._check(
            all(0 <= i < len(tensors) for i in indices),
            f"a signature with the tensor indices {indices}",
            f"indices from 0 to {len(tensors) - 1}",
        )
        return {decode_text(one.Name()): tensors[i] for one, i in zip(maps, indices, strict=True)}

    def _opcode(self, code: Any) -> str:
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        if number == self._tflite.BuiltinOperator.CUSTOM:
            return decode_text(code.CustomCode()) or "CUSTOM"
        name = self._tflite.BUILTIN_OPCODE2NAME.get(number)
        return str(name) if name else f"operator {number}"

    def _tensor(self, model: Any, tensor: Any, index: int) -> TFLiteTensor:
        name = decode_text(tensor.Name()) or f"tensor_{index}"
        shape = tuple(map(int, self._vector(tensor, "Shape")))
        kind = self._kinds.get(tensor.Type(), str(tensor.Type()))
        if (problem := find_size_problem(shape)) or min(shape, default=0) < 0:
            found, expected = problem or (f"shape {list(shape)}", "dimensions of 0 or more")
            message = f"tensor {name} has an invalid shape"
            raise fail("MODEL001", message, place=self._place, found=found, expected=expected)
        scales, zero_points, axis = self._quantization(tensor.Quantization())
        dtype = _DTYPES.get(kind, kind.lower())
        values = self._values(model, tensor, name, dtype, shape)
        self._check(
            scales.size <= 1 or (axis < len(shape) and shape[axis] == scales.size),
            f"tensor {name} of shape {list(shape)} with {scales.size} scales along axis {axis}",
            "1 scale, or one for each index of the axis",
        )
        signature = tuple(map(int, self._vector(tensor, "ShapeSignature"))) or shape
        return TFLiteTensor(index, name, shape, dtype, scales, zero_points, axis, values, signature)

    def _quantization(
        self, parameters: Any
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], int]:
        count = self._count(parameters.ScaleLength()) if parameters else 0
        if count == 0:
            return np.empty(0, np.float32), np.empty(0, np.int64), 0
        scales, zeros = np.array(parameters.ScaleAsNumpy(), np.float32), np.zeros(count, np.int64)
        if self._count(parameters.ZeroPointLength()):
            zeros = np.array(parameters.ZeroPointAsNumpy(), np.int64)
        self._check(
            zeros.shape == scales.shape,
            f"{zeros.size} zero points for {count} scales",
            f"{count} zero points",
        )
        is_positive = np.isfinite(scales).all() and (scales > 0).all()
        found = f"scales from {scales.min():g} to {scales.max():g}"
        self._check(is_positive, found, "positive finite scales")
        return scales, zeros, int(parameters.QuantizedDimension())

    def _values(self, model: Any, tensor: Any, name: str, dtype: str, shape: Shape) -> Array | None:
        number = tensor.Buffer()
        self._check(
            0 <= number < self._count(model.BuffersLength()),
            f"tensor {name} with the buffer index {number}",
            f"an index from 0 to {self._count(model.BuffersLength()) - 1}",
        )
        buffer = model.Buffers(number)
        nbytes = buffer.DataLength()
        if nbytes == 0:
            if number and buffer.Offset() > 1:
                message = f"tensor {name} is stored outside the flatbuffer"
                raise fail(
                    "MODEL002",
                    message,
                    place=self._place,
                    found=f"values at byte {buffer.Offset()} of the file",
                    expected="values in the flatbuffer",
                    hint="Use a model of less than 2 GB.",
                )
            return None
        if dtype not in _DTYPES.values():
            return None
        raw: npt.NDArray[np.uint8] = np.asarray(buffer.DataAsNumpy(), np.uint8)
        elements = int(np.prod(shape, dtype=np.int64))
        if tensor.Sparsity() is not None:
            return self._dense_values(tensor.Sparsity(), raw, np.dtype(dtype), shape)
        if dtype == "int4":
            return _unpack_int4(raw, elements, shape)
        self._check(
            raw.size == elements * np.dtype(dtype).itemsize,
            f"tensor {name} with {raw.size} bytes",
            f"{elements * np.dtype(dtype).itemsize} bytes",
        )
        values: Array = raw.view(np.dtype(dtype).newbyteorder("<"))
        return np.require(values, dtype, ["A"]).reshape(shape)

    def _dense_values(
        self, sparsity: Any, raw: npt.NDArray[np.uint8], dtype: np.dtype[Any], shape: Shape
    ) -> Array:
        """Return all values of a sparse constant."""
        self._dense_elements += math.prod(shape)
        self._check(
            self._dense_elements <= MAX_EXPANSION * len(self._data),
            f"sparse tensors with {self._dense_elements:,} elements in all",
            f"at most {MAX_EXPANSION * len(self._data):,} elements in a file of this size",
        )
        levels = []
        for one in self._vector(sparsity, "DimMetadata"):
            rows = None
            if one.Format():
                rows = (
                    self._index_vector(one.ArraySegmentsType(), one.ArraySegments()),
                    self._index_vector(one.ArrayIndicesType(), one.ArrayIndices()),
                )
            levels.append(SparseLevel(one.DenseSize(), rows))
        order = self._vector(sparsity, "TraversalOrder")
        blocks = self._vector(sparsity, "BlockMap")
        return expand_sparse_values(raw.view(dtype), shape, levels, order, blocks)

    def _index_vector(self, kind: int, table: Any) -> npt.NDArray[np.int64]:
        """Return the numbers of a vector of sparse positions, which has one of three types."""
        kinds = {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"}
        self._check(kind in kinds and table is not None, f"index vector {kind}", "1 to 3")
        vector = getattr(self._tflite, kinds[kind])()
        vector.Init(table.Bytes, table.Pos)
        count = self._count_bytes(vector.ValuesLength())
        return np.asarray(vector.ValuesAsNumpy() if count else (), np.int64)

    def _count_bytes(self, length: int) -> int:
        """Return the length of a vector of numbers, checked against the size of the file."""
        found = f"a vector of {length} numbers"
        self._check(0 <= length <= len(self._data), found, f"0 to {len(self._data)}")
        return length

    def _operator(
        self, operator: Any, index: int, codes: list[str], tensors: tuple[TFLiteTensor, ...]
    ) -> TFLiteOperator:
        code = operator.OpcodeIndex()
        self._check(
            0 <= code < len(codes),
            f"operator {index} with the operator code {code}",
            f"a code from 0 to {len(codes) - 1}",
        )
        inputs = self._vector(operator, "Inputs")
        self._check(
            all(-1 <= at < len(tensors) for at in inputs),
            f"operator {index} with the input tensors {list(inputs)}",
            f"indices from -1 to {len(tensors) - 1}",
        )
        given = tuple(None if at == -1 else tensors[at] for at in inputs)
        outputs = self._tensors_at(operator, "Outputs", tensors)
        has_results = codes[code] not in (VARIABLE_OPERATORS[0], VARIABLE_OPERATORS[-1])
        is_valid = outputs or not has_results
        self._check(is_valid, f"operator {index} without outputs", "at least one output")
        options = self._options(operator, codes[code])
        return TFLiteOperator(index, codes[code], given, outputs, options)

    def _options(self, operator: Any, name: str) -> dict[str, Any]:
        table_name = _OPTIONS.get(name, name.title().replace("_", "")) + "Options"
        options_type = getattr(self._tflite, table_name, None)
        expected = getattr(self._tflite.BuiltinOptions, table_name, None)
        if options_type is None or expected is None:
            return {}
        options, table = options_type(), operator.BuiltinOptions()
        is_there = table is not None and operator.BuiltinOptionsType() == expected
        if is_there:
            options.Init(table.Bytes, table.Pos)
        else:
            # The schema's defaults, as an empty table has them.
            options.Init(bytes(4) + struct.pack("<HHi", 4, 4, 4), 8)
        found = {field: getattr(options, field)() for field in _fields(options_type)}
        if not is_there and _POWERS_OF_TWO in found:
            found[_POWERS_OF_TWO] = False
        return found


def _fields(options: type) -> list[str]:
    """Return the names of the scalar fields in a table of options."""
    return [
        name
        for name, read in vars(options).items()
        if isinstance(read, FunctionType)
        and read.__code__.co_argcount == 1
        and not name.endswith(("AsNumpy", "Length", "IsNone"))
    ]


def _unpack_int4(raw: npt.NDArray[np.uint8], elements: int, shape: Shape) -> npt.NDArray[np.int8]:
    """Return int4 values as int8; each byte contains two, the lower half first."""
    pairs = np.stack([raw << 4, raw & 0xF0], axis=-1).reshape(-1).view(np.int8) >> 4
    if pairs.size - elements not in (0, 1):
        raise ValueError(f"{raw.size} bytes of int4 for {elements} elements")
    widened: npt.NDArray[np.int8] = pairs[:elements].reshape(shape)
    return widened
