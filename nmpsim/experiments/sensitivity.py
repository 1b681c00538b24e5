"""Sensitivity of a cycle count: the same run with each assumed device setting moved."""

from __future__ import annotations

import time

from nmpsim.analysis.program import make_bundle_program
from nmpsim.arrays import Arrays
from nmpsim.bundle import Bundle
from nmpsim.bundle.metadata import list_chains
from nmpsim.compiler.tiling.search import CHAIN, LAYER_TILINGS
from nmpsim.config import SETTINGS, DeviceConfig, make_device_config
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
    "cores_clock_mhz": "the clock changes seconds but not cycles",
    "dram_bytes": "a capacity does not change cycles",
    "limits_cycles": "a limit does not change cycles",
}
POWERS_OF_TWO = ("dram_burst_bytes", "dram_row_bytes")
SCRATCHPAD_STEP = 64


def measure_sensitivity(
    bundle: Bundle,
    inputs: Arrays,
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
    assumed = [name for name in SETTINGS if config.sources.get(name) == "assumed"]
    reasons = {name: _find_skip_reason(name, bundle) for name in assumed}
    moved = [name for name, reason in reasons.items() if not reason]
    skipped = [SkippedSetting(name, reason) for name, reason in reasons.items() if reason]
    budget = TimeBudget(NO_LIMITS) if budget is None else budget

    def move(setting: str, value: int) -> MovedSetting | None:
        try:
            changed = make_device_config({**config.settings(), setting: value})
        except UserError:
            return None
        begin = time.perf_counter()
        try:
            program = _recompile(bundle, changed) if setting in IN_THE_PROGRAM else bundle
        except UserError:
            return MovedSetting(value, None)
        finally:
            budget.spend(time.perf_counter() - begin)
        device = Device(changed, report.engine)
        found = device.run(program, inputs, limits=budget.get_remaining_limits(), strict=False)
        budget.spend(found.host_seconds)
        budget.check()
        return MovedSetting(value, None if found.trap else found.cycles)

    effects = []
    for done, setting in enumerate(moved, 1):
        lower, higher = (move(setting, value) for value in _list_values(config, setting))
        known = [one.cycles for one in (lower, higher) if one and one.cycles is not None]
        largest = max((abs(cycles - report.cycles) for cycles in known), default=0)
        effects.append(
            SettingEffect(
                setting,
                getattr(config, setting),
                lower,
                higher,
                "recompiled" if setting in IN_THE_PROGRAM else "same",
                largest / report.cycles if report.cycles else 0.0,
            )
        )
        if progress:
            progress(Progress("setting", done, len(moved), setting))
    effects.sort(key=lambda one: -one.effect)
    return SensitivityReport(report.cycles, PERCENT / 100, tuple(effects), tuple(skipped))


def _recompile(bundle: Bundle, config: DeviceConfig) -> Bundle:
    fuse = any(layer.fused for layer in bundle.metadata.layers)
    tiling = CHAIN if list_chains(bundle.metadata.layers) else LAYER_TILINGS[0]
    return make_bundle_program(bundle).compile(config, fuse_activations=fuse, tiling=tiling)


def _find_skip_reason(setting: str, bundle: Bundle) -> str:
    """Return why a setting is not varied; empty if it is."""
    if setting in IN_THE_PROGRAM and not bundle.debug:
        return "the tiling depends on the setting, and the bundle has no LIR to compile again"
    return WITHOUT_CYCLES.get(setting, "")


def _list_values(config: DeviceConfig, setting: str) -> tuple[int, int]:
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
