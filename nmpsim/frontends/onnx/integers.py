"""Operations on integers: what ONNX calls QLinear, whatever form the file has them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.frontends.onnx.model import Array, Node
from nmpsim.frontends.unsupported import NotConstantError, UnsupportedError

Constants = Mapping[str, Array]
LIMITS = {
    name: (int(np.iinfo(name).min), int(np.iinfo(name).max))
    for name in ("int8", "uint8", "int16", "uint16", "int32")
}
"""Types of quantized tensors -> their smallest and largest integer."""


@attrs.frozen(eq=False)
class Quantized:
    """A tensor, and what its integers stand for."""

    name: str
    dtype: str
    """As NumPy calls it; empty if neither a zero point nor the values tell."""
    scales: npt.NDArray[np.float32]
    """[1], or one for each index of a dimension"""
    zero_points: npt.NDArray[np.int64]
    """As many as scales."""

    @property
    def scale(self) -> float:
        """The one scale."""
        self._has_one_scale()
        return float(self.scales[0])

    @property
    def zero_point(self) -> int:
        """The one zero point, as the file has it."""
        self._has_one_scale()
        return int(self.zero_points[0])

    def same_as(self, other: Quantized) -> bool:
        """Whether the same integer is the same number."""
        return (
            self.dtype == other.dtype
            and np.array_equal(self.scales, other.scales)
            and np.array_equal(self.zero_points, other.zero_points)
        )

    def _has_one_scale(self) -> None:
        if self.scales.size != 1:
            raise UnsupportedError(f"{self.name} has {self.scales.size} scales")


@attrs.frozen(eq=False)
class IntegerOperation:
    """An operation of the file that works on integers."""

    node: Node
    kind: str
    """As ONNX calls the real operation: Conv."""
    sources: tuple[Quantized, ...]
    result: Quantized
    bias: str = ""
    """Name of an int32 constant on the scale of the sum."""
    limits: tuple[float, float | None] | None = None
    """Of a ReLU or clip after it, real numbers; None above: no limit."""
    reals: tuple[Node, ...] = ()
    """Where ONNX Runtime computes it in float32: these nodes, from conversion to conversion."""

    @property
    def index(self) -> int:
        """The node's number in the file."""
        return self.node.index

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the tensors that it reads, but the bias."""
        return tuple(source.name for source in self.sources)

    @property
    def makes(self) -> tuple[str, ...]:
        """Name of the tensor that it makes."""
        return (self.result.name,)

    @property
    def label(self) -> str:
        """For a reader: number, kind, and the tensor that it makes."""
        return self.node.label

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Those of the node."""
        return self.node.attributes


def quantized(constants: Constants, name: str, scale: str, zero_point: str) -> Quantized:
    """A tensor by the names of its scale and zero point, which are constants."""
    given_scales = constant(constants, scale, "a scale")
    if given_scales.ndim > 1 and given_scales.size > 1:
        raise UnsupportedError(f"blocks of scales {list(given_scales.shape)}")
    scales = given_scales.reshape(-1)
    dtype = str(constant(constants, name).dtype) if name in constants else ""
    zeros = np.zeros(scales.size, np.int64)
    if zero_point:
        given = constant(constants, zero_point)
        dtype, zeros = str(given.dtype), given.reshape(-1)
    if dtype and dtype not in LIMITS:
        raise UnsupportedError(f"{name} is {dtype}")
    if scales.dtype != np.float32 or zeros.size not in (1, scales.size) or scales.size == 0:
        raise UnsupportedError(f"{scales.size} scales of {scales.dtype}, {zeros.size} zero points")
    if not (np.isfinite(scales).all() and (scales > 0).all()):
        raise UnsupportedError(f"a scale of {name} that is not finite and above 0")
    wide = np.broadcast_to(zeros.astype(np.int64), scales.shape)
    return Quantized(name, dtype, scales.astype(np.float32), wide)


def plain_integers(name: str, dtype: str) -> Quantized:
    """Integers that stand for themselves."""
    return Quantized(name, dtype, np.ones(1, np.float32), np.zeros(1, np.int64))


def constant(constants: Constants, name: str, what: str = "an input") -> Array:
    """A tensor's values, which are known; ``what`` it is for a reader if it has no name."""
    if name not in constants:
        raise NotConstantError(name, what)
    values = constants[name]
    if values.dtype == object:
        raise UnsupportedError(f"{name} is {values.item()}")
    return values


@attrs.frozen
class _Form:
    """Where an operator with scales among its inputs has what."""

    kind: str
    sources: int
    """How many; each is tensor, scale, zero point, from the first input on."""
    bias: int | None = None
    result: int | None = None
    """Place of its scale, if it is not behind the sources."""


_FORMS = {
    "QLinearConv": _Form("Conv", 2, bias=8),
    "QLinearMatMul": _Form("MatMul", 2),
    "com.microsoft.QGemm": _Form("Gemm", 2, bias=6, result=7),
    "com.microsoft.QLinearAdd": _Form("Add", 2),
    "com.microsoft.QLinearMul": _Form("Mul", 2),
    "com.microsoft.QLinearAveragePool": _Form("AveragePool", 1),
    "com.microsoft.QLinearGlobalAveragePool": _Form("GlobalAveragePool", 1),
    "com.microsoft.QLinearLeakyRelu": _Form("LeakyRelu", 1),
    "com.microsoft.QLinearSigmoid": _Form("Sigmoid", 1),
    "com.microsoft.QLinearSoftmax": _Form("Softmax", 1),
}


Read = Callable[[Node, Constants], IntegerOperation | None]


def _by_form(form: _Form) -> Read:
    def read(node: Node, constants: Constants) -> IntegerOperation | None:
        sources = tuple(
            quantized(constants, *(node.input(3 * i + j) for j in range(3)))
            for i in range(form.sources)
        )
        at = 3 * form.sources if form.result is None else form.result
        if form.result is not None and not node.input(at):
            return None
        result = quantized(constants, node.outputs[0], node.input(at), node.input(at + 1))
        bias = node.input(form.bias) if form.bias is not None else ""
        return IntegerOperation(node, form.kind, sources, _of_one_type(result, sources), bias)

    return read


def _concatenation(node: Node, constants: Constants) -> IntegerOperation:
    result = quantized(constants, node.outputs[0], node.input(0), node.input(1))
    if len(node.inputs) < 5 or len(node.inputs) % 3 != 2:
        raise UnsupportedError(f"{len(node.inputs)} inputs")
    sources = tuple(
        quantized(constants, *node.inputs[i : i + 3]) for i in range(2, len(node.inputs), 3)
    )
    return IntegerOperation(node, "Concat", sources, _of_one_type(result, sources))


def _of_one_type(result: Quantized, sources: tuple[Quantized, ...]) -> Quantized:
    """A result without a zero point is of the first source's type."""
    return attrs.evolve(result, dtype=result.dtype or sources[0].dtype)


QOPERATORS: Mapping[str, Read] = {
    **{op: _by_form(form) for op, form in _FORMS.items()},
    "com.microsoft.QLinearConcat": _concatenation,
}
"""Operator -> what reads its scales; None if its result is real numbers."""
