"""TFLite front end: quantized models of int8, uint8 and int16x8."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import attrs

from nmpsim.bundle.limits import CHANNELS
from nmpsim.bundle.metadata import Normalization
from nmpsim.diagnostics import Place, fail
from nmpsim.frontends.graph.lowering import Lowering
from nmpsim.frontends.graph.problems import Problems
from nmpsim.frontends.graph.program import lower_graph
from nmpsim.frontends.imported_model import (
    ImportedModel,
    ImportOptions,
    UnsupportedError,
    require,
)
from nmpsim.frontends.module_builder import ModuleBuilder
from nmpsim.frontends.tflite import movement, pointwise, weighted
from nmpsim.frontends.tflite.graph_builder import TFLiteGraphBuilder, Translation
from nmpsim.frontends.tflite.model import TFLiteTensor, read_model
from nmpsim.lir.names import make_legal_name
from nmpsim.lir.parser import MAX_ERRORS

NUMERICS = "q31"
"""Numerics profile of TFLite's reference kernels."""
_FLOAT_HINT = (
    "Convert the model with full integer quantization, or to ONNX (tf2onnx) for nmpsim quantize."
)
OPERATORS: dict[str, Translation] = {
    **movement.OPERATORS,
    **pointwise.OPERATORS,
    **weighted.OPERATORS,
}
"""Operator name in the schema -> translation."""


def import_tflite(path: Path, options: ImportOptions) -> ImportedModel:
    """Import a TFLite file as LIR, with the input shapes of the file.

    Raises
    ------
    UserError
        ARG001 for input shapes or integer islands, FILE001, PKG001, MODEL001 (damaged),
        MODEL002 (not supported), LIR codes.
    """
    place = Place(str(path))
    if options.input_shapes or options.integer_islands is not None:
        message = "input shapes and integer islands apply to ONNX models only"
        raise fail("ARG001", message, place=place, found="a TFLite file")
    model = read_model(path)
    builder = TFLiteGraphBuilder(model)
    _check_interface(builder, place)
    problems = Problems(place, _hint)
    for operator in model.operators:
        builder.operator = operator
        builder.begin_operator(operator.index, operator.label)
        builder.try_translate(lambda: _translate(builder), problems)
    module_builder = ModuleBuilder(make_legal_name(path.stem), str(path))
    lowering = Lowering(builder.build(), builder.steps, module_builder, place)
    is_float = not any(tensor.is_quantized for tensor in model.tensors)
    max_problems = 1 if is_float else MAX_ERRORS
    return attrs.evolve(
        lower_graph(builder.steps, lowering, {}, problems, NUMERICS, max_problems),
        normalizations=tuple(_normalizations(builder)),
        warnings=tuple(map(_open_shape_warning, model.open_inputs)),
    )


def _hint(found: str) -> str | None:
    return _FLOAT_HINT if found.endswith(" float32") else None


def _open_shape_warning(tensor: TFLiteTensor) -> str:
    return (
        f"input {tensor.name} has open dimensions; it is compiled with the shape"
        f" {list(tensor.shape)} given in the file. Convert the model again for another shape."
    )


def _normalizations(builder: TFLiteGraphBuilder) -> Iterator[Normalization]:
    """Yield the valid normalizations of inputs."""
    model = builder.model
    for tensor, (means, deviations) in zip(model.inputs, model.normalizations, strict=False):
        is_valid = all(map(math.isfinite, (*means, *deviations))) and min(deviations, default=0) > 0
        if is_valid and len(means) == len(deviations) and CHANNELS.find_problem(len(means)) is None:
            yield Normalization(builder.get_name(tensor), means, deviations)


def _check_interface(builder: TFLiteGraphBuilder, place: Place) -> None:
    """Raise UserError (MODEL002) for unsupported types, and for outputs that are not computed."""
    model = builder.model
    computed = {tensor.index for operator in model.operators for tensor in operator.outputs}
    for role, tensors in (("output", model.outputs), ("input", model.inputs)):
        for tensor in tensors:
            found, expected = "an input or a constant", "the result of an operator"
            try:
                if role == "input" or tensor.index in computed:
                    expected = "int8, uint8, int16 or float32"
                    builder.get_name(tensor)
                    continue
            except UnsupportedError as error:
                found = str(error)
            message = f"{role} {tensor.name} cannot be compiled"
            raise fail("MODEL002", message, place=place, found=found, expected=expected)


def _translate(builder: TFLiteGraphBuilder) -> None:
    operator = builder.operator
    require(operator.name in OPERATORS, "an unsupported operator")
    for tensor in (*operator.inputs, *operator.outputs):
        if tensor is not None and tensor.dtype not in ("int32", "int64"):
            require(0 not in tensor.shape, f"{tensor.name} has no elements")
    OPERATORS[operator.name](builder)
