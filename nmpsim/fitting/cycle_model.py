"""Cycles of layers as a function of device settings, by simulation without values."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle import Bundle
from nmpsim.config import DeviceConfig, make_device_config
from nmpsim.core.engine import Engine
from nmpsim.core.engine_selection import make_engine
from nmpsim.core.run import Progress, ProgressCallback
from nmpsim.core.savings import simulate_layer_cycles
from nmpsim.diagnostics import UserError, fail
from nmpsim.fitting.measurements import LayerKey
from nmpsim.fitting.parameters import FitParameter
from nmpsim.timing import get_costs

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
