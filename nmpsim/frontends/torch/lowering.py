"""The recorded run under construction as LIR, and what every operation's lowering asks of it.

PyTorch's images are NCHW, LIR's NHWC. A tensor is held in some order of its dimensions, and turned
only where an operation needs another one; so a permutation alone moves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import UNSIGNED
from nmpsim.diagnostics import Diagnostic, Place
from nmpsim.frontends.builder import Builder, Value, quantized
from nmpsim.frontends.torch.record import Call, Packed, Recorded, Tensor
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.nodes import TensorType

Array = npt.NDArray[Any]
Order = tuple[int, ...]
"""LIR's dimension i is PyTorch's dimension ``order[i]``."""
NHWC: Order = (0, 2, 3, 1)
PROFILES = {
    "fbgemm": "float-fbgemm",
    "onednn": "float-onednn",
    "qnnpack": "float-qnnpack",
    "x86": "float-fbgemm",  # of all that has no weights
}
"""Engine -> arithmetic profile."""
_ELEMS = {"quint8": "i8", "float32": "float"}


@attrs.frozen
class Result:
    """What a lowering has made of an operation: layers, or why there are none."""

    why: str = ""


VIEW = Result("a view of its input, nothing moves")


@attrs.frozen
class Held:
    """Where a tensor is."""

    value: Value
    order: Order

    @property
    def shape(self) -> tuple[int, ...]:
        """As PyTorch has it."""
        shape = [0] * len(self.order)
        for size, dimension in zip(self.value.shape, self.order, strict=True):
            shape[dimension] = size
        return tuple(shape)


def plain(rank: int) -> Order:
    """PyTorch's own order."""
    return tuple(range(rank))


