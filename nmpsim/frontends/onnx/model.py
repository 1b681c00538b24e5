"""An ONNX file as plain data: nodes with their attributes, constants, inputs and outputs.

The file is not trusted: a tensor's bytes are compared with its shape before anything is made of
them, data outside the file must lie in its folder, and whatever the package that reads it raises
becomes one coded error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.extras import missing
from nmpsim.lir.limits import size_problem

Array = npt.NDArray[Any]
DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
}
"""Number of an element type in ``onnx.proto`` -> as NumPy calls it."""
MAX_NODES = 1 << 14
Shapes = Mapping[str, tuple[int, ...]]
"""Name of an input -> the shape it is compiled for."""


@attrs.frozen(eq=False)
class Node:
    """An operator of the graph."""

    index: int
    op: str
    """Its kind, after its domain where that is not ONNX's own: com.microsoft.QLinearAdd."""
    inputs: tuple[str, ...]
    """Names of tensors; empty where an optional one is left out."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    """Numbers, text, lists of them, and arrays."""
    title: str = ""
    """What a reader is told instead of its label, of a node that no ONNX file has."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the tensors that it reads."""
        return tuple(name for name in self.inputs if name)

    @property
    def makes(self) -> tuple[str, ...]:
        """Names of the tensors that it makes."""
        return tuple(name for name in self.outputs if name)

    @property
    def label(self) -> str:
        """For a reader: number, kind, and the tensor that it makes."""
        return self.title or f"{self.index} {self.op} {self.outputs[0]}"

    def input(self, place: int) -> str:
        """An input's name; empty if it is left out."""
        return self.inputs[place] if place < len(self.inputs) else ""


@attrs.frozen(eq=False)
class Input:
    """An input of the model."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    """A dimension that the file leaves open is 1; None if it leaves all open."""


@attrs.frozen(eq=False)
class Graph:
    """The main graph, in the order in which it is computed."""

    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    opset: int
    """Version of ONNX's own operators."""


def load_model(path: Path) -> Any:
    """The ``onnx.ModelProto`` of a file, without data outside.

    Raises:
        UserError: FILE001; PKG001 if the package onnx is missing; MODEL001 if the file is damaged.
    """
    place = Place(str(path))
    try:
        import onnx
    except ImportError as error:
        needed = "ONNX files need the package onnx"
        raise missing(error, "onnx", needed, place=place) from error
    try:
        data = path.read_bytes()
    except OSError as error:
        message = "cannot read the model"
        raise fail("FILE001", message, place=place, found=error.strerror or error) from error
    try:
        return onnx.load_model_from_string(data)
    except Exception as error:  # whatever protobuf raises for damaged files
        raise damaged(place, _first_line(error)) from error


def graph_of(model: Any, shapes: Shapes, place: Place) -> Graph:
    """The main graph of an ``onnx.ModelProto``; without a file it has no data outside.

    Raises:
        UserError: MODEL001 if it is damaged; MODEL002 for what it may hold and nmpsim does not
            read; ARG001 for a shape of an input that is not there.
    """
    import onnx

    try:
        return _Reader(onnx, model, place).graph(shapes)
    except UserError:
        raise
    except Exception as error:  # whatever onnx raises for fields of no meaning
        raise damaged(place, _first_line(error)) from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n", 1)[0][:120]


def damaged(place: Place, found: str) -> UserError:
    """The error that a file is no ONNX model, or not a whole one."""
    hint = "download or convert the model again; the file may be truncated"
    return fail("MODEL001", "the ONNX file is damaged", place=place, found=found, hint=hint)


