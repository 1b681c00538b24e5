"""The interface of a numerics profile: from scales to the words of descriptors.

Each answer holds the word ``profile`` and the factors; words that are not named are 0. The device's
formulas are in ``docs/isa.md``; ``docs/numerics.md`` names their sources.
"""

from __future__ import annotations

import functools
import math
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.compiler.numerics.ratios import (
    ZERO_SCALE,
    ScaleForm,
    encode_float32,
    make_fixed_point_scale,
    make_float64_scales,
    make_float_scale,
    make_scale_words,
    make_scales,
    make_shift_scale,
)
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.isa.profiles import PROFILES
from nmpsim.isa.words import DIVIDE_BY_VALID_TAPS
from nmpsim.kernels.hostops.numerics import UNSIGNED
from nmpsim.kernels.hostops.rounding import fused_multiply_add
from nmpsim.kernels.scale import IntegerScale
from nmpsim.lir.opcode import OpcodeKind

Array: TypeAlias = npt.NDArray[Any]
Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]
Words: TypeAlias = dict[str, int]
FactorRow: TypeAlias = Mapping[str, Any]
"""Table of factors of one operation: word -> expression, and the form of its factors."""
FactorTable: TypeAlias = Mapping[str, FactorRow]
"""Tables of factors by operation."""


def round_to_integers(values: Array, bits: int = 32) -> Integers:
    """Round values half to even and saturate them to ``bits`` bits."""
    limit = 1 << (bits - 1)
    nearest = np.rint(np.nan_to_num(values.astype(np.float64)))
    integers: Integers = np.clip(nearest, -limit, limit - 1).astype(np.int64)
    return integers


@attrs.frozen(eq=False)
class ChannelBias:
    """Bias of each output channel with its scale and offset."""

    values: Array
    """[O] int64 or float32"""
    scales: Floats
    """[O]"""
    offsets: Integers
    """[O]"""

    @property
    def is_float(self) -> bool:
        """Whether the bias consists of floats instead of quantized integers."""
        return self.values.dtype.kind == "f"

    @property
    def integers(self) -> Integers:
        """Stored bias values minus their offsets, int64 [O]."""
        difference: Integers = self.values.astype(np.int64) - self.offsets
        return difference

    @property
    def real_values(self) -> Floats:
        """Dequantized bias, float32 [O]."""
        if self.is_float:
            return self.values.astype(np.float32)
        return self.scales * self.integers.astype(np.float32)


@attrs.frozen(eq=False)
class WeightedLayerScales:
    """Scales, zero points and bias of a layer with weights and O output channels."""

    source: BufferView
    target: BufferView
    weight_scales: Floats
    """[O]"""
    weight_offsets: Integers
    """[O]"""
    by_channel: bool
    """Whether the scales of the weights may differ from channel to channel."""
    bias: ChannelBias
    opcode: str
    place: Place

    @classmethod
    def from_operation(
        cls, op: Operation, constants: Mapping[str, npt.NDArray[Any]], place: Place
    ) -> WeightedLayerScales:
        """Return the scales and the bias of a layer from its operands and constants.

        A bias with scale 0 next to weights with a scale per channel has the scale of the sums.
        Raises KeyError if ``constants`` lacks one of the operands.
        """
        target, source, weights, bias = op.operands[:4]
        values, *tables = (view.get_constant_values(constants) for view in op.operands[3:])
        (scales, offsets), (bias_scales, bias_offsets) = (
            (
                np.full(values.size, view.scale, np.float32),
                np.full(values.size, view.offset, np.int64),
            )
            for view in (weights, bias)
        )
        if tables:
            scales, offsets = tables[0].astype(np.float32), tables[1].astype(np.int64)
        if len(tables) == 4 and values.dtype.kind != "f":
            bias_scales, bias_offsets = tables[2].astype(np.float32), tables[3].astype(np.int64)
        elif tables and bias.scale == 0:
            bias_scales = np.float32(source.scale) * scales
            bias_offsets = np.zeros(values.size, np.int64)
        return cls(
            source=source,
            target=target,
            weight_scales=scales,
            weight_offsets=offsets,
            by_channel=bool(tables),
            bias=ChannelBias(values.reshape(-1), bias_scales, bias_offsets),
            opcode=op.instruction.opcode,
            place=place,
        )

    @property
    def is_convolution(self) -> bool:
        """Whether the opcode is a convolution and not a fully connected layer."""
        return self.opcode.endswith("convolution")

    @property
    def channels(self) -> int:
        """Number of output channels, O."""
        return int(self.weight_scales.size)

    @property
    def products(self) -> Floats:
        """Input scale times each channel's weight scale, ``fl(Sx * Sw)`` [O]."""
        return np.float32(self.source.scale) * self.weight_scales

    @property
    def bias_ratios(self) -> Floats:
        """Scale of each bias divided by the scale of the sums, ``fl(Sb / fl(Sx * Sw))`` [O]."""
        return self.bias.scales / self.products

    @property
    def ratios(self) -> Floats:
        """Scale of the sums divided by the result's scale, ``fl(fl(Sx * Sw) / Sy)`` [O]."""
        return self.products / np.float32(self.target.scale)

    def round_bias(self, values: Floats) -> Integers:
        """Round ``values`` to integers, or return the stored bias if its scale is the sums'.

        If the bias has the scale of the sum, its stored integers are returned instead.
        """
        if not self.bias.is_float and np.array_equal(self.bias.scales, self.products):
            return self.bias.integers
        return round_to_integers(values, self.target.accumulator_bits)

    def get_integer_bias(self, profile: ProfileEncoder) -> Integers:
        """Return the bias minus its offset; raise UserError (COMP001) for a float bias."""
        if self.bias.is_float:
            raise fail(
                "COMP001",
                f"numerics {profile.name} requires an integer bias",
                place=self.place,
                found=f"a bias of {self.bias.values.dtype}",
                expected="a bias of int32 or int64",
                hint="Quantize the bias, or use --numerics float.",
            )
        return self.bias.integers


