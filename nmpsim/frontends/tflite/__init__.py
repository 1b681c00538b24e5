"""TFLite's quantized models: int8, uint8 and int16x8."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from nmpsim.bundle.limits import CHANNELS
from nmpsim.bundle.metadata import Fate, Normalization
from nmpsim.diagnostics import Place, fail
from nmpsim.frontends.builder import Builder
from nmpsim.frontends.graph.lowering import Lowering
from nmpsim.frontends.graph.program import Problems, lower_steps
from nmpsim.frontends.imported import Imported, Wishes
from nmpsim.frontends.tflite.drawing import Drawing
from nmpsim.frontends.tflite.model import Tensor, read_graph
from nmpsim.frontends.tflite.operators import OPERATORS
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.names import legal_name
from nmpsim.lir.parser import MAX_ERRORS

NUMERICS = "q31"
"""TFLite's reference kernels."""
_FLOAT_HINT = (
    "convert the model with full integer quantization; or to ONNX (tf2onnx), for nmpsim quantize"
)


def read(path: Path, wishes: Wishes) -> Imported:
    """A model as LIR; its inputs have the file's shapes.

    Raises:
        UserError: ARG001 if shapes or integer islands are asked for, FILE001, PKG001, MODEL001
            (damaged), MODEL002 (not supported), LIR codes.
    """
    place = Place(str(path))
    if wishes.shapes or wishes.integer_islands is not None:
        message = "shapes of inputs and integer islands are for ONNX models"
        raise fail("ARG001", message, place=place, found="a TFLite file")
    model = read_graph(path)
    drawing = Drawing(model)
    _check_ends(drawing, place)
    problems = Problems(place, _hint)
    for operator in model.operators:
        drawing.operator = operator
        drawing.begin(operator.index, operator.node)
        try:
            _draw(drawing)
        except UnsupportedError as why:
            problems.add(operator.index, operator.node, why)
            drawing.refuse([*_declared(drawing, operator.outputs)])
    graph = drawing.whole()
    lowering = Lowering(graph, drawing.steps, Builder(legal_name(path.stem), str(path)), place)
    is_float = not any(tensor.is_quantized for tensor in model.tensors)
    fates: dict[int, Fate] = {}
    unsigned, _ = lower_steps(
        drawing.steps, lowering, fates, problems, 1 if is_float else MAX_ERRORS
    )
    return Imported(
        lowering.builder.module(),
        unsigned,
        tuple(fates[index] for index in sorted(fates)),
        NUMERICS,
        tuple(_normalizations(drawing)),
        warnings=tuple(map(_open_warning, model.open_inputs)),
    )


def _hint(found: str) -> str | None:
    return _FLOAT_HINT if found.endswith(" float32") else None


def _open_warning(tensor: Tensor) -> str:
    return (
        f"input {tensor.name} has open dimensions; compiled is {list(tensor.shape)}, which the file"
        " gives besides; for another shape convert the model with that shape"
    )


def _normalizations(drawing: Drawing) -> Iterator[Normalization]:
    """Those that mean something."""
    model = drawing.model
    for tensor, (mean, stddev) in zip(model.inputs, model.normalizations, strict=False):
        is_sound = all(map(math.isfinite, (*mean, *stddev))) and min(stddev, default=0) > 0
        if is_sound and len(mean) == len(stddev) and CHANNELS.problem(len(mean)) is None:
            yield Normalization(drawing.name(tensor), mean, stddev)


def _check_ends(drawing: Drawing, place: Place) -> None:
    """Refuse inputs and outputs of types that cannot be held, and outputs that nothing makes."""
    model = drawing.model
    made = {tensor.index for operator in model.operators for tensor in operator.outputs}
    found, expected = "an input or a constant", "the result of an operator"
    for role, tensors in (("output", model.outputs), ("input", model.inputs)):
        for tensor in tensors:
            message = f"{role} {tensor.name} cannot be compiled"
            if role == "output" and tensor.index not in made:
                raise fail("MODEL002", message, place=place, found=found, expected=expected)
            try:
                drawing.name(tensor)
            except UnsupportedError as why:
                expected = "int8, uint8, int16 or float32"
                raise fail(
                    "MODEL002", message, place=place, found=str(why), expected=expected
                ) from why


def _declared(drawing: Drawing, tensors: Iterable[Tensor]) -> Iterator[str]:
    """Names of tensors, as far as their kind is one that can be held."""
    for tensor in tensors:
        try:
            yield drawing.name(tensor)
        except UnsupportedError:
            return


def _draw(drawing: Drawing) -> None:
    operator = drawing.operator
    if operator.name not in OPERATORS:
        raise UnsupportedError("an operator that nmpsim does not know")
    for tensor in (*operator.inputs, *operator.outputs):
        if tensor is not None and 0 in tensor.shape and tensor.dtype not in ("int32", "int64"):
            raise UnsupportedError(f"{tensor.name} has no elements")
    OPERATORS[operator.name](drawing)
