"""What a second, exact evaluation found about a run: where each layer's error comes from."""

from __future__ import annotations

import math
from typing import Annotated, Final, Literal

from nmpsim.records import frozen
from nmpsim.report.fields import Before, Count, Real

SHADOW_SCHEMA: Final = "nmpsim-shadow-1"
"""Version of this part of the JSON report."""


@frozen
class ErrorSize:
    """How large an error is."""

    sqnr_db: Annotated[Real, 'signal to quantization noise in dB; `"Infinity"` without error']
    mean_units: Annotated[
        Real | None,
        "mean absolute error in units of the last place of the layer's output; null if it is float",
    ]
    worst_units: Annotated[Real | None, "largest absolute error, likewise"]


@frozen
class Split:
    """The parts of a layer's accumulated error; element by element they add up to it.

    The first three are None without float weights.
    """

    inherited: Annotated[
        ErrorSize | None,
        "what earlier layers had lost: an [error_size](#error_size), as the others",
    ]
    bias: Annotated[ErrorSize | None, "quantization of the bias"]
    weights: Annotated[ErrorSize | None, "quantization of the weights"]
    saturation: Annotated[ErrorSize, "values beyond the range of the output, or saturated before"]
    rescale: Annotated[ErrorSize, "rounding"]


@frozen
class ShadowLayer:
    """The errors of one layer; measures are None where they cannot be told."""

    index: Annotated[Count, "position in `layers` of the report"]
    number: Annotated[Count, "number of the LIR instruction whose output it is"]
    name: Annotated[str, "its name"]
    not_compared: Annotated[str, "why it was not compared; usually empty"] = ""
    accumulated: Annotated[
        ErrorSize | None,
        "error against the float network: an [error_size](#error_size), as the next three",
    ] = None
    layer_alone: Annotated[
        ErrorSize | None, "error against this layer in float on its actual inputs"
    ] = None
    rounding_alone: Annotated[
        ErrorSize | None,
        "error against this layer in real arithmetic, with its quantized weights and bias",
    ] = None
    bias_alone: Annotated[
        ErrorSize | None,
        "what quantizing the bias does to the output; null for a layer without bias",
    ] = None
    split: Annotated[Split | None, "the parts of the accumulated error: a [split](#split)"] = None

    @property
    def result_error(self) -> ErrorSize | None:
        """The error of the result: accumulated, or of rounding alone without float weights."""
        return self.accumulated or self.rounding_alone


@frozen
class FloatWeight:
    """A constant and the float values that it was quantized from."""

    constant: Annotated[str, "name in the LIR"]
    source: Annotated[str, "name of the float array"]
    how: Annotated[
        str,
        "how it was found: `name`, `name without suffix` (Glow's `__1`), `values`; with `, by"
        " channel times a factor` where the constant is that of the array",
    ]
    layout: Annotated[str, "conversion of the array to the LIR's layout, such as `OIHW to OHWI`"]
    sqnr_db: Annotated[
        Real, "signal to quantization noise of the constant against the array, in dB"
    ]
    worst_error: Annotated[Real, "largest absolute error"]
    largest: Annotated[Real, "largest absolute float value"]


@frozen
class ShadowReport:
    """The whole comparison."""

    float_weights: Annotated[str | None, "file of the float weights, or `the bundle`; null without"]
    constants: Annotated[
        tuple[FloatWeight, ...],
        "list: each quantized constant for which float values were found, a"
        " [float_weight](#float_weight)",
    ]
    unmatched: Annotated[
        tuple[str, ...],
        "names of the quantized constants without float values; they count as exact",
    ]
    layers: Annotated[
        tuple[ShadowLayer, ...],
        "list of [shadow_layer](#shadow_layer), in program order; a layer that a stopped run did"
        " not reach is missing",
    ]

    def worst(self) -> tuple[ShadowLayer, float] | None:
        """The layer whose result is the least exact, and its SQNR in dB; None if nothing tells."""
        told = [(one, one.result_error.sqnr_db) for one in self.layers if one.result_error]
        known = [item for item in told if not math.isnan(item[1])]
        return min(known, key=lambda item: item[1], default=None)

    @property
    def schema(
        self,
    ) -> Annotated[
        Literal["nmpsim-shadow-1"],
        "`nmpsim-shadow-1`: version of this part of the report",
        Before("float_weights"),
    ]:
        """Version of this part of the JSON report."""
        return SHADOW_SCHEMA
