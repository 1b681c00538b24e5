"""Errors of a layer over a data set: sums over samples for each channel of its output.

The evaluations F, L, B, R, C of a layer and the causes of its error are those of
:mod:`nmpsim.analysis.shadow.compare`. The memory does not depend on the number of samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.shadow.evaluate import Evaluations
from nmpsim.analysis.shadow.evaluate import Real as RealArray
from nmpsim.arrays import Array
from nmpsim.interpreter import convert_to_decibels
from nmpsim.kernels.array_types import Float64s, Int64s
from nmpsim.lir.nodes import TensorType
from nmpsim.records import frozen
from nmpsim.report.fields import Count, Finite, Real

CAUSES = ("inherited", "bias", "weights", "saturation", "rescale")
"""Parts of an error, in the order of a layer's evaluations."""
ERRORS = ("error", "isolated", *CAUSES)
RANGE_STEPS = 255
"""The used share of a type's range is counted in this number of steps, exactly for Int8."""
_ISOLATED_REFERENCE = "isolated_reference"
"""Key of the energy of the layer in float on its actual inputs."""
_ENERGIES = ("reference", _ISOLATED_REFERENCE, *ERRORS)
_ENERGIES_WITHOUT_FLOATS = ("reference", "error", "saturation", "rescale")
QUANTILES = (0.05, 0.5, 0.95)


