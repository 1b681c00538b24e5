"""Parts of a report that are made on request: shadow, sensitivity, histograms, recordings."""

from __future__ import annotations

import math
from typing import Annotated, Final, Literal

from nmpsim.records import frozen
from nmpsim.report.fields import AS_LISTS, Count, Finite, Real, Share, Whole, WrittenBefore

SHADOW_SCHEMA: Final = "nmpsim-shadow-2"
"""Version of this part of the JSON report."""


@frozen
class ErrorSize:
    """Size of an error: SQNR in dB, and mean and largest absolute error."""

    sqnr_db: Annotated[Real, 'signal to quantization noise in dB; `"Infinity"` without error']
    mean_error_ulp: Annotated[
        Real | None,
        "mean absolute error in units of the last place of the layer's output; null if it is float",
    ]
    max_error_ulp: Annotated[
        Real | None,
        "largest absolute error in units of the last place; null if the output is float",
    ]


@frozen
class Split:
    """Split of a layer's accumulated error into the errors of each source.

    The first three are None without float weights.
    """

    inherited: Annotated[
        ErrorSize | None,
        "error of earlier layers: an [error_size](#error_size)",
    ]
    bias: Annotated[ErrorSize | None, "quantization of the bias"]
    weights: Annotated[ErrorSize | None, "quantization of the weights"]
    saturation: Annotated[ErrorSize, "values beyond the range of the output, or saturated before"]
    rescale: Annotated[ErrorSize, "error of rounding during rescaling"]


@frozen
class ShadowLayer:
    """Layer of a shadow report, with the errors of its output; unmeasured errors are None."""

    index: Annotated[Count, "position in `layers` of the report"]
    number: Annotated[Count, "number of the LIR instruction whose output it is"]
    name: Annotated[str, "its name"]
    not_compared: Annotated[str, "why it was not compared; usually empty"] = ""
    accumulated: Annotated[
        ErrorSize | None,
        "error of the network up to this layer: an [error_size](#error_size)",
    ] = None
    isolated: Annotated[
        ErrorSize | None, "error against this layer in float on its actual inputs"
    ] = None
    rounding: Annotated[
        ErrorSize | None,
        "error against this layer in real arithmetic, with its quantized weights and bias",
    ] = None
    bias: Annotated[
        ErrorSize | None,
        "error of quantizing the bias; null for a layer without bias",
    ] = None
    split: Annotated[Split | None, "the parts of the accumulated error: a [split](#split)"] = None

    @property
    def result_error(self) -> ErrorSize | None:
        """Accumulated error of the output, or the rounding error if float weights are missing."""
        return self.accumulated or self.rounding

    @property
    def isolated_error(self) -> ErrorSize | None:
        """Isolated error of the layer, or the rounding error if the isolated error is unknown."""
        return self.isolated or self.rounding


@frozen
class FloatWeight:
    """Float array of a quantized constant, with its name, layout and largest error."""

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
    fault: Annotated[
        str,
        "form of the array that the constant has by mistake: `zero`, or for example `the kernel's"
        " two axes swapped`; usually empty",
    ] = ""


@frozen
class ShadowReport:
    """Report of the errors of a run's layers against real arithmetic."""

    float_weights: Annotated[str | None, "file of the float weights, or `the bundle`; null without"]
    constants: Annotated[
        tuple[FloatWeight, ...],
        "list: each quantized constant for which float values were found, a"
        " [float_weight](#float_weight)",
    ]
    unmatched: Annotated[
        tuple[str, ...],
        "names of the quantized constants without float values; their error is unknown",
    ]
    layers: Annotated[
        tuple[ShadowLayer, ...],
        "list of [shadow_layer](#shadow_layer), in program order; a layer that a stopped run did"
        " not reach is missing",
    ]

    def rank_lossy_layers(self) -> list[ShadowLayer]:
        """Return the layers whose isolated error is not zero, ranked by ascending SQNR."""
        errors = [(one.isolated_error.sqnr_db, one) for one in self.layers if one.isolated_error]
        lossy = [item for item in errors if item[0] < math.inf]
        return [one for _, one in sorted(lossy, key=lambda item: item[0])]

    def find_worst_layer(self) -> tuple[ShadowLayer, float] | None:
        """Return the layer with the lowest SQNR and this SQNR in dB; None if no SQNR is known."""
        errors = [(one, one.result_error.sqnr_db) for one in self.layers if one.result_error]
        known = [item for item in errors if not math.isnan(item[1])]
        return min(known, key=lambda item: item[1], default=None)

    @property
    def schema(
        self,
    ) -> Annotated[
        Literal["nmpsim-shadow-2"],
        "`nmpsim-shadow-2`: version of this part of the report",
        WrittenBefore("float_weights"),
    ]:
        """Schema version of the shadow report within the JSON report."""
        return SHADOW_SCHEMA


SENSITIVITY_SCHEMA: Final = "nmpsim-sensitivity-1"
"""Version of this part of the JSON report."""