@attrs.frozen(eq=False)
class Requantization:
    """Requantization of a layer's sums to results: factors and bias of O channels."""

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
        """Return the requantization of ``channels`` channels with one factor and no bias."""
        out = IntegerScale(words["out_pre"], words["out_post"], words["out_mul"])
        bias = np.zeros(channels, np.int64)
        return cls(words["profile"], bias, (ZERO_SCALE,) * channels, (out,) * channels)


class ProfileEncoder(ABC):
    """Base class of encoders, which convert scales to a numerics profile's descriptor words.

    The tables of the profile in ``factors.toml`` contain the factors of its operations.
    """

    clips_the_input: bool = False
    """Whether a clip clamps the input before it is rescaled, not the result."""
    has_leaky: bool = False
    """Whether a leaky activation may follow a sum."""
    always_counts_padding: bool = False
    """Whether the mean of a pool is always over the whole window, with padding."""

    def __init__(self, name: str, factors: FactorTable = MappingProxyType({})) -> None:
        self.name = name
        """Name, as taken by ``--numerics``."""
        self._custom = factors
        self._tables = _FACTORS[name] | dict(factors)

    def with_factors(self, factors: FactorTable) -> ProfileEncoder:
        """Return an encoder with the same name whose tables of factors are partly replaced."""
        return type(self)(self.name, factors)

    def get_sums_operation(self, layer: WeightedLayerScales) -> str:
        """Return the name of the table of factors for a layer: ``sums`` or ``connected``."""
        is_connected = not layer.is_convolution and "connected" in self._tables
        return "connected" if is_connected else "sums"

    def has_custom_factors(self, layer: WeightedLayerScales) -> bool:
        """Return whether a formulas file replaces the factors of a layer."""
        return self.get_sums_operation(layer) in self._custom

    def make_requantization(self, layer: WeightedLayerScales) -> Requantization:
        """Return the factors and bias that requantize a convolution or fully connected layer."""
        return self.encode_sums(self.get_factor_row(self.get_sums_operation(layer)), layer)

    def encode_sums(self, row: FactorRow, layer: WeightedLayerScales) -> Requantization:
        """Return the factors and bias of a layer that a table of factors describes."""
        form, names = _get_form(row, layer.target), ("bias", "out")
        scales = {"bias": (ZERO_SCALE,) * layer.channels}
        bias, result_scale = None, 0
        if not row.keys() & {"real_bias", "rounded_bias", "result_bias"}:
            bias = layer.get_integer_bias(self)
        values = {"x": layer.source, "y": layer.target, "by_channel": layer.by_channel}
        values |= {"Sw": layer.weight_scales, "Sb": layer.bias.scales}
        values |= {"real": layer.bias.real_values}
        if "result_bias" in row:
            values["sum_bias"] = layer.round_bias(layer.bias.real_values / layer.products)
        is_custom = self.has_custom_factors(layer)
        for word, number in _evaluate(row, layer.place, values):
            if is_custom and word.endswith("_bias"):
                _require_finite(word, row[word], np.atleast_1d(number), layer.place)
            if word == "out" and row["form"] == "float64":
                factors = np.broadcast_to(number, (layer.channels,))
                pairs = (make_float64_scales(factor, layer.place) for factor in factors.tolist())
                scales["out"], scales["bias"] = zip(*pairs, strict=True)
            elif word in names:
                factors = np.broadcast_to(number, (layer.channels,))
                scales[word] = make_scales(form, factors, layer.place)
            elif word == "result_scale":
                result_scale = number
            elif word == "real_bias":
                bias = number.astype(np.float64).view(np.int64)
            elif word == "result_bias":
                bias = round_to_integers(number, 62)
            else:
                bias = layer.round_bias(number)
        assert bias is not None
        profile = PROFILES.index(row["profile"])
        in_sum = not row.keys() & {"real_bias", "result_bias"}
        return Requantization(
            profile, bias, scales["bias"], scales["out"], result_scale, bias_in_sum=in_sum
        )

    def get_factor_words(self, op: Operation, place: Place) -> Words:
        """Return the descriptor words with the factors of an operation without bias.

        Raises UserError (COMP001) if the profile does not support the operation or its scales.
        """
        target, *sources = op.operands
        opcode, alpha = op.instruction.opcode, op.get_number("Alpha")
        known = self._tables
        is_global = bool(op.get_number("Global")) and opcode not in self._custom
        operation = "global_avgpool" if is_global else opcode
        if operation not in known:
            default = "pair" if len(sources) > 1 else "rescale"
            operation = opcode if opcode in known else default
        values: dict[str, Any] = {"unsigned": UNSIGNED * op.is_unsigned}
        values |= zip("xl", sources[:1] * 2, strict=False)
        values |= zip("r", sources[1:], strict=False)
        if alpha is not None:
            values["alpha"] = np.float32(alpha)
        if op.kind is not OpcodeKind.AVERAGE_POOL:
            return self._encode(operation, target, place, **values)
        counts = self.always_counts_padding or bool(op.get_number("CountIncludePads"))
        window = math.prod(op.get_integers("Kernels"))
        values |= {"window": window, "taps": window if counts else 1}
        words = self._encode(operation, target, place, **values)
        return {"divide": 0 if counts else DIVIDE_BY_VALID_TAPS} | words

    def check_softmax(
        self, source: BufferView, target: BufferView, beta: float, place: Place
    ) -> None:
        """Raise UserError (COMP001) if the profile does not support a softmax's beta or scales."""
        if beta != 1:
            raise self.make_unsupported_error(
                f"softmax with Beta {beta:g}", place, "softmax with Beta 1"
            )

    def get_leaky_words(self, alpha: float, target: BufferView, place: Place) -> Words:
        """Return the words of a leaky ReLU; raise UserError (COMP001) if not supported."""
        return self._encode("leaky_sum", target, place, alpha=np.float32(alpha))

    @abstractmethod
    def quantize(self, value: float, grid: BufferView) -> int:
        """Quantize a real clip bound with a tensor's scale and offset, without saturation."""

    def make_unsupported_error(
        self, what: str, place: Place, expected: str | None = None
    ) -> UserError:
        """Return a UserError (COMP001) for an operation that the profile does not support."""
        return fail(
            "COMP001",
            f"numerics {self.name} does not support {what}",
            place=place,
            expected=expected,
            hint="Select another profile for the layer: --numerics LAYER=PROFILE.",
        )

    def get_factor_row(self, operation: str) -> FactorRow:
        """Return the profile's table of an operation; ``connected`` may be that of ``sums``."""
        standard = _FACTORS[self.name]
        known = operation if operation in self._tables else "sums"
        row: dict[str, Any] = standard["defaults"] | self._tables[known]
        if known in self._custom:  # its formula is that of the standard profile
            own = standard.get(known, standard["sums"])
            row["profile"] = (standard["defaults"] | own)["profile"]
        return row

    def _encode(self, operation: str, target: BufferView, place: Place, **values: Any) -> Words:
        """Evaluate the profile's table of an operation; return its words."""
        row = self.get_factor_row(operation)
        form, words = _get_form(row, target), {"profile": PROFILES.index(row["profile"])}
        for word, number in _evaluate(row, place, values | {"y": target}):
            if word in ("out", "lhs", "rhs", "leaky"):
                words |= make_scale_words(word, form(float(number), place))
            elif abs(number) < 1 << 32:
                words[word] = int(number)
            else:
                raise fail(
                    "COMP001",
                    f"the descriptor word {word} of {operation} has more than 32 bits",
                    place=place,
                    found=str(number)[:40],
                    expected="a finite number below 2^32",
                    hint=f"Change {word} in the formulas file.",
                )
        return words


