"""PyTorch front end: live models, quantized (eager mode, FX, PT2E, scripted, exported) or float."""

from __future__ import annotations

from typing import Any

from nmpsim.bundle.metadata import OperatorMapping
from nmpsim.diagnostics import Place, fail
from nmpsim.frontends import onnx
from nmpsim.frontends.graph.lowering import VIEW_ONLY, Lowering
from nmpsim.frontends.graph.problems import Problems
from nmpsim.frontends.graph.program import lower_graph
from nmpsim.frontends.imported_model import (
    ImportedModel,
    ImportOptions,
    UnsupportedError,
)
from nmpsim.frontends.module_builder import ModuleBuilder
from nmpsim.frontends.torch.float_operators import FLOAT_OPERATIONS
from nmpsim.frontends.torch.graph_builder import TorchGraphBuilder, get_tensor_kind
from nmpsim.frontends.torch.pt2e import convert_pt2e, is_pt2e_model
from nmpsim.frontends.torch.quantized_operators import QUANTIZED_OPERATIONS
from nmpsim.frontends.torch.recording import (
    ENGINE_PROFILES,
    ModelRecording,
)
from nmpsim.lir.names import make_legal_name

PLACE = "a PyTorch module"
"""Place in error messages."""


def import_torch_module(model: Any, example: Any, engine: str | None = None) -> ImportedModel:
    """Import a live PyTorch model as LIR.

    Parameters and errors are those of :func:`nmpsim.from_torch`.
    """
    try:
        from nmpsim.frontends.torch.recorder import record_model
    except ImportError as error:
        message = "PyTorch is needed to import a PyTorch model"
        hint = "Run `pip install torch`; compiled bundles do not need it."
        raise fail("PKG001", message, found=str(error), hint=hint) from error

    return lower_recording(record_model(model, example, engine))


def lower_recording(recording: ModelRecording) -> ImportedModel:
    """Lower a recorded run of a PyTorch model to LIR.

    Raises
    ------
    UserError
        MODEL002, LIR codes.
    """
    is_float = is_float_model(recording)
    place = Place(PLACE if is_float else recording.name)
    problems = Problems(place, lambda found: None, "operator" if is_float else "operation")
    if is_pt2e_model(recording):
        recording = convert_pt2e(
            recording, lambda call, error: problems.add(call.number, call.label, error)
        )
        problems.raise_errors()
    builder = TorchGraphBuilder(recording, is_float)
    if not is_float:
        _check_interface(recording, place)
    operations = FLOAT_OPERATIONS if is_float else QUANTIZED_OPERATIONS
    mappings: dict[int, OperatorMapping] = {}
    for call in recording.calls:
        if not builder.add_call(call, operations, problems):
            mappings[call.number] = OperatorMapping(call.label, (), VIEW_ONLY)
    graph, module_builder = builder.build(), ModuleBuilder(make_legal_name(recording.name), PLACE)
    if is_float:
        options = ImportOptions(for_quantization=True)
        return onnx.lower_onnx_graph(graph, module_builder, place, options, problems)
    lowering = Lowering(graph, builder.steps, module_builder, place)
    numerics = ENGINE_PROFILES[recording.engine]
    return lower_graph(builder.steps, lowering, mappings, problems, numerics)


def _check_interface(recording: ModelRecording, place: Place) -> None:
    """Raise UserError (MODEL002) for inputs and outputs of unsupported types."""
    for kind, tensors in (("input", recording.inputs), ("output", recording.outputs)):
        for name, tensor in tensors:
            try:
                get_tensor_kind(tensor)
            except UnsupportedError as error:
                message = f"{kind} {name} cannot be compiled"
                raise fail(
                    "MODEL002", message, place=place, found=str(error), expected=error.expected
                ) from error


_QUANTIZED_PREFIXES = ("quantized.", "quantized_decomposed.", "aten.quantize", "aten.dequantize")


def is_float_model(recording: ModelRecording) -> bool:
    """Return whether a recorded model has no quantized tensors or operations."""
    tensors = [tensor for _, tensor in (*recording.inputs, *recording.outputs)]
    return all(tensor.dtype == "float32" for tensor in tensors) and not any(
        call.operation.startswith(_QUANTIZED_PREFIXES) for call in recording.calls
    )
