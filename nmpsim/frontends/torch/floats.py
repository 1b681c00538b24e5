"""A float PyTorch model as the graph of an ONNX model, of which LIR is made in one place only.

Each operation that the run has done becomes one of ONNX's operators, or a few. One that has none
stays under its own name, and is refused by it.
"""

from __future__ import annotations

from nmpsim.diagnostics import Place
from nmpsim.frontends.builder import Builder
from nmpsim.frontends.graph.steps import Graph
from nmpsim.frontends.imported import Imported, Wishes
from nmpsim.frontends.onnx import lower
from nmpsim.frontends.torch.drawing import Drawing
from nmpsim.frontends.torch.float_operations import FLOAT_OPERATIONS, NoOperatorError
from nmpsim.frontends.torch.record import Recorded, Tensor
from nmpsim.lir.names import legal_name

_QUANTIZED = ("quantized.", "quantized_decomposed.", "aten.quantize", "aten.dequantize")


def is_float(recorded: Recorded) -> bool:
    """Whether nothing in a model is quantized."""
    tensors = [tensor for _, tensor in (*recorded.inputs, *recorded.outputs)]
    return all(tensor.dtype == "float32" for tensor in tensors) and not any(
        call.operation.startswith(_QUANTIZED) for call in recorded.calls
    )


def lower_float(recorded: Recorded, place: str) -> Imported:
    """A float model as LIR that is to be quantized; MODEL002 for what is not supported."""
    builder = Builder(legal_name(recorded.name), place)
    return lower(float_graph(recorded), builder, Place(place), Wishes(to_quantize=True))


def float_graph(recorded: Recorded) -> Graph:
    """The graph. Tensors have the names of modules, inputs and outputs those of the model."""
    drawing = Drawing(recorded, is_float=True)
    for call in recorded.calls:
        drawing.take(call)
        try:
            if call.operation not in FLOAT_OPERATIONS:
                raise NoOperatorError
            FLOAT_OPERATIONS[call.operation](drawing)
        except NoOperatorError:
            tensors = [one for one in call.arguments.values() if isinstance(one, Tensor)]
            outputs = drawing.results() or [drawing.fresh("nothing")]
            drawing.add(call.operation, [drawing.name(one) for one in tensors], *outputs)
    return drawing.whole()