class _Reader:
    """One file."""

    def __init__(self, onnx: Any, model: Any, place: Place) -> None:
        self._onnx = onnx
        self._model = model
        self._place = place

    def graph(self, shapes: Shapes) -> Graph:
        """The main graph."""
        graph = self._model.graph
        if not graph.node or len(graph.node) > MAX_NODES:
            raise damaged(self._place, f"{len(graph.node)} nodes")
        if graph.sparse_initializer:
            hint = "convert the model without sparse weights"
            message = f"tensor {graph.sparse_initializer[0].values.name} is sparse"
            raise fail("MODEL002", message, place=self._place, hint=hint)
        constants = {one.name: self._values(one, one.name) for one in graph.initializer}
        inputs = tuple(self._input(one, shapes) for one in graph.input if one.name not in constants)
        unknown = sorted(set(shapes) - {one.name for one in inputs})
        if unknown:
            raise fail(
                "ARG001",
                "a shape is given for no input of the model",
                place=self._place,
                found=unknown[0],
                expected=", ".join(one.name for one in inputs) or "no shape",
            )
        nodes = tuple(self._node(one, index) for index, one in enumerate(graph.node))
        self._check_order(nodes, {*constants, *(one.name for one in inputs)})
        outputs = tuple(one.name for one in graph.output)
        if not outputs:
            raise damaged(self._place, "no outputs")
        return Graph(nodes, constants, inputs, outputs, self._opset())

    def _check_order(self, nodes: tuple[Node, ...], known: set[str]) -> None:
        """Each tensor is made once, before it is read; so there is no circle."""
        made = {name for node in nodes for name in node.makes}
        for node in nodes:
            early = [name for name in node.reads if name in made and name not in known]
            twice = [name for name in node.makes if name in known]
            if early or twice or len(set(node.makes)) != len(node.makes):
                what = f"reads {early[0]} too early" if early else "makes a tensor again"
                raise damaged(self._place, f"node {node.label} {what}")
            known.update(node.makes)

    def _opset(self) -> int:
        own = [one.version for one in self._model.opset_import if one.domain in ("", "ai.onnx")]
        if not own:
            raise damaged(self._place, "no version of ONNX's operators")
        return int(own[0])

    def _input(self, one: Any, shapes: Shapes) -> Input:
        kind = one.type.tensor_type
        dtype = DTYPES.get(kind.elem_type)
        if not one.name or dtype is None:
            found = self._type_name(kind.elem_type) if one.name else "an input without a name"
            message = f"input {one.name} cannot be compiled"
            raise fail("MODEL002", message, place=self._place, found=found)
        if one.name in shapes:
            return Input(one.name, dtype, self._checked(shapes[one.name], one.name))
        if not kind.HasField("shape"):
            return Input(one.name, dtype, None)
        dims = tuple(int(d.dim_value) if d.HasField("dim_value") else 1 for d in kind.shape.dim)
        return Input(one.name, dtype, self._checked(dims, one.name))

    def _type_name(self, number: int) -> str:
        kinds = self._onnx.TensorProto.DataType
        return kinds.Name(number).lower() if number in kinds.values() else f"type {number}"

    def _checked(self, shape: tuple[int, ...], name: str) -> tuple[int, ...]:
        if (problem := size_problem(shape)) or min(shape, default=1) < 1:
            found, expected = problem or (f"shape {list(shape)}", "dimensions of 1 or more")
            message = f"tensor {name} has no size that can be compiled"
            raise fail("MODEL001", message, place=self._place, found=found, expected=expected)
        return shape

    def _node(self, one: Any, index: int) -> Node:
        if not one.output or not one.output[0]:
            raise damaged(self._place, f"node {index} makes nothing")
        op = one.op_type if one.domain in ("", "ai.onnx") else f"{one.domain}.{one.op_type}"
        attributes = {a.name: self._attribute(a) for a in one.attribute}
        return Node(index, op, tuple(one.input), tuple(one.output), attributes)

    def _attribute(self, one: Any) -> Any:
        kinds = self._onnx.AttributeProto
        if one.type == kinds.TENSOR:
            return self._values(one.t, one.name)
        if one.type in (kinds.INT, kinds.FLOAT, kinds.INTS, kinds.FLOATS):
            value = self._onnx.helper.get_attribute_value(one)
            return tuple(value) if one.type in (kinds.INTS, kinds.FLOATS) else value
        if one.type == kinds.STRING:
            return one.s.decode("utf-8", "backslashreplace")
        return None  # graphs, types, lists of texts: no operator that is known reads them

    def _values(self, tensor: Any, name: str) -> Array:
        """A tensor's values; of a type that is not known its name, an object."""
        shape = tuple(int(dim) for dim in tensor.dims)
        problem = size_problem(shape)
        if problem or min(shape, default=0) < 0:
            found, expected = problem or (f"shape {list(shape)}", "dimensions of 0 or more")
            message = f"tensor {name} is too large"
            raise fail("MODEL001", message, place=self._place, found=found, expected=expected)
        dtype = DTYPES.get(tensor.data_type)
        if dtype is None:
            return np.array(self._type_name(tensor.data_type), object)
        if tensor.data_location == self._onnx.TensorProto.EXTERNAL:
            return self._outside(tensor, name, np.dtype(dtype), shape)
        values: Array = np.asarray(self._onnx.numpy_helper.to_array(tensor))
        if values.shape != shape or values.dtype != np.dtype(dtype):
            raise damaged(self._place, f"tensor {name} holds {values.dtype} {list(values.shape)}")
        return values

    def _outside(
        self, tensor: Any, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> Array:
        """Values that lie in another file of the model's folder, or below it."""
        where = {entry.key: entry.value for entry in tensor.external_data}
        location = where.get("location", "")
        nbytes = math.prod(shape) * dtype.itemsize
        offset, length = int(where.get("offset", 0)), int(where.get("length", nbytes))
        if self._place.file is None:
            message = f"tensor {name} lies in a file"
            hint = "load the model with onnx.load, which reads it all"
            raise fail("MODEL001", message, place=self._place, found=location[:120], hint=hint)
        folder = Path(self._place.file).parent.resolve()
        path = (folder / location).resolve()
        parts = PurePosixPath(location.replace("\\", "/"))
        inside = path.is_relative_to(folder) and path.is_file()
        if not location or parts.is_absolute() or ".." in parts.parts or not inside:
            raise fail(
                "MODEL001",
                f"tensor {name} lies in a file that is not read",
                place=self._place,
                found=location[:120] or "no location",
                expected="a file in the model's folder",
                hint="external data is read from the model's folder only, without .. and links out",
            )
        if length != nbytes or offset < 0 or offset + nbytes > path.stat().st_size:
            raise damaged(self._place, f"tensor {name} has {length} bytes at {offset}")
        read = np.fromfile(path, dtype.newbyteorder("<"), math.prod(shape), offset=offset)
        values = read.astype(dtype, copy=False).reshape(shape)
        values.flags.writeable = False  # and so kept as it is
        return values
