"""Cycles of layers as a function of the settings that a fit may change."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle import Bundle
from nmpsim.config import SETTINGS, DeviceConfig, make_device_config
from nmpsim.core.engine import Engine
from nmpsim.core.engine_selection import make_engine
from nmpsim.core.run import Progress, ProgressCallback
from nmpsim.core.savings import simulate_layer_cycles
from nmpsim.diagnostics import UserError, fail
from nmpsim.fitting.measurements import LayerKey
from nmpsim.records import frozen
from nmpsim.timing import Costs, get_costs

# Parameters of a fit: the assumed settings of a device that change cycles.

DOUBLED = (
    "mac_out_lanes",
    "mac_in_lanes",
    "vector_lanes",
    "queues_depth",
    "dram_burst_bytes",
    "dram_row_bytes",
)
"""Settings that a fit halves and doubles: cycles hardly change with smaller steps."""
_STEP = 0.15
"""Relative step of any other setting for a derivative; at least 1."""


@frozen
class FitParameter:
    """Parameter of a fit: an assumed device setting, which varies on a logarithmic scale."""

    setting: str
    value: int
    """Assumed value."""

    @property
    def is_doubled(self) -> bool:
        """Whether the fit only doubles and halves the setting."""
        return self.setting in DOUBLED

    @property
    def bounds(self) -> tuple[float, float]:
        """Lower and upper bound on the logarithmic scale."""
        limits = SETTINGS[self.setting]
        return self.to_scale(limits.low), self.to_scale(limits.high)

    def to_scale(self, value: int) -> float:
        """Return the logarithm of a value, or of the value plus 1 if the setting may be 0."""
        return math.log(value + self._shift)

    def from_scale(self, number: float) -> int:
        """Return the valid setting nearest to ``number``, a logarithm from :meth:`to_scale`."""
        limits = SETTINGS[self.setting]
        if self.is_doubled:
            return self._double(round((number - self.to_scale(self.value)) / math.log(2)))
        return min(max(round(math.exp(number) - self._shift), limits.low), limits.high)

    def list_neighbours(self, value: int) -> list[int]:
        """Return the next smaller and larger values that a fit tries."""
        limits = SETTINGS[self.setting]
        if self.is_doubled:
            near = [value // 2, value * 2]
        else:
            step = max(1, round(_STEP * value))
            near = [value - step, value - 1, value + 1, value + step]
        return [one for one in dict.fromkeys(near) if limits.low <= one <= limits.high]

    @property
    def _shift(self) -> int:
        return 1 if SETTINGS[self.setting].low == 0 else 0

    def _double(self, times: int) -> int:
        """Return the assumed value, doubled or halved ``times`` times within its limits."""
        limits, value = SETTINGS[self.setting], self.value
        for _ in range(abs(times)):
            changed = value * 2 if times > 0 else value // 2
            if not limits.low <= changed <= limits.high:
                break
            value = changed
        return value


def list_parameters(device: DeviceConfig) -> list[FitParameter]:
    """Return a parameter for each assumed setting that determines cycles of device layers."""
    return [
        FitParameter(name, int(getattr(device, name)))
        for name in Costs._fields
        if name in SETTINGS and name != "limits_cycles" and device.sources.get(name) == "assumed"
    ]


Float64s = npt.NDArray[np.float64]
_USUAL_SIMULATIONS = 25
"""Usual number of simulations for each parameter, for the progress bar."""


@attrs.define(eq=False)
class CycleModel:
    """Model that predicts the cycles of layers from device settings by cached simulations."""

    programs: Sequence[Bundle]
    paths: Sequence[str]
    """Paths of the programs, for messages."""
    layers: Sequence[LayerKey]
    """Layers whose cycles are predicted."""
    device: DeviceConfig
    parameters: Sequence[FitParameter]
    progress: ProgressCallback | None = None
    _engine: Engine = attrs.field(factory=lambda: make_engine("compiled", 1))
    _known: dict[tuple[int, ...], Float64s | None] = attrs.field(factory=dict)

    @property
    def simulations(self) -> int:
        """Number of different devices that were simulated."""
        return len(self._known)

    def predict(self, values: tuple[int, ...]) -> Float64s | None:
        """Predict the cycles [layers] for parameter values; return None if the values are invalid.

        Raises
        ------
        UserError
            FIT001 if the cycles of a program depend on data.
        """
        if values not in self._known:
            self._known[values] = self._simulate(values)
            if self.progress:
                total = max(_USUAL_SIMULATIONS * len(self.parameters), self.simulations)
                self.progress(Progress("simulation", self.simulations, total, "simulations"))
        return self._known[values]

    def _simulate(self, values: tuple[int, ...]) -> Float64s | None:
        changes = {one.setting: value for one, value in zip(self.parameters, values, strict=True)}
        try:
            device = make_device_config({**self.device.settings(), **changes})
        except UserError:
            return None
        cycles = []
        for program, path in zip(self.programs, self.paths, strict=True):
            found = simulate_layer_cycles(self._engine, program, device, get_costs(device))
            if found is None:
                raise fail(
                    "FIT001",
                    "the cycles of the program depend on data",
                    place=path,
                    expected="a program whose scalar instructions do not access memory",
                    hint="Remove the program from the file of measured cycles.",
                )
            cycles.append(found)
        return np.array([max(cycles[key.program][key.layer], 1) for key in self.layers], np.float64)
