"""What a bundle says about itself, besides its code and constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import attrs

from nmpsim.bundle import limits
from nmpsim.bundle.limits import Address, Barrier, ClippedSides, Line, Macs, ZeroPoint
from nmpsim.lir.names import display_names, operation_name
from nmpsim.records import frozen
from nmpsim.report.fields import NOT_IN_JSON, Before

SCHEMA: Final = "nmpsim-bundle-2"
"""Version of the metadata and of the descriptors; a reader accepts its own version only."""


UNSIGNED = 128
"""What uint8 is more than the Int8 that holds it."""
UNSIGNED_ELEMS = {"i8": ("ui8", UNSIGNED), "i16": ("ui16", 32768)}
"""Elements that hold unsigned ones -> those, and how much more they are."""


def is_same_shape(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether two shapes are equal, but for dimensions of 1."""
    return [dim for dim in shape if dim != 1] == [dim for dim in other if dim != 1]


@frozen
class Tensor:
    """A tensor in DRAM, contiguous and row-major."""

    name: str
    elem: str
    """Element kind as LIR has it (i8, i16, i32, float, ...)."""
    shape: tuple[int, ...]
    address: Address
    scale: float | None = None
    """Exact float32 scale; None if the tensor is not quantized."""
    offset: ZeroPoint | None = None

    def holds(self, shape: Sequence[int]) -> bool:
        """Whether a shape is this one's, but for dimensions of 1."""
        return is_same_shape(shape, self.shape)


def as_unsigned(tensor: Tensor) -> Tensor:
    """An Int8 or Int16 tensor as a user has it who has uint8 or uint16."""
    elem, more = UNSIGNED_ELEMS[tensor.elem]
    return attrs.evolve(tensor, elem=elem, offset=(tensor.offset or 0) + more)


@frozen
class OperatorMapping:
    """What became of one operation of the model's file that the program was imported from."""

    node: str
    """Its number in the file, its kind, and the tensor that it makes."""
    layers: Annotated[tuple[str, ...], limits.FUSED] = ()
    """LIR instructions that compute it; none if nothing is left to compute."""
    why: str = ""
    """Why it has none: what it was folded into, or that nothing moves."""


@frozen
class Normalization:
    """How the model's file says that pixels of 0 to 255 become values: less mean, by deviation."""

    input: str
    mean: Annotated[tuple[float, ...], limits.CHANNELS]
    """One for all channels, or one for each."""
    stddev: Annotated[tuple[float, ...], limits.CHANNELS]


@frozen
class Layer:
    """One LIR instruction that computes, with what was fused into it."""

    index: int
    name: str
    """Name of the LIR instruction whose output this is (the last one that was fused)."""
    number: Line
    """Number of that instruction in the LIR."""
    line: Line
    """Its line in the LIR text, 1-based; 0 if there is none."""
    op: str
    """Opcode of the instruction that the layer began with."""
    placement: Literal["device", "host"]
    output: Tensor
    operand: str
    """Name of the operand that holds the output, as the LIR prints it."""
    reason: str = ""
    """Why the host does it; empty on the device."""
    fused: Annotated[tuple[str, ...], limits.FUSED] = ()
    """Names of the LIR instructions that were fused, in order, when there are several."""
    barrier: Barrier | None = None
    """Number of the barrier that ends the layer on the device."""
    macs: Macs = 0
    """Multiplications with weights that the layer needs."""
    numerics: str = ""
    """Arithmetic profile that it follows; empty where none applies."""
    operation: str = ""
    """Common name of the operation, such as conv1x1; made of the opcode where it is empty."""
    display_name: Annotated[str, NOT_IN_JSON] = ""
    """Short name, derived from the names of all layers of its program."""

    @property
    def other_names(self) -> tuple[str, ...]:
        """Names that a user may give it besides its own."""
        return *self.fused, self.output.name


@frozen
class HostOperand:
    """An operand of a host operation: its role (in, out, inout) and its tensor."""

    role: Literal["in", "out", "inout"]
    tensor: Tensor


@frozen
class ProgramStep:
    """One step of a run: the cores start at ``entry``, or the host does one operation."""

    kind: Literal["device", "host"]
    layers: Annotated[tuple[int, ...], limits.LAYERS]
    """Indices of the layers that it computes."""
    entry: Address | None = None
    """Address where every core starts (device)."""
    opcode: str | None = None
    """LIR opcode (host)."""
    operands: Annotated[tuple[HostOperand, ...], limits.OPERANDS] = ()
    attributes: Annotated[Mapping[str, Any], limits.ATTRIBUTES] = attrs.field(factory=dict)
    numerics: str = "glow-int"
    """Arithmetic profile that the host follows."""
    clipped_sides: ClippedSides = 0
    """Sides of the result that the network clips (host), as a descriptor's ``clip_wanted``."""


def _with_display_names(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Return the layers with their display names and the names of their operations."""
    names = display_names([layer.name for layer in layers])
    return tuple(
        attrs.evolve(
            layer, display_name=name, operation=layer.operation or operation_name(layer.op)
        )
        for layer, name in zip(layers, names, strict=True)
    )


@frozen
class Metadata:
    """Everything a run needs that is not code, descriptors or constants."""

    program: str
    """Name of the LIR function."""
    source: str
    """File name of the LIR text."""
    numerics: str
    """Arithmetic profile that was asked for; each layer says which it follows."""
    device: Mapping[str, Any]
    """The device file's settings that the program was compiled for."""
    inputs: Annotated[tuple[Tensor, ...], limits.TENSORS]
    outputs: Annotated[tuple[Tensor, ...], limits.TENSORS]
    layers: Annotated[tuple[Layer, ...], limits.LAYERS] = attrs.field(converter=_with_display_names)
    steps: Annotated[tuple[ProgramStep, ...], limits.STEPS]
    unsigned: Annotated[tuple[str, ...], limits.TENSORS] = ()
    """Inputs and outputs that a user has as uint8 or uint16: values and offset 128 or 32768 above
    those held."""
    fates: Annotated[tuple[OperatorMapping, ...], limits.LAYERS] = ()
    """Of the operations of the model's file, in its order; none if the program was LIR."""
    normalizations: Annotated[tuple[Normalization, ...], limits.TENSORS] = ()
    """Of inputs that are images, as far as the model's file says it."""

    @property
    def schema(self) -> Annotated[Literal["nmpsim-bundle-2"], Before("program")]:
        """Version of the metadata."""
        return SCHEMA

    @property
    def user_inputs(self) -> tuple[Tensor, ...]:
        """The inputs as a user has them."""
        return tuple(map(self.user_tensor, self.inputs))

    @property
    def user_outputs(self) -> tuple[Tensor, ...]:
        """The outputs as a user has them."""
        return tuple(map(self.user_tensor, self.outputs))

    def user_tensor(self, tensor: Tensor) -> Tensor:
        """An input or output with the element and offset that a user has it in."""
        return as_unsigned(tensor) if tensor.name in self.unsigned else tensor

    @property
    def channel_order(self) -> str:
        """Of images, if nobody says it: as models have it, or as Glow has it for its programs."""
        return "RGB" if self.fates else "BGR"

    @property
    def display_names(self) -> Mapping[str, str]:
        """LIR instruction -> display name of its layer, where that is not the layer's full name."""
        return {
            name: layer.display_name
            for layer in self.layers
            for name in (layer.name, *layer.fused)
            if layer.display_name != layer.name
        }

    @property
    def origins(self) -> Mapping[str, str]:
        """LIR instruction -> the operation of the model's file that it comes from."""
        return {name: fate.node for fate in self.fates for name in fate.layers}
