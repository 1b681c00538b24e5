"""Write small TFLite files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import flatbuffers
import numpy as np
import numpy.typing as npt
import tflite


@attrs.frozen(eq=False)
class FileTensor:
    """Tensor of a TFLite file."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "INT8"
    scales: tuple[float, ...] = (0.5,)
    zero_points: tuple[int, ...] = (0,)
    values: npt.NDArray[Any] | None = None
    axis: int = 0
    """Dimension along which the scales vary."""
    signature: tuple[int, ...] = ()
    """Shape with -1 for open dimensions; empty if there are none."""


@attrs.frozen
class FileOperator:
    """Operator of a TFLite file, with options such as ``{"Conv2DOptions": {"StrideW": 1}}``."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)


def tflite_file(
    tensors: Sequence[FileTensor],
    operators: Sequence[FileOperator],
    inputs: Sequence[int],
    outputs: Sequence[int],
    metadata: bytes | None = None,
    others: Sequence[tuple[Sequence[FileTensor], Sequence[FileOperator]]] = (),
) -> bytes:
    """Return the bytes of a TFLite file with optional metadata and ``others`` as subgraphs."""
    b = flatbuffers.Builder(1024)
    buffers = [_buffer(b, np.zeros(0, np.uint8))]
    graphs = [(tensors, operators, inputs, outputs), *((*one, (), ()) for one in others)]
    codes = sorted({operator.name for graph in graphs for operator in graph[1]})
    subgraphs = [_subgraph(b, buffers, codes, *graph) for graph in graphs]
    kinds = [
        _table(
            b,
            "OperatorCode",
            BuiltinCode=getattr(tflite.BuiltinOperator, name),
            DeprecatedBuiltinCode=min(getattr(tflite.BuiltinOperator, name), 127),
            Version=1,
        )
        for name in codes
    ]
    extra = {}
    if metadata is not None:
        name = b.CreateString("TFLITE_METADATA")
        entry = _table(b, "Metadata", Name=name, Buffer=len(buffers))
        buffers.append(_buffer(b, np.frombuffer(metadata, np.uint8)))
        extra["Metadata"] = _vector(b, tflite.ModelStartMetadataVector, [entry])
    model = _table(
        b,
        "Model",
        **extra,
        Version=3,
        OperatorCodes=_vector(b, tflite.ModelStartOperatorCodesVector, kinds),
        Subgraphs=_vector(b, tflite.ModelStartSubgraphsVector, subgraphs),
        Buffers=_vector(b, tflite.ModelStartBuffersVector, buffers),
    )
    b.Finish(model, file_identifier=b"TFL3")
    return bytes(b.Output())


def normalization(mean: Sequence[float], stddev: Sequence[float]) -> bytes:
    """Return metadata with the normalization of the only input."""
    b = flatbuffers.Builder(256)

    def floats(values: Sequence[float]) -> int:
        b.StartVector(4, len(values), 4)
        for value in reversed(values):
            b.PrependFloat32(value)
        return int(b.EndVector())

    def table(**offsets: int) -> int:
        """Write a table whose fields are given by number, such as ``_2``."""
        b.StartObject(8)
        for name, offset in offsets.items():
            if name == "kind":
                b.PrependUint8Slot(0, offset, 0)
            else:
                b.PrependUOffsetTRelativeSlot(int(name[1:]), offset, 0)
        return int(b.EndObject())

    def only(item: int) -> int:
        return _vector(b, lambda b, count: b.StartVector(4, count, 4), [item])

    options = table(_0=floats(mean), _1=floats(stddev))
    tensor = table(_4=only(table(kind=1, _1=options)))
    root = table(_3=only(table(_2=only(tensor))))
    b.Finish(root, file_identifier=b"M001")
    return bytes(b.Output())


def small_network(
    channels: int = 4, dtype: str = "INT8", depth: int = 2, metadata: bytes | None = None
) -> bytes:
    """Return a network of a convolution, a pool, a fully connected layer and a softmax."""
    rng = np.random.default_rng(5)
    unsigned = dtype == "UINT8"
    zero = 128 if unsigned else 0
    kind = np.uint8 if unsigned else np.int8
    weights = rng.integers(0 if unsigned else -127, 127, (channels, 3, 3, depth)).astype(kind)
    dense = rng.integers(0 if unsigned else -127, 127, (3, channels)).astype(kind)
    lowest = 0 if unsigned else -128
    tensors = [
        FileTensor("image;a/b:0", (1, 4, 4, depth), dtype, (0.05,), (zero,)),
        FileTensor("größe", weights.shape, dtype, (0.02,), (zero,), weights),
        FileTensor("bias", (channels,), "INT32", (0.001,), (0,), np.arange(channels, dtype="i4")),
        FileTensor("conv", (1, 4, 4, channels), dtype, (0.1,), (zero - 100,)),
        FileTensor("pool", (1, 2, 2, channels), dtype, (0.1,), (zero - 100,)),
        FileTensor("mean", (1, channels), dtype, (0.07,), (zero - 90,)),
        FileTensor("axes", (2,), "INT32", (), (), np.array([1, 2], np.int32)),
        FileTensor("dense", dense.shape, dtype, (0.03,), (zero,), dense),
        FileTensor("dense bias", (3,), "INT32", (0.0021,), (0,), np.zeros(3, np.int32)),
        FileTensor("scores", (1, 3), dtype, (0.2,), (zero,)),
        FileTensor("classes", (1, 3), dtype, (1 / 256,), (lowest,)),
    ]
    window = {"Padding": 0, "StrideW": 1, "StrideH": 1}
    pool = {"Padding": 1, "StrideW": 2, "StrideH": 2, "FilterWidth": 2, "FilterHeight": 2}
    operators = [
        FileOperator(
            "CONV_2D", (0, 1, 2), (3,), {"Conv2DOptions": {**window, "FusedActivationFunction": 1}}
        ),
        FileOperator("MAX_POOL_2D", (3,), (4,), {"Pool2DOptions": pool}),
        FileOperator("MEAN", (4, 6), (5,), {"ReducerOptions": {"KeepDims": False}}),
        FileOperator("FULLY_CONNECTED", (5, 7, 8), (9,), {"FullyConnectedOptions": {}}),
        FileOperator("SOFTMAX", (9,), (10,), {"SoftmaxOptions": {"Beta": 1.0}}),
    ]
    return tflite_file(tensors, operators, [0], [10], metadata)


def streaming_network(
    dtype: str = "INT8", init: int = 1, variables: Sequence[str] = ("frames", "old", "fixed")
) -> bytes:
    """Return a network with three variables, and a subgraph with their initial values.

    ``frames`` has the last three rows, ``old`` the row before the last window; ``fixed`` is never
    assigned. The subgraph gives values to ``variables``; CALL_ONCE names subgraph ``init``.
    """
    zero = 128 if dtype == "UINT8" else 0
    initial = {
        "frames": np.arange(12).reshape(1, 3, 1, 4),
        "old": np.full((1, 1, 1, 4), 9),
        "fixed": np.full((1, 1, 1, 4), 3),
    }
    tensors = [
        FileTensor("x", (1, 2, 1, 4), dtype, (0.5,), (zero,)),
        FileTensor("window", (1, 5, 1, 4), dtype, (0.5,), (zero,)),
        FileTensor("next", (1, 3, 1, 4), dtype, (0.5,), (zero,)),
        FileTensor("first", (1, 1, 1, 4), dtype, (0.5,), (zero,)),
        FileTensor("most", (1, 1, 1, 4), dtype, (0.5,), (zero,)),
        FileTensor("y", (1, 4, 1, 4), dtype, (0.5,), (zero,)),
        FileTensor("begin", (4,), "INT32", (), (), np.array([0, 2, 0, 0], np.int32)),
        FileTensor("end", (4,), "INT32", (), (), np.array([1, 5, 1, 4], np.int32)),
        FileTensor("zeros", (4,), "INT32", (), (), np.zeros(4, np.int32)),
        FileTensor("row", (4,), "INT32", (), (), np.array([1, 1, 1, 4], np.int32)),
        FileTensor("ones", (4,), "INT32", (), (), np.ones(4, np.int32)),
    ]
    options = {"CallOnceOptions": {"InitSubgraphIndex": init}}
    main = [FileOperator("CALL_ONCE", (), (), options)] * (init > 0)
    constants: list[FileTensor] = []
    assignments: list[FileOperator] = []
    for name, values in initial.items():
        handle = {"VarHandleOptions": {"SharedName": name}}
        stored = values.astype(np.dtype(dtype.lower()))
        constants += [
            FileTensor(f"{name}_handle", (), "RESOURCE", (), ()),
            FileTensor(f"{name}_0", values.shape, dtype, (0.5,), (zero,), stored),
        ]
        at, own = len(constants) - 2, len(tensors)
        if name in variables:
            assignments += [
                FileOperator("VAR_HANDLE", (), (at,), handle),
                FileOperator("ASSIGN_VARIABLE", (at, at + 1), ()),
            ]
        tensors += [
            FileTensor(f"{name}_handle", (), "RESOURCE", (), ()),
            FileTensor(f"{name}_read", values.shape, dtype, (0.5,), (zero,)),
        ]
        main += [
            FileOperator("VAR_HANDLE", (), (own,), handle),
            FileOperator("READ_VARIABLE", (own,), (own + 1,)),
        ]
    window = {"Padding": 1, "StrideW": 1, "StrideH": 1, "FilterWidth": 1, "FilterHeight": 5}
    join = {"ConcatenationOptions": {"Axis": 1}}
    main += [
        FileOperator("CONCATENATION", (12, 0), (1,), join),
        FileOperator("STRIDED_SLICE", (1, 6, 7, 10), (2,), {"StridedSliceOptions": {}}),
        FileOperator("SLICE", (12, 8, 9), (3,), {"SliceOptions": {}}),
        FileOperator("ASSIGN_VARIABLE", (11, 2), ()),
        FileOperator("MAX_POOL_2D", (1,), (4,), {"Pool2DOptions": window}),
        FileOperator("CONCATENATION", (4, 14, 3, 16), (5,), join),
        FileOperator("ASSIGN_VARIABLE", (13, 3), ()),
    ]
    return tflite_file(tensors, main, [0], [5], others=[(constants, assignments)])


def _subgraph(
    b: flatbuffers.Builder,
    buffers: list[int],
    codes: Sequence[str],
    tensors: Sequence[FileTensor],
    operators: Sequence[FileOperator],
    inputs: Sequence[int],
    outputs: Sequence[int],
) -> int:
    written = []
    for tensor in tensors:
        number = 0
        if tensor.values is not None:
            number = len(buffers)
            buffers.append(_buffer(b, np.ascontiguousarray(tensor.values)))
        written.append(_tensor(b, tensor, number))
    return _table(
        b,
        "SubGraph",
        Tensors=_vector(b, tflite.SubGraphStartTensorsVector, written),
        Inputs=_numbers(b, tflite.SubGraphStartInputsVector, inputs),
        Outputs=_numbers(b, tflite.SubGraphStartOutputsVector, outputs),
        Operators=_vector(
            b,
            tflite.SubGraphStartOperatorsVector,
            [_operator(b, operator, codes) for operator in operators],
        ),
    )


def _table(b: flatbuffers.Builder, kind: str, **fields: int) -> int:
    getattr(tflite, f"{kind}Start")(b)
    for name, value in fields.items():
        getattr(tflite, f"{kind}Add{name}")(b, value)
    return int(getattr(tflite, f"{kind}End")(b))


def _vector(b: flatbuffers.Builder, start: Callable[..., Any], items: Sequence[int]) -> int:
    start(b, len(items))
    for item in reversed(items):
        b.PrependUOffsetTRelative(item)
    return int(b.EndVector())


def _numbers(b: flatbuffers.Builder, start: Callable[..., Any], items: Sequence[int]) -> int:
    start(b, len(items))
    for item in reversed(items):
        b.PrependInt32(item)
    return int(b.EndVector())


def _buffer(b: flatbuffers.Builder, values: npt.NDArray[Any]) -> int:
    data = b.CreateByteVector(values.tobytes())
    return _table(b, "Buffer", Data=data)


def _tensor(b: flatbuffers.Builder, tensor: FileTensor, buffer: int) -> int:
    name = b.CreateString(tensor.name)
    shape = _numbers(b, tflite.TensorStartShapeVector, tensor.shape)
    signature = _numbers(b, tflite.TensorStartShapeSignatureVector, tensor.signature)
    fields = {
        "Shape": shape,
        "ShapeSignature": signature,
        "Type": getattr(tflite.TensorType, tensor.dtype),
        "Buffer": buffer,
        "Name": name,
    }
    if tensor.scales:
        tflite.QuantizationParametersStartScaleVector(b, len(tensor.scales))
        for scale in reversed(tensor.scales):
            b.PrependFloat32(scale)
        scales = b.EndVector()
        tflite.QuantizationParametersStartZeroPointVector(b, len(tensor.zero_points))
        for zero in reversed(tensor.zero_points):
            b.PrependInt64(zero)
        zeros = b.EndVector()
        fields["Quantization"] = _table(
            b,
            "QuantizationParameters",
            Scale=scales,
            ZeroPoint=zeros,
            QuantizedDimension=tensor.axis,
        )
    return _table(b, "Tensor", **fields)


def _operator(b: flatbuffers.Builder, operator: FileOperator, codes: Sequence[str]) -> int:
    inputs = _numbers(b, tflite.OperatorStartInputsVector, operator.inputs)
    outputs = _numbers(b, tflite.OperatorStartOutputsVector, operator.outputs)
    fields = {"OpcodeIndex": codes.index(operator.name), "Inputs": inputs, "Outputs": outputs}
    for kind, options in operator.options.items():
        options = {
            name: b.CreateString(value) if isinstance(value, str) else value
            for name, value in options.items()
        }
        fields["BuiltinOptions"] = _table(b, kind, **options)
        fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, kind)
    return _table(b, "Operator", **fields)


def connected_layer(
    weights: npt.NDArray[np.int8], bias: npt.NDArray[np.int64], scales: Sequence[float]
) -> bytes:
    """Return an Int16 fully connected layer of one row with the given scales."""
    outs, ins = weights.shape
    source, of_weights, result = (float(scale) for scale in scales)
    of_bias = float(np.float32(source) * np.float32(of_weights))
    tensors = [
        FileTensor("x", (1, ins), "INT16", (source,)),
        FileTensor("w", (outs, ins), "INT8", (of_weights,), values=weights),
        FileTensor("b", (outs,), "INT64", (of_bias,), values=bias),
        FileTensor("y", (1, outs), "INT16", (result,)),
    ]
    operator = FileOperator("FULLY_CONNECTED", (0, 1, 2), (3,), {"FullyConnectedOptions": {}})
    return tflite_file(tensors, [operator], (0,), (3,))
