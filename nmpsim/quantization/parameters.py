"""Scales and offsets, chosen bit-exactly as Glow chooses them (LIR_FORMAT 3.1).

All functions work on arrays as well, one set of parameters for each element: so they serve
tensors and channels alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, TypeAlias, TypeVar, get_args

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Array
from nmpsim.diagnostics import did_you_mean, fail, quote
from nmpsim.kernels.array_types import Float32s, Float64s, Int32s
from nmpsim.lir.nodes import ELEM_DTYPES

Schema: TypeAlias = Literal[
    "asymmetric", "symmetric", "symmetric-with-uint8", "symmetric-with-power2-scale"
]
"""Glow's quantization schemas, as its command line names them, with dashes."""

SCHEMAS: tuple[Schema, ...] = get_args(Schema)
RangeMethod: TypeAlias = Literal["minmax", "percentile", "mse", "kl"]
"""How the range of a tensor follows from its values; see ``nmpsim.quantization.ranges``."""
RANGE_METHODS: tuple[RangeMethod, ...] = get_args(RangeMethod)
DEFAULT_PERCENTILE = 99.99

_RANGES = {"i8": (-128, 127), "i16": (-32768, 32767), "i32": (-(1 << 29), (1 << 29) - 1)}
"""Integers that a range is spread over; Int32 leaves headroom for sums."""


@attrs.frozen(eq=False)
class Parameters:
    """Parameters of quantized tensors: scale and offset in ``real = scale * (q - offset)``."""

    scale: Float32s
    offset: Int32s


def choose_parameters(
    low: npt.ArrayLike, high: npt.ArrayLike, schema: Schema, elem: str
) -> Parameters:
    """Choose the scale and offset for a range, as Glow's ``chooseQuantizationParams`` does.

    Parameters
    ----------
    low, high : array_like
        Ends of the range, which is extended to include zero.
    schema : str
        Quantization schema, one of ``SCHEMAS``.
    elem : str
        Element type: i8, i16 or i32.

    Returns
    -------
    parameters : Parameters
        Scale and offset, in the shape of ``low`` and ``high``. The scale is 0.1 for a range of
        zeros, and where Glow's scale would not be a normal float32.
    """
    bottom, top = (float(q) for q in _RANGES[elem])
    low64 = np.minimum(np.asarray(low, np.float32), 0).astype(np.float64)
    high64 = np.maximum(np.asarray(high, np.float32), 0).astype(np.float64)
    if schema != "asymmetric":
        both = _symmetric(low64, high64, bottom, top)
        keep = low64 >= 0 if schema == "symmetric-with-uint8" else np.zeros(low64.shape, np.bool_)
        low64, high64 = np.where(keep, low64, both[0]), np.where(keep, high64, both[1])
    scale = (high64 - low64) / (top - bottom)
    scale = np.where(scale < np.finfo(np.float32).tiny, 0.1, scale)
    offset = _zero_point(low64, high64, scale, bottom, top)
    if schema == "symmetric-with-power2-scale":
        scale = np.exp2(np.ceil(np.log2(scale)))
    return Parameters(scale.astype(np.float32), offset)


def _symmetric(
    low: Float64s, high: Float64s, bottom: float, top: float
) -> tuple[Float64s, Float64s]:
    """Return the range widened at one side until real zero is the integer zero."""
    steps_low, steps_high = low / bottom, high / top
    grow_high = steps_low > steps_high
    return (
        np.where(grow_high, low, _through_float32(steps_high * bottom)),
        np.where(grow_high, _through_float32(steps_low * top), high),
    )


def _through_float32(x: Float64s) -> Float64s:
    limits = np.finfo(np.float32)
    return np.clip(x, limits.min, limits.max).astype(np.float32).astype(np.float64)


def _zero_point(
    low: Float64s, high: Float64s, scale: Float64s, bottom: float, top: float
) -> Int32s:
    """Return the integer of real zero, computed from the more accurate end of the range."""
    from_low, from_high = bottom - low / scale, top - high / scale
    error_low = abs(bottom) + np.abs(low / scale)
    error_high = abs(top) + np.abs(high / scale)
    real = np.where(error_low < error_high, from_low, from_high)
    balanced = np.abs((high + low).astype(np.float32)) <= np.finfo(np.float32).eps
    real = np.clip(np.where(balanced, 0.0, real), bottom, top)
    rounded: Float64s = np.trunc(real + np.copysign(0.5, real))
    return rounded.astype(np.int32)


def choose_bias_parameters(
    bias: Parameters,
    source_scale: npt.ArrayLike,
    weights_scale: npt.ArrayLike,
    elem: str,
    is_zero: npt.ArrayLike,
) -> Parameters:
    """Choose a bias's scale and offset as Glow's ``specializeBiasQuantizationParams`` does.

    Parameters
    ----------
    bias : Parameters
        Parameters of the bias for its own range.
    source_scale, weights_scale : array_like
        Scales of input and weights; their product is the scale of the sums.
    elem : str
        Element type of the bias; i32 has no offset.
    is_zero : array_like
        Whether the bias is zero.

    Returns
    -------
    parameters : Parameters
        The scale of the sums where it is larger or the bias is zero, otherwise the bias's own.
    """
    product = _float32(source_scale) * _float32(weights_scale)
    raised = (product >= bias.scale) | (np.asarray(is_zero) & (product > 0))
    scale = np.where(raised, product, bias.scale)
    return Parameters(scale, np.zeros_like(bias.offset) if elem == "i32" else bias.offset)


