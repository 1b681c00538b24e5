"""Which quantized results depend on float32 arithmetic that references may round otherwise."""

from __future__ import annotations

from nmpsim.bundle.metadata import Layer, Metadata
from nmpsim.lir.opcode import Kind
from nmpsim.lir.opcodes import OPCODES

_SUMS = {Kind.CONVOLUTION, Kind.FULLY_CONNECTED, Kind.PRODUCT, Kind.AVERAGE_POOL, Kind.FUNCTION}
_FUNCTIONS = {
    *("softmax", "logsoftmax", "softplus", "hardswish", "elementpow", "elementrsqrt"),
    *("elementsin", "elementcos", "elementasin", "elementacos", "elementatan"),
    *("elementerf", "elementexp", "elementlog", "resizebilinear", "localresponsenormalization"),
    *("batchnormalization", "layernormalization", "batchedreduceadd", "batchedreduceprod"),
    *("cumsum", "batchmatmul", "adaptiveavgpool", "convolution3d", "convtranspose"),
}
"""Of kind HOST: sums of several terms, and functions that libraries approximate. All others round
each result once, as IEEE 754 says."""


def quantized_from_float(metadata: Metadata) -> tuple[Layer, ...]:
    """Return the layers that quantize float32 results of the host.

    A reference that adds in another order, or approximates a function otherwise, may differ there
    by one step.
    """
    uncertain: set[str] = set()
    found = []
    for step in metadata.steps:
        if step.opcode is None:
            continue
        read = {one.tensor.name for one in step.operands if one.role != "out"}
        written = [one.tensor for one in step.operands if one.role != "in"]
        depends = not uncertain.isdisjoint(read)
        opcode = OPCODES.get(step.opcode)  # None: the run stops there with an error
        is_rounded = step.opcode in _FUNCTIONS or (opcode is not None and opcode.kind in _SUMS)
        if any(tensor.elem == "float" for tensor in written):
            if depends or is_rounded:
                uncertain.update(tensor.name for tensor in written)
        elif depends and any(tensor.scale is not None for tensor in written):
            found += [metadata.layers[index] for index in step.layers]
    return tuple(found)