@attrs.frozen(eq=False)
class ChannelErrors:
    """Sums over samples of the errors in each channel of a layer; all arrays are [channels]."""

    samples: int
    elements: int
    """Values of each channel in all samples."""
    energies: dict[str, Float64s]
    """Sum of squares of the ``reference`` and of each known error of ``ERRORS``; the isolated
    error has a reference of its own."""
    total: Float64s
    """Sum of errors."""
    absolute: Float64s
    """Sum of absolute errors."""
    largest: Float64s
    """Largest absolute error."""
    saturated: Int64s
    """Number of saturated values."""
    ranges: Int64s
    """[RANGE_STEPS + 1] number of samples by the share of the type's range that they use."""

    @classmethod
    def from_sample(
        cls, values: Evaluations, stored: Array, type_: TensorType, saturated: Mapping[int, int]
    ) -> ChannelErrors:
        """Return the sums of a single sample.

        Parameters
        ----------
        values
            Evaluations of the layer in real arithmetic.
        stored
            The output of the device as it is stored, in the shape of ``type_``.
        type_
            Type of the output; its last dimension counts channels.
        saturated
            Number of saturated values by channel.
        """
        channels = type_.shape[-1] if type_.shape else 1
        reference = values.real if values.network is None else values.network
        error = (values.device - reference).reshape(-1, channels)
        size = np.abs(error)
        energies = {"reference": _sum_squares(reference, None, channels)}
        steps = (
            *(values.network, values.isolated, values.quantized_bias),
            *(values.real, values.in_range, values.device),
        )
        pairs = {
            "error": (values.device, reference),
            "isolated": (values.device, values.isolated),
            **dict(zip(CAUSES, zip(steps[1:], steps[:-1], strict=True), strict=True)),
        }
        for name, (found, expected) in pairs.items():
            if found is not None and expected is not None:
                energies[name] = _sum_squares(found, expected, channels)
        if values.isolated is not None:
            energies[_ISOLATED_REFERENCE] = _sum_squares(values.isolated, None, channels)
        counts = np.zeros(channels, np.int64)
        for channel, count in saturated.items():
            counts[channel] += count
        ranges = np.zeros(RANGE_STEPS + 1, np.int64)
        if type_.quant is not None:
            limits = np.iinfo(type_.dtype)
            used = int(stored.max()) - int(stored.min())
            ranges[used * RANGE_STEPS // (limits.max - limits.min)] = 1
        return cls(
            samples=1,
            elements=len(error),
            energies=energies,
            total=error.sum(axis=0),
            absolute=size.sum(axis=0),
            largest=size.max(axis=0, initial=0.0),
            saturated=counts,
            ranges=ranges,
        )

    def add(self, more: ChannelErrors) -> ChannelErrors:
        """Return the sums with those of other samples."""
        return ChannelErrors(
            samples=self.samples + more.samples,
            elements=self.elements + more.elements,
            energies={name: self.energies[name] + more.energies[name] for name in self.energies},
            total=self.total + more.total,
            absolute=self.absolute + more.absolute,
            largest=np.maximum(self.largest, more.largest),
            saturated=self.saturated + more.saturated,
            ranges=self.ranges + more.ranges,
        )


def _sum_squares(values: RealArray, others: RealArray | None, channels: int) -> Float64s:
    """Return the sum of squares of each channel, of values or of their difference to others."""
    if others is values:
        return np.zeros(channels)
    difference = (values if others is None else values - others).reshape(-1, channels)
    return np.asarray(np.einsum("ij,ij->j", difference, difference))


@frozen
class ErrorMeasures:
    """Measures of an error over a data set, of a layer or of one of its channels."""

    sqnr_db: Annotated[
        Mapping[str, Real],
        "signal to quantization noise in dB, of the `error`, of the layer by itself (`isolated`)"
        " and by cause: `inherited`, `bias`, `weights`, `saturation`, `rescale`; the first four"
        " need float weights",
    ]
    rmse_ulp: Annotated[
        Finite | None, "root mean square error in units of the last place; null for float outputs"
    ]
    bias_ulp: Annotated[Finite | None, "mean error, with its sign"]
    mean_error_ulp: Annotated[Finite | None, "mean absolute error"]
    max_error_ulp: Annotated[Finite | None, "largest absolute error"]
    saturated: Annotated[Count, "saturated values"]
    elements: Annotated[Count, "values"]

    @property
    def shares(self) -> Mapping[str, float]:
        """Share of each known cause in the sum of the energies of all causes; 0 without error."""
        decibels = {cause: self.sqnr_db[cause] for cause in CAUSES if cause in self.sqnr_db}
        energies = {cause: 10 ** (-value / 10) for cause, value in decibels.items()}
        if not 0 < sum(energies.values()) < np.inf:
            return {cause: float(value == -np.inf) for cause, value in decibels.items()}
        return {cause: energy / sum(energies.values()) for cause, energy in energies.items()}


class RangeDocument(TypedDict):
    """Share of the type's range that a sample's output uses, over all samples."""

    mean: Finite
    least: Finite
    quantiles: Annotated[dict[str, Finite], "by quantile: 0.05, 0.5 and 0.95"]
    most: Finite


@attrs.frozen(eq=False)
class LayerErrors:
    """Errors of one layer over a data set."""

    name: str
    display_name: str
    operation: str
    step: float | None
    """Real size of a unit of the last place; None for a float output."""
    not_compared: str = ""
    """Why the layer has no errors; usually empty."""
    channel_count: int = 1
    """Number of channels: the last dimension of the output."""
    sums: ChannelErrors | None = None
    """None before the first sample."""

    @property
    def measures(self) -> ErrorMeasures | None:
        """Measures of the whole layer, or None if it is not compared."""
        if self.sums is None:
            return None
        sums = self.sums
        return self._measure(
            {name: float(energy.sum()) for name, energy in sums.energies.items()},
            sums.elements * len(sums.total),
            (float(sums.total.sum()), float(sums.absolute.sum())),
            float(sums.largest.max()),
            int(sums.saturated.sum()),
        )

    @property
    def channels(self) -> list[ErrorMeasures]:
        """Measures of each channel."""
        if self.sums is None:
            return []
        sums = self.sums
        return [
            self._measure(
                {name: float(energy[channel]) for name, energy in sums.energies.items()},
                sums.elements,
                (float(sums.total[channel]), float(sums.absolute[channel])),
                float(sums.largest[channel]),
                int(sums.saturated[channel]),
            )
            for channel in range(len(sums.total))
        ]

    @property
    def used_range(self) -> RangeDocument | None:
        """Share of the type's range that the output of a sample uses; None for float outputs."""
        if self.sums is None or not self.sums.ranges.any():
            return None
        counts = self.sums.ranges
        shares = np.arange(counts.size) / RANGE_STEPS
        used, reached = shares[counts > 0], np.cumsum(counts)
        return RangeDocument(
            mean=float(shares @ counts / counts.sum()),
            least=float(used[0]),
            quantiles={
                str(part): float(shares[np.searchsorted(reached, part * reached[-1])])
                for part in QUANTILES
            },
            most=float(used[-1]),
        )

    def add(self, more: LayerErrors) -> LayerErrors:
        """Return the errors with those of other samples."""
        if self.sums is None or more.sums is None:
            return more if self.sums is None and not self.not_compared else self
        return attrs.evolve(self, sums=self.sums.add(more.sums))

    def _measure(
        self,
        energies: Mapping[str, float],
        elements: int,
        totals: tuple[float, float],
        largest: float,
        saturated: int,
    ) -> ErrorMeasures:
        def in_steps(value: float) -> float | None:
            return None if self.step is None else value / self.step

        total, absolute = totals
        return ErrorMeasures(
            sqnr_db={
                name: convert_to_decibels(
                    energies[_ISOLATED_REFERENCE if name == "isolated" else "reference"],
                    energies[name],
                )
                for name in ERRORS
                if name in energies
            },
            rmse_ulp=in_steps((energies["error"] / elements) ** 0.5),
            bias_ulp=in_steps(total / elements),
            mean_error_ulp=in_steps(absolute / elements),
            max_error_ulp=in_steps(largest),
            saturated=saturated,
            elements=elements,
        )


class SumsDocument(TypedDict):
    """Sums from which the measures of each channel follow; lists by channel."""

    samples: int
    elements: Annotated[int, "values of each channel in all samples"]
    energies: Annotated[
        dict[str, list[float]], "sum of squares of the `reference` and of each error"
    ]
    total: Annotated[list[float], "sum of errors"]
    absolute: Annotated[list[float], "sum of absolute errors"]
    largest: Annotated[list[float], "largest absolute error"]
    saturated: Annotated[list[int], "saturated values"]
    ranges: Annotated[
        list[int], "number of samples that use a share of 0, 1/255, 2/255, ... of the type's range"
    ]


class LayerErrorsDocument(TypedDict):
    """Document with the errors of one layer over a data set."""

    name: str
    display_name: str
    operation: str
    step: Annotated[Finite | None, "real size of a unit of the last place; null for float outputs"]
    not_compared: Annotated[str, "why the layer has no errors; usually empty"]
    measures: ErrorMeasures | None
    used_range: RangeDocument | None
    sums: SumsDocument | None


def read_sums(layer: LayerErrors, document: Mapping[str, Any] | None) -> ChannelErrors | None:
    """Return the sums of a layer from a results file, or None if the file has none.

    Raises KeyError, TypeError or ValueError if the document is damaged.
    """
    if document is None:
        return None
    names = [name for name in _ENERGIES if name in document["energies"]]
    found = ChannelErrors(
        samples=int(document["samples"]),
        elements=int(document["elements"]),
        energies={name: _array(document["energies"][name]) for name in names},
        total=_array(document["total"]),
        absolute=_array(document["absolute"]),
        largest=_array(document["largest"]),
        saturated=_array(document["saturated"], np.int64),
        ranges=_array(document["ranges"], np.int64),
    )
    if found.energies.keys() not in (set(_ENERGIES), set(_ENERGIES_WITHOUT_FLOATS)):
        raise ValueError(f"energies {', '.join(names)}")
    by_channel = (found.total, found.absolute, found.largest, found.saturated)
    if any(len(one) != layer.channel_count for one in (*by_channel, *found.energies.values())):
        raise ValueError("numbers of channels")
    not_negative = (found.absolute, found.largest, found.saturated, found.ranges)
    if (
        min(found.samples, found.elements) < 1
        or len(found.ranges) != RANGE_STEPS + 1
        or any((one < 0).any() for one in (*not_negative, *found.energies.values()))
    ):
        raise ValueError("sums")
    return found


def _array(values: Sequence[float], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    found = np.array(values, dtype)
    if found.ndim != 1 or not np.isfinite(found).all():
        raise ValueError("not a list of finite numbers")
    return found