class Lowering:
    """One run on its way to a module."""

    def __init__(self, recorded: Recorded, builder: Builder) -> None:
        self.builder = builder
        self.engine = recorded.engine
        self.place = Place(recorded.name)
        self.layer_numerics: dict[str, str] = {}
        """Layers with another profile than the engine's."""
        self._held: dict[int, Held] = {}
        self._turned: dict[tuple[int, Order], Value] = {}
        self._bound: dict[int, Value] = {}
        """Tensor -> output of the program that is not written yet."""
        self._outputs: dict[str, Value] = {}

    def bind(self, recorded: Recorded) -> frozenset[str]:
        """Inputs and outputs become the program's; the names of those that are uint8."""
        unsigned = set()
        for name, tensor in recorded.inputs:
            value = self.builder.variable(name, self.type_of(tensor))
            self.hold(tensor, value)
            if tensor.dtype == "quint8":
                unsigned.add(value.name)
        for name, tensor in recorded.outputs:
            value = self.builder.variable(name, self.type_of(tensor))
            self._outputs[name] = value
            self._bound.setdefault(tensor.number, value)
            if tensor.dtype == "quint8":
                unsigned.add(value.name)
        return frozenset(unsigned)

    def finish(self, recorded: Recorded) -> None:
        """Write outputs that no operation has written where they belong."""
        for name, tensor in recorded.outputs:
            target = self._outputs[name]
            held = self._held[tensor.number]
            if held.value.storage != target.storage:
                self._turn(held, plain(len(tensor.shape)), target, f"{target.name}_copy")

    def type_of(
        self, tensor: Tensor, shape: tuple[int, ...] | None = None, name: str = ""
    ) -> TensorType:
        """How a tensor is held: quint8 as Int8, with 128 less in values and zero point."""
        shape = tensor.shape if shape is None else shape
        if tensor.dtype not in _ELEMS or (tensor.dtype == "quint8") != (tensor.scale is not None):
            raise UnsupportedError(f"a tensor of {tensor.dtype}")
        if tensor.scale is None:
            return TensorType("float", shape)
        scale = float(np.float32(tensor.scale))
        if not 0 < scale < math.inf:
            raise UnsupportedError(f"a scale of {tensor.scale:g}")
        return quantized("i8", shape, scale, tensor.zero_point - UNSIGNED)

    def order_of(self, tensor: Tensor) -> Order:
        """The order in which a tensor is held; PyTorch's own if it is a constant."""
        held = self._held.get(tensor.number)
        return held.order if held else plain(len(tensor.shape))

    def value(self, tensor: Tensor, order: Order | None = None) -> Value:
        """A tensor that an operation reads, in PyTorch's order or the given one."""
        order = plain(len(tensor.shape)) if order is None else order
        held = self._held.get(tensor.number)
        if held is None:
            held = self._constant(tensor)
        if _moves_nothing(held, order):
            return self.builder.view(held.value, self._ordered(tensor, order))
        if (tensor.number, order) not in self._turned:
            name = f"{held.value.name}_turned"
            target = self.builder.buffer(f"{name}_res", self._ordered(tensor, order))
            self._turned[tensor.number, order] = self._turn(held, order, target, name)
        return self._turned[tensor.number, order]

    def hold(self, tensor: Tensor, value: Value, order: Order | None = None) -> None:
        """What a tensor became."""
        self._held[tensor.number] = Held(value, order or plain(len(tensor.shape)))

    def target(self, call: Call, order: Order | None = None, result: int = 0) -> Value:
        """Where an operation writes its result; an output's is the program's own if it can be."""
        tensor = call.results[result]
        order = plain(len(tensor.shape)) if order is None else order
        type = self._ordered(tensor, order)
        bound = self._bound.pop(tensor.number, None)
        if bound and _moves_nothing(Held(bound, plain(len(tensor.shape))), order):
            value = self.builder.view(bound, type)
        else:
            value = self.builder.buffer(f"{call.name}_res", type)
        self.hold(tensor, value, order)
        return value

    def temporary(self, call: Call, what: str, type: TensorType) -> Value:
        """Room for what lies between an operation's instructions."""
        return self.builder.buffer(f"{call.name}_{what}", type)

    def view(self, value: Value, shape: tuple[int, ...]) -> Value:
        """All of a tensor with another shape."""
        if math.prod(shape) != math.prod(value.shape):
            raise UnsupportedError(f"shape {list(value.shape)} cannot be {list(shape)}")
        return self.builder.view(value, attrs.evolve(value.type, shape=shape))

    def add(self, opcode: str, call: Call, operands: Sequence[Value], **given: Any) -> str:
        """An instruction, named after the module. Its name."""
        return self.builder.add(opcode, call.name, operands, **given)

    def add_before(
        self, opcode: str, what: str, call: Call, operands: Sequence[Value], **given: Any
    ) -> str:
        """An instruction on the way to the result that has the module's name."""
        return self.builder.add(opcode, f"{call.name}_{what}", operands, **given)

    def follow(self, name: str, engine: str) -> None:
        """Let a layer follow another engine's arithmetic than most."""
        if PROFILES[engine] != PROFILES[self.engine]:
            self.layer_numerics[name] = PROFILES[engine]

    def broadcast(self, call: Call, tensor: Tensor, order: Order) -> Value:
        """An operand as large as the result, in the given order; copied there if it is smaller."""
        shape = tuple(call.results[0].shape[dimension] for dimension in order)
        rank = len(order)
        if len(tensor.shape) == rank:
            value = self.value(tensor, order)
        else:
            wide = (1,) * (rank - len(tensor.shape)) + tensor.shape
            lifted = Held(self.view(self.value(tensor), wide), plain(rank))
            turned = tuple(wide[dimension] for dimension in order)
            if not _moves_nothing(lifted, order):
                raise UnsupportedError(f"{list(tensor.shape)} broadcast to {list(shape)}")
            value = self.view(lifted.value, turned)
        if value.shape == shape:
            return value
        own = value.shape
        for axis in reversed(range(rank)):
            if own[axis] != shape[axis]:
                own = (*own[:axis], shape[axis], *own[axis + 1 :])
                wider = self.temporary(call, "broadcast", attrs.evolve(value.type, shape=own))
                self.insert(call, wider, value, (0,) * rank, shape[axis], axis)
                value = wider
        return value

    def insert(
        self,
        call: Call,
        target: Value,
        part: Value,
        offsets: Sequence[int],
        count: int = 1,
        axis: int = 0,
    ) -> None:
        """Put a part into a tensor that is written piece by piece."""
        if not any(offsets):
            self.builder.add("touch", f"{call.name}_touch", (target,))
        given = {"Offsets": tuple(offsets), "Count": count, "Axis": axis}
        self.add_before("inserttensor", "part", call, (target, part), **given)

    def _ordered(self, tensor: Tensor, order: Order) -> TensorType:
        return self.type_of(tensor, tuple(tensor.shape[dimension] for dimension in order))

    def _constant(self, tensor: Tensor) -> Held:
        if tensor.values is None:
            raise UnsupportedError("a tensor whose memory another operation has changed")
        values = tensor.values
        if tensor.dtype == "quint8":
            values = (values.astype(np.int16) - UNSIGNED).astype(np.int8)
        name = tensor.name or f"constant_{tensor.number}"
        self.hold(tensor, self.builder.constant(name, values, self.type_of(tensor)))
        return self._held[tensor.number]

    def _turn(self, held: Held, order: Order, target: Value, name: str) -> Value:
        shuffle = tuple(held.order.index(dimension) for dimension in order)
        if _moves_nothing(held, order):
            source = self.builder.view(held.value, target.type)
            self.builder.add("copy", name, (target, source))
        else:
            self.builder.add("transpose", name, (target, held.value), Shuffle=shuffle)
        return target


def unsupported(call: Call, why: UnsupportedError, place: Place) -> Diagnostic:
    """The finding that an operation cannot be compiled."""
    message = f"operation {call.node} cannot be compiled"
    return Diagnostic("MODEL002", message, place, found=str(why))


def _moves_nothing(held: Held, order: Order) -> bool:
    """Whether both orders have the dimensions larger than 1 one behind the other alike."""
    shape = held.shape
    return [d for d in held.order if shape[d] > 1] == [d for d in order if shape[d] > 1]


def weights_of(call: Call) -> Packed:
    """The weights of a layer."""
    packed = call.arguments.get("packed_weight", call.arguments.get("W_prepack"))
    if not isinstance(packed, Packed):
        raise UnsupportedError("weights of a kind that nmpsim does not know")
    return packed


def tensor_of(call: Call, name: str, *dtypes: str) -> Tensor:
    """An argument that is a tensor of one of these types; quint8 if none is given."""
    tensor = call.arguments.get(name)
    if not isinstance(tensor, Tensor):
        raise UnsupportedError(f"{name} is no tensor")
    if tensor.dtype not in (dtypes or ("quint8",)):
        raise UnsupportedError(f"{name} is {tensor.dtype}")
    return tensor
