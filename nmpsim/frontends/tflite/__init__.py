"""TFLite's quantized models: int8, uint8 and int16x8."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from nmpsim.bundle.limits import CHANNELS
from nmpsim.bundle.metadata import Fate, Normalization
from nmpsim.diagnostics import Diagnostic, Place, UserError, fail
from nmpsim.frontends.builder import Builder
from nmpsim.frontends.imported import Imported, Wishes
from nmpsim.frontends.tflite.lowering import Lowering
from nmpsim.frontends.tflite.model import Graph, Operator, Tensor, read_graph
from nmpsim.frontends.tflite.operators import OPERATORS
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.names import legal_name
from nmpsim.lir.parser import MAX_ERRORS

NUMERICS = "q31"
"""TFLite's reference kernels."""


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
    graph = read_graph(path)
    builder = Builder(legal_name(path.stem), str(path))
    lowering = Lowering(graph, builder, place)
    unsigned = _bind(graph, builder, lowering)
    fates: list[Fate] = []
    problems: list[Diagnostic] = []
    for operator in graph.operators:
        try:
            fates.append(_lower(lowering, operator))
        except UnsupportedError as why:
            problems.append(lowering.unsupported(operator, why))
            for tensor in operator.outputs:
                _assume(lowering, tensor)
    if problems:
        is_float = not any(tensor.is_quantized for tensor in graph.tensors)
        raise UserError(problems[: 1 if is_float else MAX_ERRORS])
    known = tuple(_normalizations(graph, lowering))
    warnings = tuple(map(_open_warning, graph.open_inputs))
    return Imported(builder.module(), unsigned, tuple(fates), NUMERICS, known, warnings=warnings)


def _open_warning(tensor: Tensor) -> str:
    return (
        f"input {tensor.name} has open dimensions; compiled is {list(tensor.shape)}, which the file"
        " gives besides; for another shape convert the model with that shape"
    )


def _normalizations(graph: Graph, lowering: Lowering) -> Iterator[Normalization]:
    """Those that mean something."""
    for tensor, (mean, stddev) in zip(graph.inputs, graph.normalizations, strict=False):
        is_sound = all(map(math.isfinite, (*mean, *stddev))) and min(stddev, default=0) > 0
        if is_sound and len(mean) == len(stddev) and CHANNELS.problem(len(mean)) is None:
            yield Normalization(lowering.bound[tensor.index].name, mean, stddev)


def _bind(graph: Graph, builder: Builder, lowering: Lowering) -> frozenset[str]:
    """Inputs and outputs become the program's; the names of those that are uint8."""
    unsigned = set()
    made = {tensor.index for operator in graph.operators for tensor in operator.outputs}
    for tensor in graph.outputs:
        if tensor.index not in made:
            raise fail(
                "MODEL002",
                f"output {tensor.name} cannot be compiled",
                place=lowering.place,
                found="an input or a constant",
                expected="the result of an operator",
            )
    for role, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        for tensor in tensors:
            if tensor.index not in lowering.bound:
                try:
                    type = lowering.type_of(tensor)
                except UnsupportedError as why:
                    raise fail(
                        "MODEL002",
                        f"{role} {tensor.name} cannot be compiled",
                        place=lowering.place,
                        found=str(why),
                        expected="int8, uint8, int16 or float32",
                    ) from why
                value = builder.variable(tensor.name, type)
                lowering.bound[tensor.index] = value
                lowering.set(tensor, value)
            if tensor.dtype == "uint8" and tensor.is_quantized:
                unsigned.add(lowering.bound[tensor.index].name)
    return frozenset(unsigned)


def _lower(lowering: Lowering, operator: Operator) -> Fate:
    lowering.builder.node = operator.node
    before = len(lowering.builder.names)
    if operator.name not in OPERATORS:
        raise UnsupportedError("an operator that nmpsim does not know")
    for tensor in (*operator.inputs, *operator.outputs):
        if tensor is not None and 0 in tensor.shape and tensor.dtype not in ("int32", "int64"):
            raise UnsupportedError(f"{tensor.name} has no elements")
    result = OPERATORS[operator.name](lowering, operator)
    layers = tuple(lowering.builder.names[before:])
    return Fate(operator.node, layers, result.why)


def _assume(lowering: Lowering, tensor: Tensor) -> None:
    """Room for what was not made, so that its readers are judged on their own."""
    try:
        lowering.target(tensor)
    except UnsupportedError:
        return
