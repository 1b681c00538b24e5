"""Sensitivity of a cycle count: the same run with each assumed device setting moved."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

import attrs
import numpy.typing as npt

from nmpsim.analysis.program import program_from_bundle
from nmpsim.bundle import Bundle
from nmpsim.config import DeviceConfig, from_settings, setting_names
from nmpsim.core.device import Device
from nmpsim.core.limits import NO_LIMITS, TimeBudget
from nmpsim.core.run import Progress, ProgressCallback
from nmpsim.diagnostics import UserError
from nmpsim.report.analyses import (
    MovedSetting,
    SensitivityReport,
    SettingEffect,
    SkippedSetting,
)
from nmpsim.report.data import RunReport

PERCENT = 20
IN_THE_PROGRAM = ("cores_count", "scratchpad_bytes")
"""Settings for which a program is tiled: it is compiled again."""
WITHOUT_CYCLES = {
    "cores_clock_mhz": "it turns cycles into seconds and changes none",
    "dram_bytes": "a capacity: it changes no cycles",
    "limits_cycles": "a limit: it changes no cycles",
}
POWERS_OF_TWO = ("dram_burst_bytes", "dram_row_bytes")
SCRATCHPAD_STEP = 64


@attrs.frozen(eq=False)
class _Experiment:
    """A program, its inputs and its device."""

    bundle: Bundle
    inputs: Mapping[str, npt.NDArray[Any]]
    config: DeviceConfig
    engine: str
    budget: TimeBudget

    def effect(self, setting: str, cycles: int) -> SettingEffect:
        """Return the effect of moving a setting."""
        lower, higher = (self._moved(setting, value) for value in _values(self.config, setting))
        known = [one.cycles for one in (lower, higher) if one and one.cycles is not None]
        largest = max((abs(found - cycles) for found in known), default=0)
        program: Literal["same", "recompiled"] = "same"
        if setting in IN_THE_PROGRAM:
            program = "recompiled"
        return SettingEffect(
            setting,
            getattr(self.config, setting),
            lower,
            higher,
            program,
            largest / cycles if cycles else 0.0,
        )

    def _moved(self, setting: str, value: int) -> MovedSetting | None:
        try:
            config = from_settings({**self.config.settings(), setting: value})
        except UserError:
            return None
        begin = time.perf_counter()
        try:
            bundle = self._recompiled(config) if setting in IN_THE_PROGRAM else self.bundle
        except UserError:
            return MovedSetting(value, None)
        finally:
            self.budget.spend(time.perf_counter() - begin)
        limits = self.budget.left()
        report = Device(config, self.engine).run(bundle, self.inputs, limits=limits, strict=False)
        self.budget.spend(report.host_seconds)
        self.budget.check()
        return MovedSetting(value, None if report.trap else report.cycles)

    def _recompiled(self, config: DeviceConfig) -> Bundle:
        fuse = any(layer.fused for layer in self.bundle.metadata.layers)
        return program_from_bundle(self.bundle).compile(config, fuse_activations=fuse)


def measure_sensitivity(
    bundle: Bundle,
    inputs: Mapping[str, npt.NDArray[Any]],
    report: RunReport,
    config: DeviceConfig,
    *,
    progress: ProgressCallback | None = None,
    budget: TimeBudget | None = None,
) -> SensitivityReport:
    """Measure the cycles of a program with each assumed setting 20 % lower and higher.

    Sizes of bursts and rows are halved and doubled; a small number moves by one at least. What
    the program is tiled for is compiled again, if the bundle carries its LIR.

    Parameters
    ----------
    bundle
        The program.
    inputs
        Inputs of ``report``'s run.
    report
        The run with the device's own settings.
    config
        The device.
    progress
        Called after every setting.
    budget
        What all the runs may take together; each may take as many cycles as it says.

    Raises
    ------
    UserError
        INPUT001, INPUT002 or BUN004, as the run itself; LIMIT002 if time is up.
    """
    skipped = _skipped(bundle, config)
    left_out = {one.setting for one in skipped}
    moved = [name for name in _assumed(config) if name not in left_out]
    budget = TimeBudget(NO_LIMITS) if budget is None else budget
    experiment = _Experiment(bundle, inputs, config, report.engine, budget)
    effects = []
    for done, setting in enumerate(moved):
        effects.append(experiment.effect(setting, report.cycles))
        if progress:
            progress(Progress("setting", done + 1, len(moved), setting))
    effects.sort(key=lambda one: -one.effect)
    return SensitivityReport(report.cycles, PERCENT / 100, tuple(effects), tuple(skipped))


def _assumed(config: DeviceConfig) -> list[str]:
    return [name for name in setting_names() if config.sources.get(name) == "assumed"]


def _skipped(bundle: Bundle, config: DeviceConfig) -> list[SkippedSetting]:
    skipped = []
    for name in _assumed(config):
        if name in WITHOUT_CYCLES:
            skipped.append(SkippedSetting(name, WITHOUT_CYCLES[name]))
        elif name in IN_THE_PROGRAM and not bundle.debug:
            reason = "the program is tiled for it, and the bundle has no LIR to compile again"
            skipped.append(SkippedSetting(name, reason))
    return skipped


def _values(config: DeviceConfig, setting: str) -> tuple[int, int]:
    """Return a lower and a higher value; they may be out of range."""
    value = int(getattr(config, setting))
    if setting in POWERS_OF_TWO:
        return value // 2, value * 2
    low, high = value * (100 - PERCENT) // 100, -(-value * (100 + PERCENT) // 100)
    if setting == "scratchpad_bytes":
        return low // SCRATCHPAD_STEP * SCRATCHPAD_STEP, -(
            -high // SCRATCHPAD_STEP
        ) * SCRATCHPAD_STEP
    return min(low, value - 1), max(high, value + 1)
