"""What a second, exact evaluation found about a run: where each layer's error comes from."""

from __future__ import annotations

import attrs

SHADOW_SCHEMA = "nmpsim-shadow-1"
"""Version of this part of the JSON report."""


@attrs.frozen
class ErrorSize:
    """How large an error is."""

    sqnr_db: float
    """Signal to quantization noise in dB; infinite without error."""
    mean_units: float | None
    """Mean absolute error in units of the last place of the layer's output; None if that is
    float."""
    worst_units: float | None
    """Largest absolute error, likewise."""


@attrs.frozen
class Split:
    """The parts of a layer's accumulated error; element by element they add up to it.

    The first three are None without float weights.
    """

    inherited: ErrorSize | None
    """What earlier layers had lost."""
    bias: ErrorSize | None
    """Quantization of the bias."""
    weights: ErrorSize | None
    """Quantization of the weights."""
    saturation: ErrorSize
    """Values beyond the range of the output's type."""
    rescale: ErrorSize
    """Rounding to the output's type."""


@attrs.frozen
class ShadowLayer:
    """The errors of one layer; measures are None where they cannot be told."""

    index: int
    """Position in the report's list of layers."""
    number: int
    """Number of the LIR instruction whose output it is."""
    name: str
    not_compared: str = ""
    """Why nothing can be told; empty if something can."""
    accumulated: ErrorSize | None = None
    """Against the float network."""
    layer_alone: ErrorSize | None = None
    """Against this layer in float on its actual inputs."""
    rounding_alone: ErrorSize | None = None
    """Against this layer in real arithmetic with the quantized weights and bias too."""
    bias_alone: ErrorSize | None = None
    """What the quantization of the bias alone does to the output; None without a bias."""
    split: Split | None = None


@attrs.frozen
class FloatWeight:
    """A constant and the float values that it was quantized from."""

    constant: str
    source: str
    """Name of the float array."""
    how: str
    """name, name without Glow's suffix, or values."""
    layout: str
    """What was done to the array to bring it into the LIR's layout."""
    sqnr_db: float
    """Of the constant against the array."""
    worst_error: float
    """Largest absolute error."""
    largest: float
    """Largest absolute float value."""


@attrs.frozen
class ShadowReport:
    """The whole comparison."""

    float_weights: str | None
    """File of the float weights; None without."""
    constants: tuple[FloatWeight, ...]
    unmatched: tuple[str, ...]
    """Quantized constants without float values: they count as exact."""
    layers: tuple[ShadowLayer, ...]
    """In program order; those that a stopped run did not reach are missing."""
