"""What a profile is asked: the words of a descriptor that make its arithmetic, from scales.

Each answer holds the word ``profile`` and the factors; what is not named is 0. The formulas that
the words go into are the device's, in ``docs/isa.md``; ``docs/numerics.md`` has their sources.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.compiler.numerics.ratios import NOTHING, quotient, scale_words
from nmpsim.compiler.operations import View
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.isa.words import DIVIDE_BY_VALID_TAPS
from nmpsim.kernels.scale import IntegerScale

Array = npt.NDArray[Any]
Words = dict[str, int]


@attrs.frozen(eq=False)
class Bias:
    """Real value ``scale * (value - offset)`` of each channel; a float bias has scale 1."""

    values: Array
    """int64 or float32 [O]"""
    scales: npt.NDArray[np.float32]
    """[O]"""
    offsets: npt.NDArray[np.int64]
    """[O]"""

    @property
    def is_float(self) -> bool:
        """Whether the constant holds real values."""
        return self.values.dtype.kind == "f"

    @property
    def integers(self) -> npt.NDArray[np.int64]:
        """``q - offset``."""
        difference: npt.NDArray[np.int64] = self.values.astype(np.int64) - self.offsets
        return difference

    @property
    def reals(self) -> npt.NDArray[np.float32]:
        """float32."""
        if self.is_float:
            return self.values.astype(np.float32)
        return self.scales * self.integers.astype(np.float32)


@attrs.frozen(eq=False)
class Sums:
    """A layer with weights, as far as its scales go; O output channels."""

    source: View
    target: View
    weight_scales: npt.NDArray[np.float32]
    """[O]"""
    by_channel: bool
    """Whether they may differ from channel to channel."""
    bias: Bias
    opcode: str
    place: Place

    @property
    def is_convolution(self) -> bool:
        """Plain or channelwise; else a fully connected layer."""
        return self.opcode.endswith("convolution")

    @property
    def channels(self) -> int:
        """O."""
        return int(self.weight_scales.size)

    @property
    def products(self) -> npt.NDArray[np.float32]:
        """``fl(Sx * Sw)`` of each channel: the scale of its sum."""
        return np.float32(self.source.scale) * self.weight_scales

    def integer_bias(self, profile: Profile) -> npt.NDArray[np.int64]:
        """``q - offset`` of each channel; COMP001 if the bias is float."""
        if self.bias.is_float:
            raise fail(
                "COMP001",
                f"numerics {profile.name} needs an integer bias",
                place=self.place,
                found="a float bias",
                hint="quantize it, or take --numerics float",
            )
        return self.bias.integers

    @property
    def bias_ratios(self) -> npt.NDArray[np.float32]:
        """``fl(Sb / fl(Sx * Sw))`` of each channel."""
        return self.bias.scales / self.products

    @property
    def ratios(self) -> npt.NDArray[np.float32]:
        """``fl(fl(Sx * Sw) / Sy)`` of each channel."""
        return self.products / np.float32(self.target.scale)


@attrs.frozen
class Average:
    """An average pool, as far as its arithmetic goes."""

    source: View
    target: View
    taps: int
    """Of the whole window."""
    counts_padding: bool
    """Whether the sum is divided by all taps; else by those that exist."""
    has_padding: bool
    """Whether some windows lie partly outside the input."""
    is_unsigned: bool
    """Whether the values are those of uint8 less 128."""
    is_global: bool
    """Whether it is ONNX's GlobalAveragePool."""
    place: Place

    @property
    def ratio(self) -> float:
        """``fl(Sx / Sy)``."""
        return quotient(self.source.scale, self.target.scale)

    def words(self, profile: int, form: Callable[[float, Place], IntegerScale]) -> Words:
        """``fl(Sx / Sy / n)``, or the division is left to the unit."""
        ratio = quotient(self.ratio, float(self.taps)) if self.counts_padding else self.ratio
        return {
            "profile": profile,
            "divide": 0 if self.counts_padding else DIVIDE_BY_VALID_TAPS,
            **scale_words("out", form(ratio, self.place)),
        }


@attrs.frozen(eq=False)
class Requantization:
    """What turns a layer's sums into results. O output channels."""

    profile: int
    bias: npt.NDArray[np.int64]
    """[O]: the word of the channel record"""
    bias_scales: tuple[IntegerScale, ...]
    """One a channel."""
    out_scales: tuple[IntegerScale, ...]
    result_scale: int = 0
    bias_in_sum: bool = True
    """Whether the bias must fit the accumulator, on its own scale."""

    @classmethod
    def of_product(cls, words: Words, channels: int) -> Requantization:
        """A product of two matrices by these words, for a unit that takes one as weights."""
        out = IntegerScale(words["out_pre"], words["out_post"], words["out_mul"])
        bias = np.zeros(channels, np.int64)
        return cls(words["profile"], bias, (NOTHING,) * channels, (out,) * channels)

    def with_bias_behind_the_sum(
        self, scale: IntegerScale = NOTHING, result_scale: int = 0
    ) -> Requantization:
        """The same with a bias that is no part of the sum; ``scale`` goes into its words."""
        return attrs.evolve(
            self,
            bias_in_sum=False,
            bias_scales=(scale,) * len(self.bias_scales),
            result_scale=result_scale,
        )


class Profile(ABC):
    """A reference's arithmetic. What a method does not know, it refuses with COMP001."""

    name: str
    """As ``--numerics`` has it."""
    clips_the_input: bool = False
    """Whether ``clip`` clamps before it rescales, on the input's grid; else after."""
    has_leaky: bool = False
    """Whether there is a leaky activation after a sum."""

    def sums(self, layer: Sums) -> Requantization:
        """Convolution or fully connected layer."""
        raise self.unknown("a layer with weights", layer.place)

    def matmul(self, lhs: View, rhs: View, target: View, place: Place) -> Words:
        """Product of two matrices, of which the right one may be a constant."""
        raise self.unknown("matmul", place)

    def average(self, window: Average) -> Words:
        """Average pool; ``divide`` is among the words."""
        raise self.unknown("avgpool", window.place)

    def check_softmax(self, source: View, target: View, beta: float, place: Place) -> None:
        """Refuse a quantized softmax of the host that the profile does not have."""
        if beta != 1:
            raise self.unknown("softmax with a Beta", place)

    def pair(
        self, opcode: str, operands: tuple[View, View, View], place: Place, unsigned: bool = False
    ) -> Words:
        """Elementwise operation: target, lhs, rhs; are they those of uint8 less 128?"""
        raise self.unknown(opcode, place)

    def unary(self, source: View, target: View, alpha: float | None, place: Place) -> Words:
        """Rescaling; below the zero point times ``alpha`` if given."""
        raise self.unknown("rescaling", place)

    def leaky(self, alpha: float, target: View, place: Place) -> Words:
        """A leaky activation after a sum, where ``has_leaky``."""
        raise self.unknown("leaky activation after a sum", place)

    @abstractmethod
    def quantized(self, value: float, grid: View) -> int:
        """A real value on a tensor's grid, where an activation clips; not yet clipped."""

    def unknown(self, what: str, place: Place) -> UserError:
        """The error that the profile has no such arithmetic."""
        return fail(
            "COMP001",
            f"numerics {self.name} has no {what}",
            place=place,
            hint="--numerics LAYER=PROFILE gives one layer another",
        )
