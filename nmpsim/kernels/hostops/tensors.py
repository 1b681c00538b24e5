"""Operands and results of host operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, signature
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

DtypeNames: TypeAlias = frozenset[str]
FLOAT: DtypeNames = frozenset({"float32"})
INT8: DtypeNames = frozenset({"int8"})
INT16: DtypeNames = frozenset({"int16"})
NARROW = INT8 | INT16
QUANTIZED = NARROW | {"int32"}
BIAS = QUANTIZED | {"int64"}
INDEX: DtypeNames = frozenset({"int32", "int64"})
BOOL: DtypeNames = frozenset({"bool"})
REAL = FLOAT | NARROW
NUMBER = REAL | INDEX
ANY = NUMBER | BOOL | {"uint8", "float64", "float16", "uint16"}

_EXACT = 1 << 23
"""An integer up to this minus one of 16 bits is exact in float32."""


@frozen(eq=False)
class HostTensor:
    """Array with the scale and offset of its values: ``real = scale * (q - offset)``.

    ``scale`` is exact in float32. The defaults make an Int8 or Int16 tensor a plain integer one.
    """

    values: AnyArray
    scale: float = 1.0
    offset: int = 0
    quantized: bool = False
    numerics: str = "glow-int"
    """Numerics profile that the operation follows, as ``--numerics`` names it."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype of ``values``."""
        return self.values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of ``values``."""
        return self.values.shape

    @property
    def scale32(self) -> np.float32:
        """``scale`` as a float32 scalar."""
        return np.float32(self.scale)

    @property
    def is_float32(self) -> bool:
        """Whether the dtype is float32."""
        return self.dtype == np.float32

    @property
    def is_float(self) -> bool:
        """Whether the dtype is a floating-point type."""
        return self.dtype.kind == "f"

    @property
    def uses_integers(self) -> bool:
        """Whether operations on the tensor use libjit's integer arithmetic."""
        return self.dtype == np.int8 and self.numerics != "glow-float"

    def subtract_offset(self) -> IntArray:
        """Return ``q - offset`` in int64."""
        return self.values.astype(np.int64) - np.int64(self.offset)

    def dequantize(self) -> FloatArray:
        """Return the real values ``fl(scale * (q - offset))`` in float32."""
        if self.is_float32:
            return self.values
        if self.dtype.kind == "i" and self.dtype.itemsize <= 2 and abs(self.offset) <= _EXACT:
            centered = np.subtract(self.values, np.float32(self.offset), dtype=np.float32)
        else:
            centered = self.subtract_offset().astype(np.float32)
        centered *= self.scale32
        return centered


@frozen(eq=False)
class SaturatedValues:
    """Elements of a result that saturate: their positions and their values before saturation."""

    indices: IntArray
    """[n] row-major indices, ascending."""
    exact: IntArray
    """[n] values before they were limited."""

    @classmethod
    def find_outside(cls, values: IntArray, low: int, high: int) -> SaturatedValues:
        """Return the positions and values of elements outside ``low`` to ``high``."""
        flat = values.reshape(-1)
        indices = np.flatnonzero((flat < low) | (flat > high))
        return cls(indices, flat[indices])


NONE_CLIPPED = SaturatedValues(np.zeros(0, np.int64), np.zeros(0, np.int64))


@frozen(eq=False)
class HostResult:
    """Results of a host operation by operand index, with the exact values of saturated elements."""

    outputs: Mapping[int, AnyArray]
    clipped: Mapping[int, SaturatedValues] = attrs.field(factory=dict)
    """For operations that saturate: the changed values, so that the caller can count them."""
    overshoots: Sequence[StageOvershoot] = ()
    """Overshoots of the stages before the result."""

    @property
    def unclipped(self) -> Mapping[int, IntArray]:
        """Saturating results as int64 before saturation, by operand index."""
        return {index: self._unclipped(index) for index in self.clipped}

    def _unclipped(self, index: int) -> IntArray:
        values, changed = self.outputs[index].astype(np.int64), self.clipped[index]
        values.reshape(-1)[changed.indices] = changed.exact
        return values