def choose_bias_weights_parameters(
    bias: Parameters,
    source_scale: npt.ArrayLike,
    weights: Parameters,
    elem: str,
    is_zero: npt.ArrayLike,
) -> tuple[Parameters, Parameters]:
    """Choose bias and weight parameters, with larger weight scales where a bias would saturate.

    This is Glow's ``specializeBiasWeightsQuantizationParams``: where an Int32 bias would saturate
    on the scale of the sums, the scale of the weights is increased until it does not.

    Parameters
    ----------
    bias, source_scale, elem, is_zero
        As in :func:`choose_bias_parameters`.
    weights : Parameters
        Parameters of the weights for their own range.

    Returns
    -------
    tuple of Parameters
        Parameters of bias and weights.
    """
    bias = choose_bias_parameters(bias, source_scale, weights.scale, elem, is_zero)
    if elem != "i32":
        return bias, weights
    source = _float32(source_scale)
    enlarge = bias.scale > source * weights.scale
    scale = np.where(enlarge, bias.scale / source, weights.scale)
    return (
        attrs.evolve(bias, scale=np.where(enlarge, source * scale, bias.scale)),
        attrs.evolve(weights, scale=scale),
    )


def quantize(values: npt.ArrayLike, parameters: Parameters, elem: str) -> Array:
    """Quantize real values to integers: divide by the scale, add the offset, round and clip.

    The formula is ``clip(rint(float32(float32(x / scale) + offset)))``.

    Parameters
    ----------
    values : array_like
        Real numbers.
    parameters : Parameters
        Scale and offset, broadcast with ``values``.
    elem : str
        Element type: i8, i16 or i32.

    Returns
    -------
    ndarray
        Integers in the dtype of ``elem``.
    """
    dtype = ELEM_DTYPES[elem]
    limits = np.iinfo(dtype)
    return np.clip(_placed(values, parameters), limits.min, limits.max).astype(dtype)


def count_saturated(values: npt.ArrayLike, parameters: Parameters, elem: str) -> int:
    """Count the values that saturate by more than one quantization step."""
    placed, limits = _placed(values, parameters), np.iinfo(ELEM_DTYPES[elem])
    return int(((placed < limits.min - 1) | (placed > limits.max + 1)).sum())


def _placed(values: npt.ArrayLike, parameters: Parameters) -> Float64s:
    """Return the integers before they are clipped."""
    offset = parameters.offset.astype(np.float32)
    with np.errstate(over="ignore"):  # infinity is clipped as well
        placed: Float32s = np.rint(_float32(values) / parameters.scale + offset)
    return placed.astype(np.float64)


def _float32(values: npt.ArrayLike) -> Float32s:
    return np.asarray(values, dtype=np.float32)


Elem: TypeAlias = Literal["i8", "i16", "i32"]

PRECISIONS: dict[str, Elem] = {"int8": "i8", "int16": "i16"}
"""Precision of activations and weights -> element type."""
BIAS_PRECISIONS: dict[str, Elem] = {**PRECISIONS, "int32": "i32"}
BIAS_SCALES = ("product", "result")

_Word = TypeVar("_Word", bound=str)


@attrs.frozen(kw_only=True)
class Settings:
    """Settings of a quantization: schema, element types and exceptions, with Glow's defaults."""

    schema: Schema = "asymmetric"
    elem: Elem = "i8"
    """Element type of activations and weights: i8 or i16."""
    bias_elem: Elem = "i32"
    per_channel: bool = False
    """Whether convolutions and fully connected layers have a scale for each output channel."""
    bias_on_result: bool = False
    """Whether biases have the scale and offset of the result, as in the NMP's library."""
    range_method: RangeMethod = "minmax"
    percentile: float = DEFAULT_PERCENTILE
    """Share of values in percent that the range method ``percentile`` keeps."""
    keep_float: frozenset[str] = frozenset()
    """Opcodes and names of instructions that stay float."""


def parse_settings(
    *,
    schema: str,
    precision: str,
    bias_precision: str,
    per_channel: bool,
    bias_scale: str,
    range_method: str,
    percentile: float | None,
    keep_float: Iterable[str],
) -> Settings:
    """Return Settings from words of the command line; raise UserError (ARG001) if unknown."""
    return Settings(
        schema=_known("schema", schema, SCHEMAS),
        elem=PRECISIONS[_known("precision", precision, PRECISIONS)],
        bias_elem=BIAS_PRECISIONS[_known("bias_precision", bias_precision, BIAS_PRECISIONS)],
        per_channel=per_channel,
        bias_on_result=_known("bias_scale", bias_scale, BIAS_SCALES) == "result",
        range_method=_known("range_method", range_method, RANGE_METHODS),
        percentile=DEFAULT_PERCENTILE if percentile is None else _check_percentile(percentile),
        keep_float=frozenset(keep_float),
    )


def _check_percentile(percentile: float) -> float:
    if not 50 <= percentile <= 100:
        raise fail(
            "ARG001",
            "the percentile of a range is invalid",
            found=f"percentile={percentile}",
            expected="a number from 50 to 100",
        )
    return percentile


def _known(what: str, word: str, words: Collection[_Word]) -> _Word:
    for known in words:
        if known == word:
            return known
    raise fail(
        "ARG001",
        f"unknown value of {what}",
        found=f"{what}={quote(word)!r}",
        expected=", ".join(words),
        hint=did_you_mean(word, words),
    )
