"""Fit of assumed settings to measured cycles: bounded least squares over integers.

The fit minimizes relative errors of cycles in units of the noise, and changes of settings from
their assumed values in units of a factor of two. Without the second term, settings that the
measurements do not determine would take any value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import attrs
import numpy as np

from nmpsim.config import DeviceConfig
from nmpsim.core.run import ProgressCallback
from nmpsim.diagnostics import fail
from nmpsim.extras import require_extra
from nmpsim.fitting.cycle_model import CycleModel, FitParameter, Float64s, list_parameters
from nmpsim.fitting.measurements import LayerKey, Measurements
from nmpsim.records import frozen
from nmpsim.report.fields import AT_END, NOT_IN_JSON, WrittenBefore

NOISE = 0.02
"""Assumed relative standard deviation of measured cycles."""
PRIOR = math.log(2)
"""Assumed standard deviation of settings on the logarithmic scale."""
DETERMINED = 0.25
"""Relative uncertainty up to which the measurements determine a setting."""
_MISFIT = 1.5
"""Mean squared error, in units of the noise, from which on the search has several starts."""
_EFFECTIVE = 3.0
"""Smallest change of all measured cycles, in units of the noise, for a change of a setting."""
_STARTS = 12
"""Number of combinations of doubled settings from which a pass of the search starts."""
_MAX_STEPS = 12
_MIN_RADIUS = 0.03
_MAX_PASSES = 4
_NEXT_LAYERS = 3

Values = tuple[int, ...]


@frozen
class FittedSetting:
    """Fitted setting: its value before and after the fit, and the uncertainty of the value."""

    setting: Annotated[str, "`dram_latency_cycles` is `latency_cycles` of `[dram]`"]
    before: int
    after: int
    uncertainty: Annotated[float, "relative standard deviation of the fitted value"]

    @property
    def is_determined(
        self,
    ) -> Annotated[bool, "whether the measurements determine the value", AT_END]:
        """Whether the measurements determine the setting: its uncertainty is at most 0.25."""
        return self.uncertainty <= DETERMINED


@frozen
class FittedLayer:
    """Measured layer of a fit, with its simulated cycles before and after the fit."""

    program: str
    layer: str
    measured: Annotated[float, "measured cycles"]
    before: Annotated[int, "cycles on the device before the fit"]
    after: Annotated[int, "cycles on the fitted device"]


@frozen
class NextLayer:
    """Layer to measure next, and the information that its measurement would add."""

    program: str
    layer: str
    information: Annotated[float, "logarithm by which the volume of possible settings shrinks"]
    setting: Annotated[str, "setting whose uncertainty shrinks most"]


@frozen
class FitResult:
    """Result of a fit: the device, its settings, and the layers; also the JSON document."""

    device: Annotated[DeviceConfig, NOT_IN_JSON]
    settings: tuple[FittedSetting, ...]
    layers: tuple[FittedLayer, ...]
    next_layers: Annotated[tuple[NextLayer, ...], "layers to measure next, best first"]
    simulations: Annotated[int, "number of simulated devices"]

    @property
    def schema(self) -> Annotated[Literal["nmpsim-fit-1"], WrittenBefore("settings")]:
        """Version of the JSON document."""
        return "nmpsim-fit-1"

    @property
    def median_error_before(
        self,
    ) -> Annotated[
        float,
        "median relative error of the measured layers on the device before the fit",
        WrittenBefore("simulations"),
    ]:
        """Median relative error of the simulated cycles before the fit."""
        return float(np.median([abs(one.before / one.measured - 1) for one in self.layers]))

    @property
    def median_error(
        self,
    ) -> Annotated[
        float,
        "median relative error of the measured layers on the fitted device",
        WrittenBefore("simulations"),
    ]:
        """Median relative error of the simulated cycles after the fit."""
        return float(np.median([abs(one.after / one.measured - 1) for one in self.layers]))

    def make_notes(self) -> dict[str, str]:
        """Make a note for each setting by name: its uncertainty, or that it is undetermined."""
        return {
            one.setting: f"fitted, standard deviation {one.uncertainty:.0%}"
            if one.is_determined
            else "not determined by the measurements"
            for one in self.settings
        }


def fit_device(
    device: DeviceConfig, measurements: Measurements, progress: ProgressCallback | None = None
) -> FitResult:
    """Fit the assumed settings of a device to measured cycles of layers.

    Raises
    ------
    UserError
        PKG001 without SciPy; FIT001 if no setting is assumed, or cycles depend on data.
    """
    with require_extra("fit", "fitting a device needs SciPy"):
        from scipy.optimize import lsq_linear
    parameters = list_parameters(device)
    if not parameters:
        raise fail(
            "FIT001",
            "the device has no assumed setting that affects cycles",
            expected='a setting with source = "assumed"',
            hint='Write source = "assumed" for each setting that the fit may change.',
        )
    layers = measurements.list_layers()
    model = CycleModel(
        measurements.programs, measurements.paths, layers, device, parameters, progress
    )
    search = _Search(model, measurements, lsq_linear)
    return search.make_result(device, measurements, search.find_best())


@attrs.define(eq=False)
class _Search:
    """Search for the values of parameters with the smallest cost."""

    _model: CycleModel
    _measurements: Measurements
    _lsq_linear: Callable[..., Any]
    _rows: list[int] = attrs.field(init=False)
    """Indices of the measured layers among those of the model."""
    _logs: Float64s = attrs.field(init=False)
    """Logarithms of the measured cycles."""

    def __attrs_post_init__(self) -> None:
        cycles = self._measurements.cycles
        self._rows = [row for row, key in enumerate(self._model.layers) if key in cycles]
        self._logs = np.log([cycles[self._model.layers[row]] for row in self._rows])

    @property
    def _parameters(self) -> Sequence[FitParameter]:
        return self._model.parameters

    def find_best(self) -> Values:
        """Return the values with the smallest cost that the search finds."""
        best = self._descend(tuple(one.value for one in self._parameters))
        for _ in range(_MAX_PASSES):
            starts, jacobian = self._list_starts(best), self.compute_jacobian(best)
            near = [self._descend(start, jacobian) for start in starts]
            found = self._polish(self._descend(min([best, *near], key=self._cost)))
            if found == best and not self._fits(best):
                found = min([best, *map(self._descend, starts)], key=self._cost)
            if found == best:
                break
            best = found
        return best

    def _fits(self, values: Values) -> bool:
        """Return whether the errors of the measured layers are as small as the noise."""
        residuals = self._compute_residuals(values)
        if residuals is None:
            return False
        errors = residuals[: len(self._rows)]
        return float(errors @ errors) <= _MISFIT * len(self._rows)

    def _cost(self, values: Values) -> float:
        residuals = self._compute_residuals(values)
        return math.inf if residuals is None else float(residuals @ residuals)

    def _compute_residuals(self, values: Values) -> Float64s | None:
        cycles = self._model.predict(values)
        if cycles is None:
            return None
        moved = self._scale(values) - self._scale(tuple(one.value for one in self._parameters))
        errors = np.log(cycles[self._rows]) - self._logs
        return np.concatenate([errors / NOISE, moved / PRIOR])

    def _scale(self, values: Values) -> Float64s:
        pairs = zip(self._parameters, values, strict=True)
        return np.array([one.to_scale(value) for one, value in pairs])

    def compute_jacobian(self, values: Values) -> Float64s:
        """Return the derivatives [layers, parameters] of the logarithms of cycles."""
        base = self._model.predict(values)
        assert base is not None
        jacobian = np.zeros((base.size, len(values)))
        for column, one in enumerate(self._parameters):
            for value in reversed(one.list_neighbours(values[column])):
                moved = self._model.predict(_replace(values, column, value))
                if moved is not None:
                    step = one.to_scale(value) - one.to_scale(values[column])
                    jacobian[:, column] = np.log(moved / base) / step
                    break
        return jacobian

    def _descend(self, values: Values, jacobian: Float64s | None = None) -> Values:
        """Return values after Gauss-Newton steps in a trust region, without doubled settings.

        With a ``jacobian``, it is not computed again.
        """
        is_fixed, radius = jacobian is not None, 1.0
        for _ in range(_MAX_STEPS):
            if jacobian is None:
                jacobian = self.compute_jacobian(values)
            candidate = self._step(values, jacobian, radius)
            if self._cost(candidate) < self._cost(values):
                values, radius = candidate, min(2 * radius, 2.0)
                jacobian = jacobian if is_fixed else None
                continue
            radius /= 3
            if radius < _MIN_RADIUS:
                break
        return values

    def _step(self, values: Values, jacobian: Float64s, radius: float) -> Values:
        residuals = self._compute_residuals(values)
        if residuals is None:  # settings of a start that contradict each other
            return values
        matrix = np.vstack([jacobian[self._rows] / NOISE, np.eye(len(values)) / PRIOR])
        at = self._scale(values)
        low, high = np.array([one.bounds for one in self._parameters]).T
        radii = np.array([0.0 if one.is_doubled else radius for one in self._parameters])
        bounds = np.maximum(low - at, -radii) - 1e-9, np.minimum(high - at, radii) + 1e-9
        moved = at + self._lsq_linear(matrix, -residuals, bounds).x
        pairs = zip(self._parameters, moved.tolist(), strict=True)
        return tuple(one.from_scale(number) for one, number in pairs)

    def _list_starts(self, values: Values) -> list[Values]:
        """Return values with settings halved or doubled that fit best after a linear adjustment.

        All other settings are adjusted by a linear model without bounds.
        """
        residuals = self._compute_residuals(values)
        assert residuals is not None
        others = [i for i, one in enumerate(self._parameters) if not one.is_doubled]
        measured = len(self._rows)
        matrix = np.zeros((residuals.size, len(others)))
        matrix[:measured] = self.compute_jacobian(values)[np.ix_(self._rows, others)] / NOISE
        matrix[[measured + i for i in others], range(len(others))] = 1 / PRIOR
        remaining = np.eye(residuals.size) - matrix @ np.linalg.pinv(matrix)
        options = [
            [value, *self._list_effective(values, column)] if one.is_doubled else [value]
            for column, (one, value) in enumerate(zip(self._parameters, values, strict=True))
        ]
        costs: dict[Values, float] = {}
        for combination in itertools.product(*options):
            moved = self._compute_residuals(combination)
            if moved is not None and combination != values:
                costs[combination] = float(np.linalg.norm(remaining @ moved))
        return sorted(costs, key=costs.__getitem__)[:_STARTS]

    def _list_effective(self, values: Values, column: int) -> list[int]:
        """Return the neighbours of a setting that change cycles by more than the noise."""
        residuals, found = self._compute_residuals(values), []
        assert residuals is not None
        for value in self._parameters[column].list_neighbours(values[column]):
            moved = self._compute_residuals(_replace(values, column, value))
            if moved is not None and np.linalg.norm(moved - residuals) > _EFFECTIVE:
                found.append(value)
        return found

    def _polish(self, values: Values) -> Values:
        """Return the values after changes of single settings, as long as the cost decreases."""
        for _ in range(_MAX_PASSES):
            before = values
            for column, one in enumerate(self._parameters):
                near = (_replace(values, column, v) for v in one.list_neighbours(values[column]))
                values = min([values, *near], key=self._cost)
            if values == before:
                break
        return values

    def make_result(
        self, device: DeviceConfig, measurements: Measurements, values: Values
    ) -> FitResult:
        """Return the result of the fit with the best values."""
        jacobian = self.compute_jacobian(values)
        scaled = jacobian / NOISE
        known = scaled[self._rows]
        inverse = known.T @ known + np.eye(len(values)) / PRIOR**2
        covariance: Float64s = np.linalg.inv(inverse).astype(np.float64)
        spread = np.sqrt(np.diag(covariance))
        for column, deviation in self._compare_doubled(values, jacobian).items():
            spread[column] = max(spread[column], deviation)
        settings = tuple(
            FittedSetting(one.setting, one.value, value, math.expm1(deviation))
            for one, value, deviation in zip(self._parameters, values, spread, strict=True)
        )
        first = self._model.predict(tuple(one.value for one in self._parameters))
        last = self._model.predict(values)
        assert first is not None and last is not None
        layers = tuple(
            FittedLayer(
                *self._name(measurements, self._model.layers[row]),
                measurements.cycles[self._model.layers[row]],
                int(first[row]),
                int(last[row]),
            )
            for row in self._rows
        )
        return FitResult(
            make_fitted_device(device, settings),
            settings,
            layers,
            self._rank_next(measurements, scaled, covariance),
            self._model.simulations,
        )

    def _compare_doubled(self, values: Values, jacobian: Float64s) -> dict[int, float]:
        """Return the standard deviation of doubled settings by column, on the logarithmic scale.

        It follows from the increase of the cost if the setting has another value and all other
        settings are adjusted.
        """
        columns = [column for column, one in enumerate(self._parameters) if one.is_doubled]
        starts = self._list_starts(values)
        for column in columns:
            near = self._parameters[column].list_neighbours(values[column])
            starts += [_replace(values, column, value) for value in near]
        found = [self._descend(start, jacobian) for start in starts]
        deviations = {}
        for column in columns:
            costs = [self._cost(one) for one in found if one[column] != values[column]]
            increase = max(min(costs, default=math.inf) - self._cost(values), 1.0)
            deviations[column] = math.log(2) / math.sqrt(increase)
        return deviations

    def _rank_next(
        self, measurements: Measurements, scaled: Float64s, covariance: Float64s
    ) -> tuple[NextLayer, ...]:
        """Return the layers whose measurement adds most information (D-optimal), best first."""
        found = []
        for row in sorted(set(range(len(self._model.layers))) - set(self._rows)):
            moved = covariance @ scaled[row]
            gain = float(np.log1p(scaled[row] @ moved))
            shares = moved**2 / np.diag(covariance)
            name = self._parameters[int(shares.argmax())].setting
            program, layer = self._name(measurements, self._model.layers[row])
            found.append(NextLayer(program, layer, gain, name))
        found.sort(key=lambda one: -one.information)
        return tuple(found[:_NEXT_LAYERS])

    def _name(self, measurements: Measurements, key: LayerKey) -> tuple[str, str]:
        return measurements.paths[key.program], measurements.get_layer_name(key)


def _replace(values: Values, column: int, value: int) -> Values:
    return (*values[:column], value, *values[column + 1 :])


def make_fitted_device(device: DeviceConfig, settings: Sequence[FittedSetting]) -> DeviceConfig:
    """Make the fitted device; the source of determined settings becomes ``measured``."""
    sources = {one.setting: "measured" for one in settings if one.is_determined}
    values: dict[str, Any] = {one.setting: one.after for one in settings}
    return attrs.evolve(device, **values, sources={**device.sources, **sources})
