"""Share of Int8, Int16 and float in a program: layers and multiplications."""

from __future__ import annotations

import math
from typing import Annotated

from nmpsim.bundle import Layer, Metadata, ProgramStep
from nmpsim.lir.opcodes import OPCODES, OpcodeKind, find_opcodes
from nmpsim.records import frozen

KINDS = {
    "i8": "Int8",
    "i16": "Int16",
    "float": "float",
    "conversion": "to or from float",
    "other": "other",
}
"""Element type of layers -> its name, in the order of tables."""
CONVERSIONS = find_opcodes(OpcodeKind.CONVERSION)
SOURCE, FILTER = 1, 2
"""Positions of the input and the weights among the operands of a host step."""


@frozen
class ElementTypeUsage:
    """Usage of one element type: the layers on device and host, and their multiplications."""

    kind: Annotated[str, "i8, i16, float, conversion or other: what the layers work on"]
    device: Annotated[int, "layers on the device"]
    host: Annotated[int, "layers on the host"]
    macs: Annotated[int, "their multiplications"]

    @property
    def layers(self) -> int:
        """Number of layers with the element type, on the device and on the host."""
        return self.device + self.host


def compute_element_type_usage(metadata: Metadata) -> tuple[ElementTypeUsage, ...]:
    """Compute how many layers and multiplications of a program use each element type."""
    steps = {step.layers[0]: step for step in metadata.steps if step.kind == "host"}
    found: dict[str, list[tuple[Layer, int]]] = {kind: [] for kind in KINDS}
    for layer in metadata.layers:
        step = steps.get(layer.index)
        found[find_element_type(layer, step)].append((layer, layer.macs or _host_macs(step)))
    return tuple(
        ElementTypeUsage(
            kind,
            device=sum(layer.placement == "device" for layer, _ in layers),
            host=sum(layer.placement == "host" for layer, _ in layers),
            macs=sum(macs for _, macs in layers),
        )
        for kind, layers in found.items()
        if layers
    )


def find_element_type(layer: Layer, step: ProgramStep | None) -> str:
    """Return the element type in which a layer computes, or ``conversion`` or ``other``.

    It is the type of the input on the host, and of the output on the device.
    """
    if layer.op in CONVERSIONS:
        return "conversion"
    sources = [o.tensor.elem for o in step.operands if o.role != "out"] if step else []
    elems = [*sources[:1], layer.output.elem]
    return next((elem for elem in elems if elem in KINDS), "other")


def is_unquantized(metadata: Metadata) -> bool:
    """Return whether a program has layers, none of which has the element type Int8 or Int16."""
    kinds = {share.kind for share in compute_element_type_usage(metadata)}
    return bool(kinds) and not kinds & {"i8", "i16"}


def _host_macs(step: ProgramStep | None) -> int:
    """Return the multiplications with weights of a host step."""
    if step is None or step.opcode is None or len(step.operands) <= FILTER:
        return 0
    result, source, weights = (step.operands[at].tensor for at in (0, SOURCE, FILTER))
    row = OPCODES.get(step.opcode)
    kind = row.kind if row else None
    if kind is OpcodeKind.CONVOLUTION:
        return math.prod(result.shape) * math.prod(weights.shape[1:])
    if kind in (OpcodeKind.FULLY_CONNECTED, OpcodeKind.PRODUCT):
        return math.prod(result.shape) * source.shape[-1]
    return 0
