"""Hidden devices and their measurements, for tests of fits."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from nmpsim.bundle import Bundle
from nmpsim.config import SETTINGS, DeviceConfig, make_device_config
from nmpsim.diagnostics import UserError
from nmpsim.fitting.cycle_model import CycleModel, Float64s, list_parameters
from nmpsim.fitting.fit import FitResult, fit_device
from nmpsim.fitting.measurements import LayerKey, Measurements

FACTOR = 2.0
"""Largest factor between a hidden setting and the assumed one."""


def draw_device(assumed: DeviceConfig, random: np.random.Generator) -> DeviceConfig:
    """Return a device whose assumed settings are changed by up to a factor of two."""
    while True:
        changes = {}
        for one in list_parameters(assumed):
            limits = SETTINGS[one.setting]
            if one.is_doubled:
                value = random.choice([one.value // 2, one.value, one.value * 2])
            else:
                value = round(one.value * FACTOR ** random.uniform(-1, 1))
            changes[one.setting] = int(np.clip(value, limits.low, limits.high))
        try:
            return make_device_config({**assumed.settings(), **changes})
        except UserError:  # settings that contradict each other
            continue


@attrs.frozen(eq=False)
class HiddenDevice:
    """Hidden device with the cycles of all layers, and the fit to some of them."""

    device: DeviceConfig
    cycles: Float64s
    """[layers]"""
    unseen: Float64s
    """Relative errors of the fitted device in layers without measurement."""
    result: FitResult


def simulate_cycles(
    device: DeviceConfig, programs: Sequence[Bundle], layers: Sequence[LayerKey]
) -> Float64s:
    """Return the cycles of layers on a device."""
    cycles = CycleModel(programs, [""] * len(programs), layers, device, ()).predict(())
    assert cycles is not None
    return cycles


def fit_hidden_device(
    assumed: DeviceConfig,
    programs: Sequence[Bundle],
    measured: int,
    noise: float,
    random: np.random.Generator,
) -> HiddenDevice:
    """Draw a hidden device, measure some layers with noise, and fit the assumed device to them."""
    names = [str(number) for number in range(len(programs))]
    layers = Measurements(names, programs, {}).list_layers()
    hidden = draw_device(assumed, random)
    cycles = simulate_cycles(hidden, programs, layers)
    chosen = random.permutation(len(layers))
    noisy = cycles * (1 + noise * random.standard_normal(len(layers)))
    known = {layers[row]: float(noisy[row]) for row in chosen[:measured].tolist()}
    result = fit_device(assumed, Measurements(names, programs, known))
    found = simulate_cycles(result.device, programs, layers)
    errors = np.abs(found / cycles - 1)
    return HiddenDevice(hidden, cycles, errors[chosen[measured:]], result)
