"""Metadata of a bundle: its tensors, layers and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any, Final, Literal

import attrs

from nmpsim.bundle import limits
from nmpsim.bundle.limits import (
    Address,
    Barrier,
    ClippedSides,
    ElementIndex,
    Line,
    Macs,
    Pad,
    ZeroPoint,
)
from nmpsim.lir.names import get_operation_name, make_display_names
from nmpsim.records import frozen
from nmpsim.report.fields import NOT_IN_JSON, OMITTED_IF_EMPTY, WrittenBefore

SCHEMA: Final = "nmpsim-bundle-4"
"""Schema of the metadata and descriptors; a reader accepts only its own version.

The number rises with every change, also if a field is added."""


UNSIGNED = 128
"""Difference between a uint8 value and the Int8 value that stores it."""
UNSIGNED_ELEMS = {"i8": ("ui8", UNSIGNED), "i16": ("ui16", 32768)}
"""Element type -> the unsigned type that it can store, and the difference of their values."""


def is_same_shape(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether two shapes are equal if dimensions of size 1 are ignored."""
    return [dim for dim in shape if dim != 1] == [dim for dim in other if dim != 1]


@frozen
class Tensor:
    """Tensor in DRAM: name, type, shape, address, scale and offset."""

    name: str
    elem: str
    """Element type, as in LIR: i8, i16, i32, float, ..."""
    shape: tuple[int, ...]
    address: Address
    scale: float | None = None
    """Exact float32 scale; None if the tensor is not quantized."""
    offset: ZeroPoint | None = None

    def accepts_shape(self, shape: Sequence[int]) -> bool:
        """Return whether a shape equals the tensor's if dimensions of size 1 are ignored."""
        return is_same_shape(shape, self.shape)