@frozen
class MovedSetting:
    """Setting whose value was changed, and the cycles of a run with this value."""

    value: Annotated[Count, "value of the setting"]
    cycles: Annotated[
        Whole | None, "cycles of the run; null if the program does not fit, or trapped"
    ]


@frozen
class SettingEffect:
    """Effect of a setting on the cycles of a run."""

    setting: Annotated[str, "name, such as `dram_bytes_per_cycle`"]
    value: Annotated[Count, "value of the setting in the device file"]
    lower: Annotated[
        MovedSetting | None,
        "a [moved_setting](#moved_setting); null if the setting can be no lower",
    ]
    higher: Annotated[
        MovedSetting | None,
        "a [moved_setting](#moved_setting); null if the setting can be no higher",
    ]
    program: Annotated[
        Literal["same", "recompiled"],
        "`same`, or `recompiled` where the program's tiling depends on the setting",
    ]
    effect: Annotated[Share, "the larger change of cycles, as a share of `cycles`"]


@frozen
class SkippedSetting:
    """Assumed setting that was not varied, and the reason."""

    setting: Annotated[str, "name"]
    reason: Annotated[str, "why it was not varied"]


@frozen
class SensitivityReport:
    """Report of how each assumed device setting affects the cycles of a run."""

    cycles: Annotated[Count, "cycles of the run with the settings of the device"]
    share: Annotated[Finite, "relative change of the settings: 0.2"]
    effects: Annotated[
        tuple[SettingEffect, ...],
        "list, largest effect first: a [setting_effect](#setting_effect) for each setting",
    ]
    skipped: Annotated[
        tuple[SkippedSetting, ...],
        "list of assumed settings that were not varied: a [skipped_setting](#skipped_setting)",
    ]

    @property
    def schema(
        self,
    ) -> Annotated[
        Literal["nmpsim-sensitivity-1"],
        "`nmpsim-sensitivity-1`: version of this part of the report",
        WrittenBefore("cycles"),
    ]:
        """Schema version of the sensitivity report within the JSON report."""
        return SENSITIVITY_SCHEMA


Unit = Literal["load", "store", "mac", "vector"]
UNITS: tuple[Unit, ...] = ("load", "store", "mac", "vector")
"""Units of a core, in the order of their numbers."""
MAX_CORES = 1024
"""Largest number of cores in a report, which is untrusted; devices have at most 64."""


@frozen
class Histogram:
    """Histogram of the stored values of a layer's output, in bins of equal width."""

    index: Annotated[Count, "position in `layers` of the report"]
    name: Annotated[str, "name of the layer"]
    low: Annotated[Finite, "start of the first bin"]
    width: Annotated[
        Share, "width of a bin, which includes its start, and the last one also its end"
    ]
    counts: Annotated[tuple[Count, ...], "list: values in each bin"]
    not_finite: Annotated[Count, "infinities and NaN of a float output, which no bin can hold"] = 0


@frozen
class MemoryBlock:
    """Block of DRAM that contains a tensor, and the first and last layer that use it."""

    name: Annotated[
        str, "of the tensor in the LIR; of a part of the program, the section of the bundle"
    ]
    kind: Annotated[
        Literal["program", "input", "output", "activation"],
        "`program` (read-only: code, descriptors, constants), `input`, `output` or `activation`",
    ]
    address: Annotated[Count, "first address"]
    nbytes: Annotated[Count, "size in bytes"]
    first: Annotated[Count, "index of the first layer that uses it"]
    last: Annotated[Count, "index of the last layer that uses it"]


BlockKind = Literal["loaded", "computed", "both"]
"""Source of data in a scratchpad: a load, a computing unit, or both."""


@frozen
class ScratchpadBlock:
    """Block of scratchpad bytes that one layer wrote on one or more cores."""

    layer: Annotated[Count, "index of the layer that wrote it"]
    kind: Annotated[
        BlockKind,
        "`loaded` (by load DMA), `computed` (results and running sums), or `both`, one after the"
        " other or in different cores",
    ]
    begin: Annotated[Count, "first byte, from the start of the scratchpad"]
    end: Annotated[Count, "byte after the last"]
    cores: Annotated[Count, "number of cores with this range"]


@frozen
class WorkSpan:
    """Span of cycles in which one unit of a core works for one layer."""

    core: Count
    unit: Unit
    layer: Count | None
    """Index of the layer, or None if unknown."""
    begin: Count
    """First cycle."""
    end: Count
    """The cycle after the last."""
    busy: Count
    """Busy cycles between the two."""


@frozen
class Timeline:
    """Timeline of the units of all cores, as spans of work; adjacent spans may be joined."""

    resolution: Annotated[
        Count,
        "a span includes pauses of at most this many cycles; 0 if each work item has its own span",
    ]
    spans: Annotated[
        tuple[WorkSpan, ...],
        "list of `[core, unit, layer, begin, end, busy]`: the unit (`load`, `store`, `mac`,"
        " `vector`) of a core worked for a layer (its index, or null) from cycle `begin` until"
        " before `end`, and was busy for `busy` cycles of these",
        AS_LISTS,
    ]
