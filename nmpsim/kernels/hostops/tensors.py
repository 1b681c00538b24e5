"""What host operations take and give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

AnyArray: TypeAlias = npt.NDArray[Any]
FloatArray: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int64]
Attributes: TypeAlias = Mapping[str, Any]


@attrs.frozen(eq=False)
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
        return self.scale32 * self.centered().astype(np.float32)


@attrs.frozen(eq=False)
class HostResult:
    """New contents of output operands, by operand index.

    ``unclipped`` holds, for an operation that clips to an integer range, the int64 value before
    that clip, so that the caller can count saturation.
    """

    outputs: Mapping[int, AnyArray]
    unclipped: Mapping[int, IntArray] = attrs.field(factory=dict)


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
    wide = np.broadcast_to(values, dest.shape)
    limits = np.iinfo(dest.dtype)
    narrow = np.empty(dest.shape, dest.dtype)
    np.clip(wide, limits.min, limits.max, out=narrow, casting="unsafe")
    return HostResult({0: narrow}, {0: np.ascontiguousarray(wide)})


def checked_indices(opcode: str, indices: AnyArray, limit: int) -> IntArray:
    """Indices as int64, if all are at least 0 and below ``limit``."""
    wide = indices.astype(np.int64)
    outside = wide[(wide < 0) | (wide >= limit)]
    if outside.size:
        raise HostValueError(f"{opcode}: index {outside.flat[0]} is not within 0 to {limit - 1}")
    return wide