class UnsupportedHostOp(ValueError):  # noqa: N818 - it names a limit, not a fault
    """Exception for an operation, dtype or attribute that the host does not support."""

    def __init__(self, opcode: str, reason: str) -> None:
        super().__init__(f"{opcode}: {reason}")
        self.opcode = opcode
        self.reason = reason


class HostValueError(ValueError):
    """Exception for an invalid value of an operand, such as an index out of range."""


Implementation: TypeAlias = Callable[..., "AnyArray | Outputs | HostResult"]
"""(*operands in print order, attributes=) -> result, for :func:`make_result`; never writes into its
operands."""
Outputs: TypeAlias = Mapping[int, AnyArray]
"""Results by operand index."""


def cast_like(values: AnyArray, dest: HostTensor) -> AnyArray:
    """Return a copy of ``values`` with the dtype and shape of ``dest``."""
    return np.array(values, dtype=dest.dtype, order="C").reshape(dest.shape)


def make_cast_result(values: AnyArray, dest: HostTensor) -> HostResult:
    """Cast values to the dtype and shape of ``dest``; return them as the result of operand 0."""
    return HostResult({0: cast_like(values, dest)})


def make_saturated_result(values: IntArray, dest: HostTensor) -> HostResult:
    """Saturate int64 values to the dtype of ``dest``; return them as the result of operand 0."""
    wide = np.asarray(values)
    if wide.shape != dest.shape:
        wide = np.broadcast_to(wide, dest.shape)
    low, high = get_integer_limits(dest.dtype)
    least = np.minimum.reduce(wide, None, initial=low)
    most = np.maximum.reduce(wide, None, initial=high)
    if least == low and most == high:
        return HostResult({0: wide.astype(dest.dtype, order="C")}, {0: NONE_CLIPPED})
    narrow = np.asarray(np.clip(wide, low, high)).astype(dest.dtype, order="C")
    return HostResult({0: narrow}, {0: SaturatedValues.find_outside(wide, low, high)})


def make_result(
    values: AnyArray | Outputs | HostResult, operands: Sequence[HostTensor]
) -> HostResult:
    """Convert the return value of an implementation to a host result.

    An array is the result of operand 0: int64 values are saturated to a narrower integer type.
    Other values are cast.
    """
    if isinstance(values, HostResult):
        return values
    if isinstance(values, Mapping):
        return HostResult({index: cast_like(one, operands[index]) for index, one in values.items()})
    dest = operands[0]
    is_wide = values.dtype == np.int64 and dest.dtype.kind == "i" and dest.dtype.itemsize < 8
    return make_saturated_result(values, dest) if is_wide else make_cast_result(values, dest)


def wrap_array_function(function: Callable[..., AnyArray]) -> Implementation:
    """Return an implementation that calls a function of arrays and attributes and casts its result.

    The function takes the arrays of the operands after Dest, and attributes as keywords:
    ``batch_dims`` is BatchDims.
    """
    names = {
        name: name.title().replace("_", "")
        for name, parameter in signature(function).parameters.items()
        if parameter.kind is Parameter.KEYWORD_ONLY
    }

    @wraps(function)
    def run(dest: HostTensor, *sources: HostTensor, attributes: Attributes) -> HostResult:
        options = {name: attributes[attribute] for name, attribute in names.items()}
        return make_cast_result(function(*(source.values for source in sources), **options), dest)

    return run


@cache
def get_dtype_name(dtype: np.dtype[Any]) -> str:
    """Return ``dtype.name`` from a cache, because NumPy computes the name at each access."""
    return dtype.name


@cache
def get_integer_limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the smallest and largest value of an integer dtype."""
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def check_indices(opcode: str, indices: AnyArray, limit: int) -> IntArray:
    """Return indices as int64; raise HostValueError unless all are in 0 to ``limit - 1``."""
    wide = indices.astype(np.int64)
    outside = wide[(wide < 0) | (wide >= limit)]
    if outside.size:
        raise HostValueError(f"{opcode}: index {outside.flat[0]} is not within 0 to {limit - 1}")
    return wide
