"""The interface of an arithmetic profile: from scales to the words of descriptors.

Each answer holds the word ``profile`` and the factors; words that are not named are 0. The device's
formulas are in ``docs/isa.md``; ``docs/numerics.md`` names their sources.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.compiler.numerics.ratios import (
    ZERO_SCALE,
    ScaleForm,
    factor_words,
    product,
    quotient,
)
from nmpsim.compiler.operations import Operation, View
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.isa.words import DIVIDE_BY_VALID_TAPS
from nmpsim.kernels.scale import IntegerScale

Array: TypeAlias = npt.NDArray[Any]
Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]
Words: TypeAlias = dict[str, int]


@attrs.frozen(eq=False)
class Bias:
    """The bias of each output channel: ``scale * (value - offset)``; a float bias has scale 1."""

    values: Array
    """[O] int64 or float32"""
    scales: Floats
    """[O]"""
    offsets: Integers
    """[O]"""

    @property
    def is_float(self) -> bool:
        """Whether the constant holds real values."""
        return self.values.dtype.kind == "f"

    @property
    def integers(self) -> Integers:
        """[O] Values minus their zero points."""
        difference: Integers = self.values.astype(np.int64) - self.offsets
        return difference

    @property
    def reals(self) -> Floats:
        """[O] Real values."""
        if self.is_float:
            return self.values.astype(np.float32)
        return self.scales * self.integers.astype(np.float32)


@attrs.frozen(eq=False)
class WeightedScales:
    """Scales and bias of a layer with weights; O is the number of output channels."""

    source: View
    target: View
    weight_scales: Floats
    """[O]"""
    by_channel: bool
    """Whether the scales of the weights may differ from channel to channel."""
    bias: Bias
    opcode: str
    place: Place

    @property
    def is_convolution(self) -> bool:
        """Whether the layer is a convolution, not a fully connected layer."""
        return self.opcode.endswith("convolution")

    @property
    def channels(self) -> int:
        """Number of output channels."""
        return int(self.weight_scales.size)

    @property
    def products(self) -> Floats:
        """[O] Scales of the sums: ``fl(Sx * Sw)``."""
        return np.float32(self.source.scale) * self.weight_scales

    @property
    def bias_ratios(self) -> Floats:
        """[O] Scale of the bias over that of the sum: ``fl(Sb / fl(Sx * Sw))``."""
        return self.bias.scales / self.products

    @property
    def ratios(self) -> Floats:
        """[O] Scale of the sum over that of the result: ``fl(fl(Sx * Sw) / Sy)``."""
        return self.products / np.float32(self.target.scale)

    def integer_bias(self, profile: Profile) -> Integers:
        """Return the bias minus its zero point; raise UserError (COMP001) for a float bias."""
        if self.bias.is_float:
            raise fail(
                "COMP001",
                f"numerics {profile.name} needs an integer bias",
                place=self.place,
                found="a float bias",
                hint="quantize it, or use --numerics float",
            )
        return self.bias.integers


@attrs.frozen
class Pair:
    """Scales of an elementwise operation or matrix product of two tensors."""

    opcode: str
    target: View
    lhs: View
    rhs: View
    place: Place
    is_unsigned: bool = False
    """Whether the tensors hold uint8 values minus 128."""

    @property
    def sides(self) -> tuple[tuple[str, View], tuple[str, View]]:
        """Both operands with the prefixes of their words."""
        return ("lhs", self.lhs), ("rhs", self.rhs)

    @property
    def ratios(self) -> tuple[float, float]:
        """Scale of each operand over that of the result, in float32."""
        return quotient(self.lhs.scale, self.target.scale), quotient(
            self.rhs.scale, self.target.scale
        )

    @property
    def product(self) -> float:
        """Product of the operands' scales in float32."""
        return product(self.lhs.scale, self.rhs.scale)

    @property
    def product_ratio(self) -> float:
        """Factor of a product: ``fl(fl(Sl * Sr) / Sy)``."""
        return quotient(self.product, self.target.scale)


