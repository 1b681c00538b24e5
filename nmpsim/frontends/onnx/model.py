"""Reader of ONNX files: nodes with their attributes, constants, inputs and outputs as plain data.

Files are not trusted: the size of a tensor's data is checked against its shape first, external data
must be in the folder of the file, and any exception of the package onnx becomes a coded error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import numpy as np

from nmpsim.arrays import Shape
from nmpsim.diagnostics import Place, UserError, did_you_mean, fail
from nmpsim.extras import require_extra
from nmpsim.frontends.graph.nodes import ONNX_DTYPES, Array, Graph, GraphInput, Node
from nmpsim.input_files import MAX_MODEL_BYTES, read_bytes
from nmpsim.lir.nodes import find_size_problem

MAX_NODES = 1 << 14
MAX_CYCLE = 4
"""Limit for the nodes of a cycle that an error lists."""
TESTED_OPSETS = range(10, 29)
"""Versions of ONNX's own operators in reference models or in ONNX's backend tests."""
TESTED_IR_VERSIONS = range(3, 15)
"""Versions of the file format in these."""
Shapes = Mapping[str, tuple[int, ...]]
"""Input name -> shape."""


def load_model(path: Path) -> Any:
    """Parse an ONNX file to an ``onnx.ModelProto`` without loading external data.

    Raises
    ------
    UserError
        FILE001; PKG001 if the package onnx is missing; MODEL001 if the file is damaged.
    """
    return parse_model(read_bytes(path, "model", MAX_MODEL_BYTES), Place(str(path)))


def parse_model(data: bytes, place: Place) -> Any:
    """Parse the bytes of an ONNX file to an ``onnx.ModelProto``, as :func:`load_model`."""
    with require_extra("onnx", "ONNX files need the package onnx", place=place):
        import onnx
    try:
        return onnx.load_model_from_string(data)
    except Exception as error:  # whatever protobuf raises for damaged files
        raise make_damaged_file_error(place, _first_line(error)) from error


def read_graph(
    model: Any, shapes: Shapes, place: Place, sample_shapes: Shapes = MappingProxyType({})
) -> Graph:
    """Convert the main graph of an ``onnx.ModelProto`` to a :class:`Graph`.

    Parameters
    ----------
    model : onnx.ModelProto
        The model.
    shapes : mapping of str to tuple of int
        Shapes of inputs, instead of those in the file.
    place : Place
        The file; without one the model has no external data.
    sample_shapes : mapping of str to tuple of int
        As in :class:`~nmpsim.frontends.imported_model.ImportOptions`.

    Raises
    ------
    UserError
        MODEL001 if it is damaged; MODEL002 for features that are not supported; ARG001 for the
        shape of an unknown input.
    """
    import onnx

    try:
        return _Reader(onnx, model, place).graph(shapes, sample_shapes)
    except UserError:
        raise
    except Exception as error:  # whatever onnx raises for invalid fields
        raise make_damaged_file_error(place, _first_line(error)) from error


def get_dimensions(value_info: Any) -> tuple[int | None, ...] | None:
    """Return the dimensions of an input, each None if dynamic, or None if the rank is dynamic."""
    kind = value_info.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(int(d.dim_value) if d.HasField("dim_value") else None for d in kind.shape.dim)


def _shape_from_sample(dims: Sequence[int | None], sample: tuple[int, ...]) -> Shape | None:
    """Return the shape of an input with its open dimensions from an array of samples.

    None if the array does not fit the dimensions that are known.
    """
    first, *rest = dims
    if len(sample) == 2 and len(rest) == 3:  # height and width of an image
        is_nchw = rest[0] in (1, 3)
        image = [rest[0], *sample] if is_nchw else [*sample, rest[2]]
        sample = (1, *(int(size or 1) for size in image))
    if len(sample) not in (len(dims), len(dims) + 1) or not rest:
        return None
    sample = sample[-len(rest) :]
    if any(size not in (None, own) for size, own in zip(rest, sample, strict=True)):
        return None
    return (1 if first is None else first, *sample)


def get_operator_domain(proto: Any) -> str:
    """Return the domain of a node or operator set, or '' for the default ONNX domain."""
    return "" if proto.domain == "ai.onnx" else str(proto.domain)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n", 1)[0][:120]


def make_damaged_file_error(place: Place, found: str, expected: str | None = None) -> UserError:
    """Return the UserError (MODEL001) for a damaged ONNX file."""
    hint = "Download or convert the model again; the file may be incomplete."
    message = "the ONNX file is damaged"
    return fail("MODEL001", message, place=place, found=found, expected=expected, hint=hint)


class _Reader:
    def __init__(self, onnx: Any, model: Any, place: Place) -> None:
        self._onnx = onnx
        self._model = model
        self._place = place

    def graph(self, shapes: Shapes, sample_shapes: Shapes) -> Graph:
        graph = self._model.graph
        if not graph.node:
            raise make_damaged_file_error(self._place, "no nodes", f"1 to {MAX_NODES:,} nodes")
        if (count := len(graph.node)) > MAX_NODES:
            message, found = "the model has too many nodes", f"{count:,} nodes"
            expected = f"at most {MAX_NODES:,} nodes"
            raise fail("MODEL001", message, place=self._place, found=found, expected=expected)
        if graph.sparse_initializer:
            hint = "Convert the model without sparse weights."
            message = f"tensor {graph.sparse_initializer[0].values.name} is sparse"
            raise fail("MODEL002", message, place=self._place, expected="dense tensors", hint=hint)
        constants = {one.name: self._values(one, one.name) for one in graph.initializer}
        self._check_names(graph)
        own = [one for one in graph.input if one.name not in constants]
        if len(own) == 1 and "" in sample_shapes:
            sample_shapes = {own[0].name: sample_shapes[""], **sample_shapes}
        inputs, open_inputs = [], []
        for one in own:
            dims, shape = get_dimensions(one), shapes.get(one.name)
            sample = sample_shapes.get(one.name)
            if shape is None and dims is None:
                shape = sample
            elif shape is None and dims is not None:
                is_open = None in dims[1:]
                shape = _shape_from_sample(dims, sample) if sample and is_open else None
                if shape is None and is_open:
                    sizes = ((224 if at else 1) if d is None else d for at, d in enumerate(dims))
                    open_inputs.append(f"{one.name}={','.join(map(str, sizes))}")
                shape = shape or tuple(1 if d is None else d for d in dims)
            inputs.append(self._input(one, shape))
        unknown = sorted(set(shapes) - {one.name for one in inputs})
        if unknown:
            raise fail(
                "ARG001",
                f"the model has no input {unknown[0]}",
                place=self._place,
                found=f"a shape for {unknown[0]}",
                expected=", ".join(one.name for one in inputs) or "no shapes",
                hint=did_you_mean(unknown[0], [one.name for one in inputs]),
            )
        nodes = tuple(self._node(one, index) for index, one in enumerate(graph.node))
        nodes = self._sorted(nodes, {*constants, *(one.name for one in inputs)})
        outputs = tuple(one.name for one in graph.output)
        if not outputs:
            raise make_damaged_file_error(self._place, "no outputs", "at least one output")
        warnings = [
            *self._untested_versions(),
            *(
                f"input {example.rpartition('=')[0]} has open dimensions, which are set to 1;"
                f" to change them, pass --input-shape {example} to `nmpsim compile`"
                for example in open_inputs
            ),
        ]
        return Graph(
            nodes,
            constants,
            tuple(inputs),
            outputs,
            self._opset(),
            tuple(open_inputs),
            tuple(warnings),
        )

    def _check_names(self, graph: Any) -> None:
        """Raise UserError (MODEL001) for a name that is no UTF-8, which protobuf gives as bytes."""
        tensors = (*graph.input, *graph.output, *graph.initializer)
        names = [one.name for one in tensors]
        names += [name for node in graph.node for name in (*node.input, *node.output, node.op_type)]
        for name in names:
            if not isinstance(name, str):
                raise make_damaged_file_error(
                    self._place, f"the name {name[:40]!r}", "a name in UTF-8"
                )

    def _sorted(self, nodes: tuple[Node, ...], known: set[str]) -> tuple[Node, ...]:
        """Return the nodes so that each tensor is made before it is read.

        Nodes that are in such an order already keep it.

        Raises
        ------
        UserError
            MODEL001 if nodes form a cycle, or two make the same tensor.
        """
        makers: dict[str, int] = {}
        for node in nodes:
            for name in node.results:
                if name in known or name in makers:
                    raise make_damaged_file_error(
                        self._place,
                        f"node {node.label} computes {name}, which already has a value",
                        "one definition of each tensor",
                    )
                makers[name] = node.index
        sources = {
            node.index: [makers[name] for name in node.operands if name in makers] for node in nodes
        }
        if all(source < index for index, before in sources.items() for source in before):
            return nodes
        try:
            return tuple(nodes[index] for index in TopologicalSorter(sources).static_order())
        except CycleError as error:
            cycle = ", ".join(nodes[index].label for index in error.args[1][1:][:MAX_CYCLE])
            found, expected = f"a cycle: {cycle}", "a graph without cycles"
            raise make_damaged_file_error(self._place, found, expected) from error

    def _untested_versions(self) -> Iterator[str]:
        """Yield a warning for each version of the file that no test covers."""
        versions = (
            ("opset", self._opset(), TESTED_OPSETS),
            ("IR version", int(self._model.ir_version), TESTED_IR_VERSIONS),
        )
        for name, version, tested in versions:
            if version not in tested:
                yield (
                    f"{name} {version} of the file is not tested; the tested versions are"
                    f" {tested.start} to {tested.stop - 1}"
                )

    def _opset(self) -> int:
        own = [one.version for one in self._model.opset_import if not get_operator_domain(one)]
        if not own:
            raise make_damaged_file_error(
                self._place,
                f"{len(self._model.opset_import)} operator sets, none of them of ONNX",
                "a version of the ONNX operator set",
            )
        return int(own[0])

    def _input(self, one: Any, shape: Shape | None) -> GraphInput:
        number = one.type.tensor_type.elem_type
        dtype = ONNX_DTYPES.get(number)
        if not one.name:
            raise make_damaged_file_error(self._place, "an input without a name", "named inputs")
        if dtype is None:
            message = f"input {one.name} cannot be compiled"
            found, expected = f"type {self._type_name(number)}", ", ".join(ONNX_DTYPES.values())
            raise fail("MODEL002", message, place=self._place, found=found, expected=expected)
        if shape is not None:
            self._check_shape(shape, one.name, 1)
        return GraphInput(one.name, dtype, shape)

    def _type_name(self, number: int) -> str:
        kinds = self._onnx.TensorProto.DataType
        return kinds.Name(number).lower() if number in kinds.values() else str(number)

    def _check_shape(self, shape: Shape, name: str, low: int) -> None:
        """Raise UserError (MODEL001) for a tensor that is too large or has a small dimension."""
        if (problem := find_size_problem(shape)) or min(shape, default=low) < low:
            found, expected = problem or (f"shape {list(shape)}", f"dimensions of {low} or more")
            message = f"tensor {name} has an invalid shape"
            raise fail("MODEL001", message, place=self._place, found=found, expected=expected)

    def _node(self, one: Any, index: int) -> Node:
        if not one.output or not one.output[0]:
            found = f"node {index} {one.op_type} without outputs"
            raise make_damaged_file_error(self._place, found, "at least one output")
        op = ".".join(filter(None, (get_operator_domain(one), one.op_type)))
        self._check_inputs(one, op, index)
        attributes = {a.name: self._attribute(a) for a in one.attribute}
        return Node(index, op, tuple(one.input), tuple(one.output), attributes)

    def _check_inputs(self, one: Any, op: str, index: int) -> None:
        """Raise UserError (MODEL001) if a node has too few or too many inputs for its operator."""
        if op != one.op_type or not self._onnx.defs.has(op):
            return  # ONNX defines its own operators only
        newest = self._onnx.defs.onnx_opset_version()
        try:
            schema = self._onnx.defs.get_schema(op, min(self._opset(), newest))
        except self._onnx.defs.SchemaError:
            return  # not in this version: refused when it is lowered
        given, low, high = len(one.input), schema.min_input, schema.max_input
        if low <= given <= high and all(one.input[:low]):
            return
        count = (
            f"{low}" if low == high else f"{low} or more" if high > low + 8 else f"{low} to {high}"
        )
        raise fail(
            "MODEL001",
            "the ONNX file is damaged",
            place=self._place,
            found=f"node {index} {op} {one.output[0]} has {sum(map(bool, one.input))} inputs",
            expected=f"{count} inputs",
            hint="Convert the model again, and check it with `onnx.checker.check_model`.",
        )

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
        """Return the values of a tensor; for an unsupported type an object array with its name."""
        shape = tuple(int(dim) for dim in tensor.dims)
        self._check_shape(shape, name, 0)
        dtype = ONNX_DTYPES.get(tensor.data_type)
        if dtype is None:
            return np.array(self._type_name(tensor.data_type), object)
        if tensor.data_location == self._onnx.TensorProto.EXTERNAL:
            return self._external_values(tensor, name, np.dtype(dtype), shape)
        values: Array = np.asarray(self._onnx.numpy_helper.to_array(tensor))
        if values.shape != shape or values.dtype != np.dtype(dtype):
            raise make_damaged_file_error(
                self._place,
                f"tensor {name} with values of {values.dtype} {list(values.shape)}",
                f"{dtype} {list(shape)}",
            )
        return values

    def _external_values(self, tensor: Any, name: str, dtype: np.dtype[Any], shape: Shape) -> Array:
        """Return values from another file in the folder of the model, or below it."""
        where = {entry.key: entry.value for entry in tensor.external_data}
        location = where.get("location", "")
        nbytes = math.prod(shape) * dtype.itemsize
        offset, length = int(where.get("offset", 0)), int(where.get("length", nbytes))
        if self._place.file is None:
            message = f"tensor {name} of a model in memory has external data"
            raise fail(
                "MODEL001",
                message,
                place=self._place,
                found=f"location {location[:120]!r}",
                expected="values in the model",
                hint="Load the model with onnx.load, which reads external data.",
            )
        folder = Path(self._place.file).parent.resolve()
        path = (folder / location).resolve()
        parts = PurePosixPath(location.replace("\\", "/"))
        inside = path.is_relative_to(folder) and path.is_file()
        if not location or parts.is_absolute() or ".." in parts.parts or not inside:
            is_outside = (
                parts.is_absolute() or ".." in parts.parts or not path.is_relative_to(folder)
            )
            problem = "in a file that does not exist" if location else "without a location"
            if is_outside:
                problem = "outside the model's folder"
            raise fail(
                "MODEL001",
                f"tensor {name} has external data {problem}",
                place=self._place,
                found=f"location {location[:120]!r}" if location else "no location",
                expected="a file in the model's folder",
                hint="Store external data in the model's folder, without links or .. in the path.",
            )
        if length != nbytes or offset < 0 or offset + nbytes > path.stat().st_size:
            raise make_damaged_file_error(
                self._place,
                f"tensor {name} with {length} bytes at offset {offset} of {location[:120]}",
                f"{nbytes} bytes within the {path.stat().st_size} bytes of the file",
            )
        read = np.fromfile(path, dtype.newbyteorder("<"), math.prod(shape), offset=offset)
        values = read.astype(dtype, copy=False).reshape(shape)
        values.flags.writeable = False  # so that the module keeps it without a copy
        return values
