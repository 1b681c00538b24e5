"""TFLite's quantized models: int8, uint8 and int16x8."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from nmpsim.bundle.limits import CHANNELS
from nmpsim.bundle.metadata import Normalization
from nmpsim.diagnostics import Place, fail
from nmpsim.frontends.graph.lowering import Lowering
from nmpsim.frontends.graph.problems import Problems
from nmpsim.frontends.graph.program import lower_graph
from nmpsim.frontends.imported_model import ImportedModel, ImportOptions, UnsupportedError
from nmpsim.frontends.module_builder import ModuleBuilder
from nmpsim.frontends.tflite.graph_builder import TFLiteGraphBuilder
from nmpsim.frontends.tflite.model import Tensor, read_graph
from nmpsim.frontends.tflite.movement import (
    blocks,
    concatenation,
    gather,
    mirror_pad,
    pack,
    pad,
    reshape,
    slice_,
    split,
    split_v,
    strided_slice,
    transpose,
    unpack,
)
from nmpsim.frontends.tflite.pointwise import (
    activation,
    batch_matmul,
    dequantize,
    leaky_relu,
    look_up,
    pair,
    pool,
    prelu,
    quantize,
    resize,
    softmax,
)
from nmpsim.frontends.tflite.reductions import extreme, mean, reduce_max, sum_
from nmpsim.frontends.tflite.weighted import (
    conv_2d,
    depthwise_conv_2d,
    fully_connected,
    transpose_conv,
)
from nmpsim.lir.names import make_legal_name
from nmpsim.lir.parser import MAX_ERRORS

NUMERICS = "q31"
"""TFLite's reference kernels."""
_FLOAT_HINT = (
    "convert the model with full integer quantization; or to ONNX (tf2onnx), for nmpsim quantize"
)


def read(path: Path, options: ImportOptions) -> ImportedModel:
    """A model as LIR; its inputs have the file's shapes.

    Raises:
        UserError: ARG001 if shapes or integer islands are asked for, FILE001, PKG001, MODEL001
            (damaged), MODEL002 (not supported), LIR codes.
    """
    place = Place(str(path))
    if options.input_shapes or options.integer_islands is not None:
        message = "shapes of inputs and integer islands are for ONNX models"
        raise fail("ARG001", message, place=place, found="a TFLite file")
    model = read_graph(path)
    builder = TFLiteGraphBuilder(model)
    _check_ends(builder, place)
    problems = Problems(place, _hint)
    for operator in model.operators:
        builder.operator = operator
        builder.begin(operator.index, operator.node)
        builder.attempt(lambda: _draw(builder), problems)
    graph = builder.whole()
    lowering = Lowering(
        graph, builder.steps, ModuleBuilder(make_legal_name(path.stem), str(path)), place
    )
    is_float = not any(tensor.is_quantized for tensor in model.tensors)
    most = 1 if is_float else MAX_ERRORS
    return attrs.evolve(
        lower_graph(builder.steps, lowering, {}, problems, NUMERICS, most),
        normalizations=tuple(_normalizations(builder)),
        warnings=tuple(map(_open_warning, model.open_inputs)),
    )


def _hint(found: str) -> str | None:
    return _FLOAT_HINT if found.endswith(" float32") else None


def _open_warning(tensor: Tensor) -> str:
    return (
        f"input {tensor.name} has open dimensions; compiled is {list(tensor.shape)}, which the file"
        " gives besides; for another shape convert the model with that shape"
    )


def _normalizations(builder: TFLiteGraphBuilder) -> Iterator[Normalization]:
    """Those that mean something."""
    model = builder.model
    for tensor, (means, deviations) in zip(model.inputs, model.normalizations, strict=False):
        is_sound = all(map(math.isfinite, (*means, *deviations))) and min(deviations, default=0) > 0
        if is_sound and len(means) == len(deviations) and CHANNELS.problem(len(means)) is None:
            yield Normalization(builder.name(tensor), means, deviations)


def _check_ends(builder: TFLiteGraphBuilder, place: Place) -> None:
    """Refuse inputs and outputs of types that cannot be held, and outputs that nothing makes."""
    model = builder.model
    made = {tensor.index for operator in model.operators for tensor in operator.outputs}
    found, expected = "an input or a constant", "the result of an operator"
    for role, tensors in (("output", model.outputs), ("input", model.inputs)):
        for tensor in tensors:
            message = f"{role} {tensor.name} cannot be compiled"
            if role == "output" and tensor.index not in made:
                raise fail("MODEL002", message, place=place, found=found, expected=expected)
            try:
                builder.name(tensor)
            except UnsupportedError as why:
                expected = "int8, uint8, int16 or float32"
                raise fail(
                    "MODEL002", message, place=place, found=str(why), expected=expected
                ) from why


def _draw(builder: TFLiteGraphBuilder) -> None:
    operator = builder.operator
    if operator.name not in OPERATORS:
        raise UnsupportedError("an operator that nmpsim does not know")
    for tensor in (*operator.inputs, *operator.outputs):
        if tensor is not None and 0 in tensor.shape and tensor.dtype not in ("int32", "int64"):
            raise UnsupportedError(f"{tensor.name} has no elements")
    OPERATORS[operator.name](builder)


OPERATORS: dict[str, Callable[[TFLiteGraphBuilder], None]] = {
    "ADD": pair("elementadd"),
    "ARG_MAX": extreme("argmax"),
    "ARG_MIN": extreme("argmin"),
    "AVERAGE_POOL_2D": pool("avgpool"),
    "BATCH_MATMUL": batch_matmul,
    "CONCATENATION": concatenation,
    "CONV_2D": conv_2d,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d,
    "DEQUANTIZE": dequantize,
    "DEPTH_TO_SPACE": blocks(into_channels=False),
    "EXPAND_DIMS": reshape,
    "FULLY_CONNECTED": fully_connected,
    "GATHER": gather,
    "HARD_SWISH": look_up,
    "LEAKY_RELU": leaky_relu,
    "LOGISTIC": look_up,
    "MAXIMUM": pair("elementmax"),
    "MAX_POOL_2D": pool("maxpool"),
    "MEAN": mean,
    "MINIMUM": pair("elementmin"),
    "MIRROR_PAD": mirror_pad,
    "MUL": pair("elementmul"),
    "PACK": pack,
    "PAD": pad,
    "PADV2": pad,
    "PRELU": prelu,
    "QUANTIZE": quantize,
    "REDUCE_MAX": reduce_max,
    "RELU": activation(0.0, None),
    "RELU6": activation(0.0, 6.0),
    "RELU_N1_TO_1": activation(-1.0, 1.0),
    "RESHAPE": reshape,
    "RESIZE_BILINEAR": resize("resizebilinear"),
    "RESIZE_NEAREST_NEIGHBOR": resize("resizenearest"),
    "SLICE": slice_,
    "SOFTMAX": softmax,
    "SPACE_TO_DEPTH": blocks(into_channels=True),
    "SPLIT": split,
    "SPLIT_V": split_v,
    "SQUEEZE": reshape,
    "STRIDED_SLICE": strided_slice,
    "SUB": pair("elementsub"),
    "SUM": sum_,
    "TANH": look_up,
    "TRANSPOSE": transpose,
    "TRANSPOSE_CONV": transpose_conv,
    "UNPACK": unpack,
}
"""By its name in the schema."""
