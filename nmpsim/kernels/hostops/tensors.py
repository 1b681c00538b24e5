"""What host operations take and give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.overshoots import StageOvershoot
from nmpsim.records import frozen

AnyArray: TypeAlias = npt.NDArray[Any]
FloatArray: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int64]
Attributes: TypeAlias = Mapping[str, Any]

_EXACT = 1 << 23
"""An integer up to this less one of 16 bits is exact in float32."""


@frozen(eq=False)
class HostTensor:
    """Values in their logical shape; a quantized value stands for ``scale * (q - offset)``.

    The dtype says the element kind. ``scale`` is exact in float32. The defaults make an Int8 or
    Int16 tensor a plain integer one.
    """

    values: AnyArray
    scale: float = 1.0
    offset: int = 0
    quantized: bool = False
    numerics: str = "glow-int"
    """Whose arithmetic the operation follows, as ``--numerics`` has it."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element kind."""
        return self.values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical shape."""
        return self.values.shape

    @property
    def scale32(self) -> np.float32:
        """The scale as the float32 that formulas use."""
        return np.float32(self.scale)

    @property
    def is_float(self) -> bool:
        """Whether elements are float32."""
        return self.dtype == np.float32

    @property
    def is_real(self) -> bool:
        """Whether elements are floating-point numbers of any width."""
        return self.dtype.kind == "f"

    @property
    def by_integers(self) -> bool:
        """Whether its arithmetic is libjit's, in integers; the Interpreter's is in float32."""
        return self.dtype == np.int8 and self.numerics != "glow-float"

    def centered(self) -> IntArray:
        """``q - offset`` in 64 bits."""
        return self.values.astype(np.int64) - np.int64(self.offset)

    def reals(self) -> FloatArray:
        """``fl(scale * (q - offset))``; for float32 elements the values themselves."""
        if self.is_float:
            return self.values
        if self.dtype.kind == "i" and self.dtype.itemsize <= 2 and abs(self.offset) <= _EXACT:
            centered = np.subtract(self.values, np.float32(self.offset), dtype=np.float32)
        else:
            centered = self.centered().astype(np.float32)
        centered *= self.scale32
        return centered


@frozen(eq=False)
class Clipped:
    """The values that a clip to an integer range has changed."""

    places: IntArray
    """[n] row-major, ascending"""
    exact: IntArray
    """[n] what they were"""

    @classmethod
    def of(cls, values: IntArray, low: int, high: int) -> Clipped:
        """Those of int64 ``values``."""
        flat = values.reshape(-1)
        places = np.flatnonzero((flat < low) | (flat > high))
        return cls(places, flat[places])


NONE_CLIPPED = Clipped(np.zeros(0, np.int64), np.zeros(0, np.int64))


@frozen(eq=False)
class HostResult:
    """New contents of output operands, by operand index.

    Of an operation that clips to an integer range ``clipped`` says what the clip has changed, so
    that the caller can count saturation.
    """

    outputs: Mapping[int, AnyArray]
    clipped: Mapping[int, Clipped] = attrs.field(factory=dict)
    overshoots: Sequence[StageOvershoot] = ()
    """Of the stages before the result."""

    @property
    def unclipped(self) -> Mapping[int, IntArray]:
        """int64 values before that clip, of operations that have one."""
        return {index: self._unclipped(index) for index in self.clipped}

    def _unclipped(self, index: int) -> IntArray:
        values, changed = self.outputs[index].astype(np.int64), self.clipped[index]
        values.reshape(-1)[changed.places] = changed.exact
        return values


class UnsupportedHostOp(ValueError):  # noqa: N818 - it names a limit, not a fault
    """The host does not know this operation, or not on these element kinds or attributes."""

    def __init__(self, opcode: str, reason: str) -> None:
        super().__init__(f"{opcode}: {reason}")
        self.opcode = opcode
        self.reason = reason


class HostValueError(ValueError):
    """Values in an operand that the operation cannot take, such as an index out of range."""


Implementation: TypeAlias = Callable[[Sequence[HostTensor], Attributes], HostResult]
"""Operands in print order and attributes -> result; never writes into its operands."""


def whole(values: AnyArray, dest: HostTensor) -> HostResult:
    """A result for operand 0 that needs no clip; cast to the dtype of ``dest``, always a copy."""
    return HostResult({0: np.array(values, dtype=dest.dtype, order="C").reshape(dest.shape)})


def clipped(values: IntArray, dest: HostTensor) -> HostResult:
    """A result for operand 0: int64 ``values`` saturated to the integer range of ``dest``."""
    wide = np.asarray(values)
    if wide.shape != dest.shape:
        wide = np.broadcast_to(wide, dest.shape)
    low, high = limits_of(dest.dtype)
    least = np.minimum.reduce(wide, None, initial=low)
    most = np.maximum.reduce(wide, None, initial=high)
    if least == low and most == high:
        return HostResult({0: wide.astype(dest.dtype, order="C")}, {0: NONE_CLIPPED})
    narrow = np.asarray(np.clip(wide, low, high)).astype(dest.dtype, order="C")
    return HostResult({0: narrow}, {0: Clipped.of(wide, low, high)})


@cache
def name_of(dtype: np.dtype[Any]) -> str:
    """The type's name, likewise."""
    return dtype.name


@cache
def limits_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The least and the largest value of an integer type; NumPy works them out each time."""
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def checked_indices(opcode: str, indices: AnyArray, limit: int) -> IntArray:
    """Indices as int64, if all are at least 0 and below ``limit``."""
    wide = indices.astype(np.int64)
    outside = wide[(wide < 0) | (wide >= limit)]
    if outside.size:
        raise HostValueError(f"{opcode}: index {outside.flat[0]} is not within 0 to {limit - 1}")
    return wide
