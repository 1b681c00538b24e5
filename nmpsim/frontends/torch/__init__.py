"""PyTorch front end: live models, quantized (eager mode, FX, PT2E, scripted, exported) or float."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from nmpsim.bundle.metadata import OperatorMapping
from nmpsim.diagnostics import Place, fail
from nmpsim.frontends import onnx
from nmpsim.frontends.graph.integer_regions import (
    DEQUANTIZE,
    QUANTIZE,
    fuse_integer_regions,
    infer_quantization,
)
from nmpsim.frontends.graph.movement import lower_identity
from nmpsim.frontends.graph.nodes import Node
from nmpsim.frontends.graph.operation import GraphLowering, LoweringResult
from nmpsim.frontends.graph.operators import OPERATORS as GRAPH_OPERATORS
from nmpsim.frontends.graph.problems import UnsupportedOperators
from nmpsim.frontends.graph.program import lower_graph
from nmpsim.frontends.imported_model import ImportedModel, ImportOptions, UnsupportedError
from nmpsim.frontends.module_builder import ModuleBuilder
from nmpsim.frontends.torch.float_operators import FLOAT_OPERATIONS
from nmpsim.frontends.torch.graph_builder import TorchGraphBuilder, get_tensor_kind
from nmpsim.frontends.torch.quantized_operators import OPERATIONS, lower_operation
from nmpsim.frontends.torch.recording import (
    ENGINE_PROFILES,
    TABLE,
    ModelRecording,
)
from nmpsim.lir.names import make_legal_name

PLACE = "a PyTorch module"
"""Place in error messages."""


def import_torch_module(model: Any, example: Any, engine: str | None = None) -> ImportedModel:
    """Record a PyTorch model on an example and import it as LIR.

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
    """Lower the recorded operations of a PyTorch model to LIR; return the imported model.

    Raises
    ------
    UserError
        MODEL002, LIR codes.
    """
    is_float = is_float_model(recording)
    place = Place(PLACE if is_float else recording.name)
    problems = UnsupportedOperators(
        place, lambda found: _OPERATION_HINT, "operator" if is_float else "operation"
    )
    is_pt2e = any(call.operation.startswith(PT2E_PREFIX) for call in recording.calls)
    builder = TorchGraphBuilder(recording, is_float or is_pt2e)
    if not builder.is_float:
        _check_interface(recording, place)
    for call in recording.calls:
        builder.add_call(call, FLOAT_OPERATIONS if builder.is_float else OPERATIONS, problems)
    graph, module_builder = builder.build(), ModuleBuilder(make_legal_name(recording.name), PLACE)
    if is_float:
        options = ImportOptions(for_quantization=True)
        return onnx.lower_onnx_graph(graph, module_builder, place, options, problems)
    steps, operators, numerics = graph.nodes, _EAGER_OPERATORS, ENGINE_PROFILES[recording.engine]
    mappings: dict[int, OperatorMapping] = {}
    if is_pt2e:
        regions = fuse_integer_regions(graph, True, PT2E_OPERATORS, bias_dtype="float32")
        steps, mappings, operators = regions.steps, regions.mappings, _PT2E_OPERATORS
        numerics = ENGINE_PROFILES[PT2E_ENGINE]
        own = {(one.index, one.op): one.outputs[0] for one in graph.nodes}
        graph = attrs.evolve(
            graph,
            quantization=infer_quantization(graph, steps)
            | {one.outputs[0]: one.attributes["result"] for one in steps if one.op == TABLE},
            layers={
                one.results[0]: graph.layers.get(name, name)
                for one in steps
                for name in (own[one.index, one.op],)
            },
        )
    lowering = GraphLowering(graph, steps, module_builder, place)
    imported = lower_graph(steps, lowering, mappings, problems, numerics, operators=operators)
    floats = [one.label for one in steps if is_pt2e and _is_float_operation(one)]
    warning = "operations that are not between quantized tensors run on the host in float32"
    listed = [f"{len(floats)} {warning}: {onnx.list_labels(floats)}"] if floats else []
    return attrs.evolve(imported, warnings=tuple(listed))


def _is_float_operation(node: Node) -> bool:
    is_conversion = node.op in (QUANTIZE, DEQUANTIZE, TABLE)
    return not (node.integers or is_conversion or GRAPH_OPERATORS[node.op].moves)


_OPERATION_HINT = (
    "Change or remove the operation in the model. docs/torch.md lists the supported operations."
)
PT2E_PREFIX = "quantized_decomposed."
PT2E_ENGINE = "fbgemm"
"""Engine in whose arithmetic the integer regions of PT2E are computed."""
PT2E_OPERATORS = ("Add", "AveragePool", "Conv", "Gemm", "MatMul", "Mul", "ReduceMean", "Relu")
"""Operators with an integer form in PyTorch's arithmetic."""


def _lower_table(op: GraphLowering, *, table: Any, result: Any) -> LoweringResult:
    """Lower a function of one quantized tensor to a look-up table of PyTorch's results."""
    op.result = result
    return op.emit_table_lookup(op.read_unchecked_operand(), table.astype(np.int16))


_PT2E_OPERATORS = {op: row.lower for op, row in GRAPH_OPERATORS.items()} | {TABLE: _lower_table}
_EAGER_OPERATORS = {**dict.fromkeys(OPERATIONS, lower_operation), "Identity": lower_identity}


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