def _get_form(row: FactorRow, target: BufferView) -> ScaleForm:
    """Return the function that converts factors to the form of a table."""
    if row["form"] == "shift":
        return functools.partial(make_shift_scale, accumulator_bits=target.accumulator_bits)
    return make_float_scale if row["form"] == "float" else make_fixed_point_scale


def _evaluate(row: FactorRow, place: Place, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names of a table with the values of their expressions.

    Views among the values define scale, zero point and unsigned offset of their letter.
    """
    names: dict[str, Any] = {"float32": np.float32, "float64": np.float64}
    names |= {"fma": fused_multiply_add, "bits": lambda x: encode_float32(x, place)}
    names |= _FUNCTIONS
    for key, value in values.items():
        if isinstance(value, BufferView):
            names |= {f"S{key}": np.float32(value.scale), f"D{key}": np.float64(value.scale)}
            names |= {f"O{key}": value.offset, f"U{key}": UNSIGNED * (value.type.elem == "i8")}
        else:
            names[key] = value
    names["element"] = int(values["y"].type.elem == "i16")
    for name, expression in row.items():
        if name not in ("form", "profile"):
            number: Any = np.float64(np.nan)  # values that are not finite are refused
            with np.errstate(all="ignore"), suppress(ZeroDivisionError, OverflowError):
                number = eval(_compile(expression), names)
            yield name, number


def _require_finite(word: str, expression: str, values: Array, place: Place) -> None:
    """Raise UserError (COMP001) if an expression of a formulas file yields an infinity or NaN."""
    wrong = values[~np.isfinite(values)]
    if wrong.size:
        raise fail(
            "COMP001",
            f"the expression of {word} in the formulas file is not finite",
            place=place,
            found=f"{expression} = {wrong[0]}",
            expected="a finite number for each channel",
            hint="Change the expression so that it does not divide by zero.",
        )


def _round_bits(x: Array, bits: int) -> Array:
    """Return numbers rounded to ``bits`` significant bits, halves up, as QuantizeMultiplier."""
    fraction, exponent = np.frexp(x)
    rounded: Array = np.ldexp(np.floor(np.ldexp(fraction, bits) + 0.5), exponent - bits)
    return rounded


def _floor_bits(x: Array, bits: int) -> Array:
    """Return numbers rounded down to ``bits`` significant bits."""
    fraction, exponent = np.frexp(x)
    rounded: Array = np.ldexp(np.floor(np.ldexp(fraction, bits)), exponent - bits)
    return rounded


_FUNCTIONS: Mapping[str, Any] = {
    "rint": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
    "away": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "round_bits": _round_bits,
    "floor_bits": _floor_bits,
    "exp2": np.exp2,
    "log2": np.log2,
    "exponent": lambda x: np.frexp(x)[1],
}
"""Functions of float64 numbers in expressions."""


def _read_factors() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_name("factors.toml").read_text(encoding="utf-8")
    tables: dict[str, dict[str, Any]] = tomllib.loads(text)
    for name, table in tables.items():
        tables[name] = tables.get(table.get("same_as", ""), {}) | table
    return tables


@functools.cache
def _compile(expression: str) -> CodeType:
    return compile(expression, "factors.toml", "eval")


_FACTORS = _read_factors()
"""Profile -> operation -> word -> expression."""
