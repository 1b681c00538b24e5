"""PyTorch's quantized models, live: from the eager mode, FX, PT2E, scripted or exported."""

from __future__ import annotations

from typing import Any

from nmpsim.bundle.metadata import OperatorMapping
from nmpsim.diagnostics import Place, fail
from nmpsim.frontends import onnx
from nmpsim.frontends.graph.lowering import VIEW_ONLY, Lowering
from nmpsim.frontends.graph.nodes import Graph
from nmpsim.frontends.graph.problems import Problems
from nmpsim.frontends.graph.program import lower_graph
from nmpsim.frontends.imported_model import ImportedModel, ImportOptions, UnsupportedError
from nmpsim.frontends.module_builder import ModuleBuilder
from nmpsim.frontends.torch.float_operators import FLOAT_OPERATIONS, NoOperatorError
from nmpsim.frontends.torch.graph_builder import Draw, TorchGraphBuilder, kind_of
from nmpsim.frontends.torch.movement import pad, permute, same, select, slice_, split, view
from nmpsim.frontends.torch.pointwise import (
    adaptive_average_pool,
    average_pool,
    concatenation,
    dequantize,
    max_pool,
    pair,
    pointwise,
    quantize,
    softmax,
)
from nmpsim.frontends.torch.pt2e import is_pt2e, with_islands
from nmpsim.frontends.torch.recording import POINTWISE, PROFILES, Recorded, Tensor
from nmpsim.frontends.torch.weighted import convolution, linear
from nmpsim.lir.names import make_legal_name

PLACE = "a PyTorch module"
"""Where messages say that something is."""


def import_module(model: Any, example: Any, engine: str | None = None) -> ImportedModel:
    """A live PyTorch model as LIR; a float one as what is to be quantized.

    Arguments and errors as of :func:`nmpsim.from_torch`.
    """
    try:
        from nmpsim.frontends.torch.recorder import record
    except ImportError as error:
        message = "a PyTorch model needs PyTorch"
        hint = "pip install torch; a compiled bundle runs without it"
        raise fail("PKG001", message, found=str(error), hint=hint) from error

    return lower(record(model, example, engine))


def lower(recorded: Recorded) -> ImportedModel:
    """A recorded run as LIR.

    Raises:
        UserError: MODEL002, LIR codes.
    """
    if is_float(recorded):
        return lower_float(recorded, PLACE)
    place = Place(recorded.name)
    problems = Problems(place, lambda found: None, "operation")
    if is_pt2e(recorded):
        recorded = with_islands(
            recorded, lambda call, why: problems.add(call.number, call.node, why)
        )
        problems.check()
    fates: dict[int, OperatorMapping] = {}
    builder = TorchGraphBuilder(recorded, is_float=False)
    _check_ends(builder, place)
    for call in recorded.calls:
        builder.take(call)
        drawn = len(builder.steps)
        builder.attempt(lambda: _draw(builder), problems)
        if len(builder.steps) == drawn:
            fates[call.number] = OperatorMapping(call.node, (), VIEW_ONLY)
    graph = builder.whole()
    lowering = Lowering(
        graph, builder.steps, ModuleBuilder(make_legal_name(recorded.name), PLACE), place
    )
    return lower_graph(builder.steps, lowering, fates, problems, PROFILES[recorded.engine])


def _check_ends(builder: TorchGraphBuilder, place: Place) -> None:
    """Refuse inputs and outputs of types that cannot be held."""
    try:
        for _, tensor in (*builder.recorded.inputs, *builder.recorded.outputs):
            kind_of(tensor)
    except UnsupportedError as why:
        message = "an input or output cannot be compiled"
        wanted = "float32 or quint8"
        raise fail("MODEL002", message, place=place, found=str(why), expected=wanted) from why


def _draw(builder: TorchGraphBuilder) -> None:
    call = builder.call
    if call.operation not in OPERATORS:
        raise UnsupportedError(
            "an operation that nmpsim does not know"
            if call.results
            else "control flow or a number that depends on the values of a tensor"
        )
    OPERATORS[call.operation](builder)


OPERATORS: dict[str, Draw] = {
    "aten._adaptive_avg_pool2d": adaptive_average_pool,
    "aten._reshape_alias": view,
    "aten._softmax": softmax,
    "aten._unsafe_view": view,
    "aten.alias": same,
    "aten.avg_pool2d": average_pool,
    "aten.cat": concatenation,
    "aten.clone": same,
    "aten.constant_pad_nd": pad,
    "aten.contiguous": same,
    "aten.dequantize": dequantize,
    "aten.detach": same,
    "aten.permute": permute,
    "aten.quantize_per_tensor": quantize,
    "aten.quantized_max_pool2d": max_pool,
    "aten.select": select,
    "aten.slice": slice_,
    "aten.split": split,
    "aten.split_with_sizes": split,
    "aten.squeeze": view,
    "aten.t": permute,
    "aten.transpose": permute,
    "aten.unsqueeze": view,
    "aten.view": view,
    "quantized.add": pair("elementadd"),
    "quantized.add_relu": pair("elementadd"),
    "quantized.cat": concatenation,
    "quantized.conv2d": convolution,
    "quantized.conv2d_relu": convolution,
    "quantized.linear": linear,
    "quantized.linear_relu": linear,
    "quantized.mul": pair("elementmul"),
    "quantized.mul_relu": pair("elementmul"),
    **dict.fromkeys(POINTWISE, pointwise),
}
"""By its namespace and name."""


_QUANTIZED = ("quantized.", "quantized_decomposed.", "aten.quantize", "aten.dequantize")


def is_float(recorded: Recorded) -> bool:
    """Whether nothing in a model is quantized."""
    tensors = [tensor for _, tensor in (*recorded.inputs, *recorded.outputs)]
    return all(tensor.dtype == "float32" for tensor in tensors) and not any(
        call.operation.startswith(_QUANTIZED) for call in recorded.calls
    )


def lower_float(recorded: Recorded, place: str) -> ImportedModel:
    """A float model as LIR that is to be quantized; MODEL002 for what is not supported."""
    builder = ModuleBuilder(make_legal_name(recorded.name), place)
    options = ImportOptions(for_quantization=True)
    return onnx.lower_onnx_graph(float_graph(recorded), builder, Place(place), options)


def float_graph(recorded: Recorded) -> Graph:
    """The graph. Tensors have the names of modules, inputs and outputs those of the model."""
    builder = TorchGraphBuilder(recorded, is_float=True)
    for call in recorded.calls:
        builder.take(call)
        try:
            if call.operation not in FLOAT_OPERATIONS:
                raise NoOperatorError
            FLOAT_OPERATIONS[call.operation](builder)
        except NoOperatorError:
            tensors = [one for one in call.arguments.values() if isinstance(one, Tensor)]
            outputs = list(builder.outputs()) or [builder.unique_name("nothing")]
            builder.add(call.operation, [builder.name(one) for one in tensors], *outputs)
    return builder.whole()
