"""TFLite front end for quantized models of int8, uint8 and int16x8, and for float models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from nmpsim.bundle.limits import CHANNELS
from nmpsim.bundle.metadata import Normalization, OperatorMapping
from nmpsim.diagnostics import Place, fail
from nmpsim.frontends.graph.operation import GraphLowering
from nmpsim.frontends.graph.problems import UnsupportedOperators
from nmpsim.frontends.graph.program import lower_graph
from nmpsim.frontends.imported_model import ImportedModel, ImportOptions, make_onnx_option_error
from nmpsim.frontends.module_builder import ModuleBuilder
from nmpsim.frontends.tflite.float_operators import build_float_graph, is_float_model
from nmpsim.frontends.tflite.graph import build_graph
from nmpsim.frontends.tflite.model import read_model
from nmpsim.frontends.tflite.model_data import TFLiteModel, TFLiteTensor
from nmpsim.frontends.tflite.operators import OPERATORS, lower_operator
from nmpsim.lir.names import make_legal_name

NUMERICS = "q31"
"""Numerics profile of TFLite's reference kernels."""
_FLOAT_HINT = (
    "Convert the complete model with full integer quantization, or without quantization for"
    " nmpsim quantize."
)
_OPERATOR_HINT = (
    "Change or remove the operator in the model. docs/tflite.md lists the supported operators."
)


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
        raise make_onnx_option_error(options, place, "a TFLite file")
    model = read_model(path)
    builder = ModuleBuilder(make_legal_name(path.stem), str(path))
    problems = UnsupportedOperators(place, _hint)
    if is_float_model(model):
        if model.states:
            message = "a float model with variables cannot be quantized"
            found = ", ".join(one.name for one in model.states)
            raise fail("MODEL002", message, place=place, found=found, hint=_FLOAT_HINT)
        from nmpsim.frontends.onnx import lower_onnx_graph  # few models need it

        graph, names = build_float_graph(model)
        imported = lower_onnx_graph(graph, builder, place, options, problems)
    else:
        graph, names = build_graph(model)
        lowering = GraphLowering(graph, graph.nodes, builder, place)
        operators = dict.fromkeys(OPERATORS, lower_operator)
        mappings = {
            one.index: OperatorMapping(f"{one.index} {one.name}", why="a state tensor")
            for one in model.variable_operators
        }
        imported = lower_graph(
            graph.nodes, lowering, mappings, problems, NUMERICS, operators=operators
        )
    return attrs.evolve(
        imported,
        normalizations=tuple(_normalizations(model, names)),
        warnings=tuple(map(_open_shape_warning, model.open_inputs)),
    )


def _hint(found: str) -> str:
    return _FLOAT_HINT if found.endswith(" float32") else _OPERATOR_HINT


def _open_shape_warning(tensor: TFLiteTensor) -> str:
    return (
        f"input {tensor.name} has open dimensions; it is compiled with the shape"
        f" {list(tensor.shape)} given in the file. Convert the model again for another shape."
    )


def _normalizations(model: TFLiteModel, names: Mapping[int, str]) -> Iterator[Normalization]:
    """Yield the valid normalizations of inputs."""
    for tensor, (means, deviations) in zip(model.inputs, model.normalizations, strict=False):
        is_valid = all(map(math.isfinite, (*means, *deviations))) and min(deviations, default=0) > 0
        if is_valid and len(means) == len(deviations) and CHANNELS.find_problem(len(means)) is None:
            yield Normalization(names[tensor.index], means, deviations)