@attrs.frozen
class AveragePool:
    """Scales and window of an average pool."""

    source: View
    target: View
    taps: int
    """Taps of the whole window."""
    counts_padding: bool
    """Whether the sum is divided by all taps, not only by the existing ones."""
    has_padding: bool
    """Whether some windows extend beyond the input."""
    is_unsigned: bool
    """Whether the tensors hold uint8 values minus 128."""
    is_global: bool
    """Whether the operation is ONNX's GlobalAveragePool."""
    place: Place

    @classmethod
    def from_operation(cls, op: Operation, place: Place) -> AveragePool:
        """Read an average pool of LIR."""
        target, source = op.operands
        return cls(
            source,
            target,
            math.prod(op.integers("Kernels")),
            bool(op.number("CountIncludePads")),
            any(op.integers("Pads")),
            op.is_unsigned,
            bool(op.number("Global")),
            place,
        )

    @property
    def ratio(self) -> float:
        """Scale of the input over that of the result: ``fl(Sx / Sy)``."""
        return quotient(self.source.scale, self.target.scale)

    @property
    def factor(self) -> float:
        """Factor of the sum: ``fl(Sx / Sy / n)``, or ``fl(Sx / Sy)`` if the unit divides by n."""
        return quotient(self.ratio, float(self.taps)) if self.counts_padding else self.ratio

    def words(self, profile: int, form: ScaleForm) -> Words:
        """Return the words of the factor and of the division."""
        words = factor_words(profile, form, self.place, out=self.factor)
        return words | {"divide": 0 if self.counts_padding else DIVIDE_BY_VALID_TAPS}


@attrs.frozen(eq=False)
class Requantization:
    """The conversion of sums to results; O is the number of output channels."""

    profile: int
    bias: Integers
    """[O] Word of the channel record."""
    bias_scales: tuple[IntegerScale, ...]
    """[O]"""
    out_scales: tuple[IntegerScale, ...]
    """[O]"""
    result_scale: int = 0
    bias_in_sum: bool = True
    """Whether the bias is added to the accumulator, and must fit it."""

    @classmethod
    def from_words(cls, words: Words, channels: int) -> Requantization:
        """Return the requantization of a matrix product whose right side becomes weights."""
        out = IntegerScale(words["out_pre"], words["out_post"], words["out_mul"])
        bias = np.zeros(channels, np.int64)
        return cls(words["profile"], bias, (ZERO_SCALE,) * channels, (out,) * channels)


class Profile(ABC):
    """Arithmetic of one reference; raises UserError (COMP001) for what the reference lacks."""

    name: str
    """Name, as taken by ``--numerics``."""
    clips_the_input: bool = False
    """Whether a clip clamps the input before it is rescaled, not the result."""
    has_leaky: bool = False
    """Whether a leaky activation may follow a sum."""

    def requantize(self, layer: WeightedScales) -> Requantization:
        """Return how a convolution or fully connected layer makes results of sums."""
        raise self.unsupported("a layer with weights", layer.place)

    def matmul_words(self, pair: Pair) -> Words:
        """Return the words of a matrix product; its right side may be a constant."""
        raise self.unsupported("matmul", pair.place)

    def average_words(self, pool: AveragePool) -> Words:
        """Return the words of an average pool, ``divide`` among them."""
        raise self.unsupported("avgpool", pool.place)

    def check_softmax(self, source: View, target: View, beta: float, place: Place) -> None:
        """Raise UserError (COMP001) for a quantized softmax that the profile does not have."""
        if beta != 1:
            raise self.unsupported("softmax with a Beta", place)

    def pair_words(self, pair: Pair) -> Words:
        """Return the words of an elementwise operation."""
        raise self.unsupported(pair.opcode, pair.place)

    def unary_words(self, source: View, target: View, alpha: float | None, place: Place) -> Words:
        """Return the descriptor words of a rescale; ``alpha`` scales values below zero."""
        raise self.unsupported("rescaling", place)

    def leaky_words(self, alpha: float, target: View, place: Place) -> Words:
        """Return the words of a leaky activation after a sum; see ``has_leaky``."""
        raise self.unsupported("leaky activation after a sum", place)

    @abstractmethod
    def quantize(self, value: float, grid: View) -> int:
        """Quantize a real bound with a tensor's scale and zero point, without clamping it."""

    def unsupported(self, what: str, place: Place) -> UserError:
        """Return the error (COMP001) that the profile does not support an operation."""
        return fail(
            "COMP001",
            f"numerics {self.name} has no {what}",
            place=place,
            hint="select another profile for the layer: --numerics LAYER=PROFILE",
        )