def make_unsigned_tensor(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor with the unsigned element type and the offset shifted to match."""
    elem, more = UNSIGNED_ELEMS[tensor.elem]
    return attrs.evolve(tensor, elem=elem, offset=(tensor.offset or 0) + more)


@frozen
class OperatorMapping:
    """Mapping of an imported model's operation to the LIR instructions that compute it."""

    node: str
    """Number, kind and result of the operation in the file."""
    layers: Annotated[tuple[str, ...], limits.FUSED] = ()
    """LIR instructions that compute the operation; empty if nothing is left to compute."""
    why: str = ""
    """Why there are none, such as the operation into which it was folded."""


@frozen
class Normalization:
    """Normalization of an image input, with the mean and standard deviation of its channels."""

    input: str
    mean: Annotated[tuple[float, ...], limits.CHANNELS]
    """Mean of all channels, or of each channel."""
    stddev: Annotated[tuple[float, ...], limits.CHANNELS]


@frozen
class LayerClaim:
    """Claim in the metadata that a device layer is one operation on whole tensors.

    The device runs the layer as one kernel call if its instructions prove the claim.
    """

    inputs: Annotated[tuple[Tensor, ...], limits.OPERANDS]
    """Tensors that the operation reads, without its constants, in the order of its operands."""
    pad_top: Pad = 0
    """Rows of padding above the input of a window."""
    pad_left: Pad = 0
    """Columns of padding left of the input of a window."""


@frozen
class OwnedResults:
    """Results that instructions of a layer own, if several cores of a chain compute the same ones.

    Counters of elements and saturated values include each result once, for its owner.
    """

    descriptor: Address
    """Address of the first descriptor; the range holds up to that of the layer's next range."""
    begin: ElementIndex
    """Index in the layer's output of the first owned result."""
    end: ElementIndex
    """Index after that of the last owned result."""


@frozen
class Layer:
    """Layer of a program: one LIR instruction with the activations fused into it."""

    index: int
    name: str
    """Name of the LIR instruction whose output the layer computes (the last fused one)."""
    number: Line
    """Number of that instruction in the LIR."""
    line: Line
    """Line of that instruction in the LIR text, 1-based; 0 if there is none."""
    op: str
    """Opcode of the layer's first instruction."""
    placement: Literal["device", "host"]
    output: Tensor
    operand: str
    """Name of the operand that receives the output, as printed in the LIR."""
    reason: str = ""
    """Why the layer runs on the host; empty on the device."""
    fused: Annotated[tuple[str, ...], limits.FUSED] = ()
    """Names of the fused LIR instructions in order; empty if there is only one."""
    barrier: Barrier | None = None
    """Number of the barrier that ends the layer on the device."""
    macs: Macs = 0
    """Multiplications of the layer on the MAC array."""
    numerics: str = ""
    """Numerics profile; empty if all profiles give the same result."""
    claim: LayerClaim | None = None
    """Claim that the layer is one operation; None on the host."""
    in_scratchpads: Annotated[bool, OMITTED_IF_EMPTY] = False
    """Whether the output stays in scratchpads, so that it is never completely in DRAM."""
    owned: Annotated[tuple[OwnedResults, ...], limits.OWNED_RANGES, OMITTED_IF_EMPTY] = ()
    """Results that instructions own; empty if no result is computed several times."""
    operation: str = ""
    """Common name of the operation, such as conv1x1; derived from the opcode if empty."""
    display_name: Annotated[str, NOT_IN_JSON] = ""
    """Short unique name, derived from the names of all layers."""

    @property
    def other_names(self) -> tuple[str, ...]:
        """Other names of the layer: fused instructions and the output tensor."""
        return *self.fused, self.output.name


def list_chains(layers: Sequence[Layer]) -> tuple[tuple[Layer, ...], ...]:
    """Return the chains of a program: consecutive device layers that end at the same barrier."""
    groups = (tuple(group) for _, group in groupby(layers, lambda layer: layer.barrier))
    return tuple(group for group in groups if len(group) > 1 and group[0].barrier is not None)


@frozen
class HostOperand:
    """Operand of a host operation: its tensor, and whether it is read or written."""

    role: Literal["in", "out", "inout"]
    tensor: Tensor


@frozen
class ProgramStep:
    """Step of a program: code that all cores run, or one host operation."""

    kind: Literal["device", "host"]
    layers: Annotated[tuple[int, ...], limits.LAYERS]
    """Indices of the layers that the step computes."""
    entry: Address | None = None
    """Address at which all cores start (device)."""
    opcode: str | None = None
    """LIR opcode (host)."""
    operands: Annotated[tuple[HostOperand, ...], limits.OPERANDS] = ()
    attributes: Annotated[Mapping[str, Any], limits.ATTRIBUTES] = attrs.field(factory=dict)
    numerics: str = "glow-int"
    """Numerics profile (host)."""
    clipped_sides: ClippedSides = 0
    """Sides of the result that the network clips, as bits of ``clip_wanted`` (host)."""


def _with_display_names(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Return the layers with their display names and the names of their operations."""
    names = make_display_names([layer.name for layer in layers])
    return tuple(
        attrs.evolve(
            layer, display_name=name, operation=layer.operation or get_operation_name(layer.op)
        )
        for layer, name in zip(layers, names, strict=True)
    )


@frozen
class Metadata:
    """Metadata of a bundle: its inputs, outputs, layers and steps."""

    program: str
    """Name of the LIR function."""
    source: str
    """File name of the LIR text."""
    numerics: str
    """Requested numerics profile; each layer names the one that it follows."""
    device: Mapping[str, Any]
    """Settings of the device for which the program was compiled."""
    inputs: Annotated[tuple[Tensor, ...], limits.TENSORS]
    outputs: Annotated[tuple[Tensor, ...], limits.TENSORS]
    layers: Annotated[tuple[Layer, ...], limits.LAYERS] = attrs.field(converter=_with_display_names)
    steps: Annotated[tuple[ProgramStep, ...], limits.STEPS]
    unsigned: Annotated[tuple[str, ...], limits.TENSORS] = ()
    """Inputs and outputs that are uint8 or uint16 for the user: their values and offsets are 128 or
    32768 larger than those stored."""
    operators: Annotated[tuple[OperatorMapping, ...], limits.LAYERS] = ()
    """Mapping of each operation of the model's file; empty if the program was LIR."""
    normalizations: Annotated[tuple[Normalization, ...], limits.TENSORS] = ()
    """Normalization of inputs that are images, if the model's file contains it."""
    states: Annotated[tuple[Tensor, ...], limits.TENSORS, OMITTED_IF_EMPTY] = ()
    """Initial values, in read-only memory, of the tensors that are both inputs and outputs and that
    a run leaves to the next one."""
    formulas: Annotated[str, OMITTED_IF_EMPTY] = ""
    """Formulas that replace those of device profiles, as stored text; empty if there are none."""

    @property
    def numerics_label(self) -> str:
        """Requested numerics profile as reports show it: with the digest of custom formulas."""
        from nmpsim.bundle.formulas import find_custom_formulas  # few programs have any

        custom = find_custom_formulas(self.formulas) if self.formulas else None
        return self.numerics if custom is None else custom.label

    @property
    def schema(self) -> Annotated[Literal["nmpsim-bundle-4"], WrittenBefore("program")]:
        """Name and version of the metadata's schema."""
        return SCHEMA

    @property
    def user_inputs(self) -> tuple[Tensor, ...]:
        """Inputs with the element types of the user's data, without state tensors."""
        return self._list_user_tensors(self.inputs)

    @property
    def user_outputs(self) -> tuple[Tensor, ...]:
        """Outputs with the element types of the user's data, without state tensors."""
        return self._list_user_tensors(self.outputs)

    @property
    def user_states(self) -> tuple[Tensor, ...]:
        """State tensors with the element types of the user's data."""
        return tuple(self.user_tensor(one) for one in self.inputs if one.name in self._state_names)

    @property
    def _state_names(self) -> frozenset[str]:
        return frozenset(one.name for one in self.states)

    def _list_user_tensors(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        states = self._state_names
        return tuple(self.user_tensor(one) for one in tensors if one.name not in states)

    def user_tensor(self, tensor: Tensor) -> Tensor:
        """Return an input or output tensor with the element type and offset of the user's data."""
        return make_unsigned_tensor(tensor) if tensor.name in self.unsigned else tensor

    @property
    def channel_order(self) -> str:
        """Default channel order of images: RGB for imported models, else BGR."""
        return "RGB" if self.operators else "BGR"

    @property
    def display_names(self) -> Mapping[str, str]:
        """Display name of each LIR instruction by its name, if the two names differ."""
        return {
            name: layer.display_name
            for layer in self.layers
            for name in (layer.name, *layer.fused)
            if layer.display_name != layer.name
        }

    @property
    def layer_numerics(self) -> Mapping[str, str]:
        """Numerics profile of each LIR instruction by its name, if other than ``numerics``."""
        return {
            name: layer.numerics
            for layer in self.layers
            for name in (layer.name, *layer.fused)
            if layer.numerics not in ("", self.numerics)
        }

    @property
    def origins(self) -> Mapping[str, str]:
        """Operation of the imported model for each LIR instruction, by the instruction's name."""
        return {name: operator.node for operator in self.operators for name in operator.layers}
