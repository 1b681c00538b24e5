"""Checks of cycles, saturation and memory against limits and baselines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nmpsim.checking.baseline import Baseline, ComparedRun, make_baseline_error
from nmpsim.checking.expectations import make_failed_layer
from nmpsim.checking.results import CheckResult, FailedLayer, LayerOutcome
from nmpsim.checking.run import list_changed_settings
from nmpsim.checking.suite import Budget, SaturationLimit
from nmpsim.diagnostics import Diagnostic, Place
from nmpsim.report.data import RunReport


def check_cycles(compared: ComparedRun, budget: Budget) -> CheckResult:
    """Check the cycles of a run against the limit and the baseline."""
    report, baseline = compared.run.report, _get_cycle_baseline(compared, budget)
    moved = () if baseline is None else _list_moved_to_host(compared)
    if moved:
        message = (
            f"the {report.cycles:,} cycles do not include layers that moved to the host:"
            f" {_named(moved)}"
        )
        return CheckResult("cycles", "over", message, moved)
    over = _over(report.cycles, budget, baseline)
    if not over:
        before = "" if baseline is None else f", baseline {baseline.cycles:,}"
        return CheckResult("cycles", "passed", f"{_describe_cycles(report)}{before}")
    culprits = _rank(
        (
            one.added_cycles,
            one,
            f"{one.cycles:,} cycles, {one.added_cycles:,} more than {one.cycles_before:,}",
        )
        for one in compared.layers
        if one.added_cycles
    )
    if not culprits:
        culprits = _rank((one.cycles, one, f"{one.cycles:,} cycles") for one in compared.layers)
    message = f"{report.cycles:,} cycles are {' and '.join(over)}: {_named(culprits)}"
    changes = () if baseline is None else list_changed_settings(baseline.device, report.device)
    if changes:
        message += f"; the device has changed: {', '.join(changes)}"
    return CheckResult("cycles", "over", message, culprits)


def _describe_cycles(report: RunReport) -> str:
    """Return the cycles of a run, and those of one inference if the run computes several."""
    throughput = report.throughput
    if throughput is None or throughput.batch == 1:
        return f"{report.cycles:,}"
    each = f"{throughput.cycles_per_inference:,.1f} each"
    return f"{report.cycles:,} for {throughput.batch:,} inferences, {each}"


def find_device_mismatch(
    compared: ComparedRun, budget: Budget, place: Place
) -> tuple[Diagnostic, ...]:
    """Return diagnostics (BASE002) if the devices of baseline and run differ, else ()."""
    baseline = _get_cycle_baseline(compared, budget)
    changes = baseline and list_changed_settings(baseline.device, compared.run.report.device)
    if not changes:
        return ()
    found = f"{', '.join(changes)}{_describe_most_changed(compared.layers)}"
    what, cure = "the run uses another device", "Pass the device of the baseline."
    return make_baseline_error(
        place, what, found, "the device settings of the baseline", cure
    ).diagnostics


def _get_cycle_baseline(compared: ComparedRun, budget: Budget) -> Baseline | None:
    """Return the baseline, or None if the only limit of cycles is a number."""
    is_only_number = budget.cycles is not None and budget.cycles_percent is None
    return None if is_only_number else compared.baseline


def _describe_most_changed(layers: Sequence[LayerOutcome]) -> str:
    most = max(layers, key=lambda one: abs(one.added_cycles), default=None)
    if most is None or not most.added_cycles:
        return ""
    return f"; most changed: layer {most.name}, {most.added_cycles:+,} cycles"


def _over(cycles: int, budget: Budget, baseline: Baseline | None) -> list[str]:
    """Return the limits that the cycles exceed."""
    over = []
    if budget.cycles is not None and cycles > budget.cycles:
        over.append(f"more than the {budget.cycles:,} allowed")
    percent = budget.cycles_percent or 0.0
    if baseline is not None and cycles > baseline.cycles * (1 + percent / 100):
        more = 100 * (cycles / max(baseline.cycles, 1) - 1)
        over.append(f"{more:.3g}% above the baseline's {baseline.cycles:,}, {percent:g}% allowed")
    return over


def check_saturation(compared: ComparedRun, limit: SaturationLimit) -> CheckResult:
    """Check the number of saturated values against a limit or the baseline."""
    layers = compared.layers
    total = sum(layer.saturated for layer in layers)
    has_limit = limit.at_most is not None
    allowed = [0 if has_limit else layer.saturated_before or 0 for layer in layers]
    culprits = _rank(
        (
            more,
            layer,
            f"{layer.saturated:,} of {report.elements:,} values saturated,"
            f" {more:,} more than allowed",
        )
        for layer, report, most in zip(
            compared.layers, compared.run.report.layers, allowed, strict=True
        )
        for more in [layer.saturated - most]
    )
    if limit.at_most is None:
        worse, text = bool(culprits), f"baseline {sum(allowed):,}"
    else:
        worse, text = total > limit.at_most, f"{limit.at_most:,} allowed"
    message = f"{total:,} values saturated, {text}"
    if not worse:
        return CheckResult("saturation", "passed", message)
    return CheckResult("saturation", "over", f"{message}: {_named(culprits)}", culprits)


def check_memory(compared: ComparedRun, most_bytes: int) -> CheckResult:
    """Check the total size of code, constants and activations in DRAM against a limit."""
    run, layers = compared.run, compared.layers
    used = run.memory_bytes
    if used <= most_bytes:
        return CheckResult("memory", "passed", f"{used:,} bytes of {most_bytes:,}")
    sizes = [(0 if out is None else out.nbytes, i) for i, out in enumerate(run.layer_outputs)]
    largest, index = max(sizes, default=(0, 0))
    culprits = (make_failed_layer(layers[index], f"{largest:,} bytes of output"),) if layers else ()
    message = (
        f"{used:,} bytes exceed the limit of {most_bytes:,}; the largest output is that of"
        f" {_named(culprits)}"
    )
    return CheckResult("memory", "over", message, culprits)


def check_energy(compared: ComparedRun, most: float) -> CheckResult:
    """Check the best known energy of a run against a limit in picojoules."""
    energy = compared.run.report.energy_pj or 0.0
    if energy <= most:
        return CheckResult("energy", "passed", f"{energy:,.0f} pJ of {most:,.0f}")
    layers = zip(compared.layers, compared.run.report.layers, strict=True)
    sums = ((sum(one.value for one in report.energy.values()), one) for one, report in layers)
    culprits = _rank((taken, layer, f"{taken:,.0f} pJ") for taken, layer in sums)
    message = f"{energy:,.0f} pJ are more than the {most:,.0f} allowed: {_named(culprits)}"
    return CheckResult("energy", "over", message, culprits)


def check_area(compared: ComparedRun, most: float) -> CheckResult:
    """Check the best known area of the device against a limit in square micrometres."""
    area = compared.run.report.area_um2 or 0.0
    if area <= most:
        return CheckResult("area", "passed", f"{area:,.0f} um2 of {most:,.0f}")
    sizes = {name: one.value for name, one in compared.run.report.area.items()}
    largest = max(sizes, key=sizes.__getitem__)
    message = f"{area:,.0f} um2 are more than the {most:,.0f} allowed"
    largest_text = f"; {largest} takes most, {sizes[largest]:,.0f} um2"
    return CheckResult("area", "over", message + largest_text)


def _list_moved_to_host(compared: ComparedRun) -> tuple[FailedLayer, ...]:
    """Return the layers that moved from the device to the host, unless host cycles are counted."""
    report = compared.run.report
    if report.host.cycles is not None:
        return ()
    return tuple(
        make_failed_layer(
            layer,
            f"took {layer.cycles_before:,} cycles on the device; now on the host:"
            f" {report.layers[layer.index].reason}",
        )
        for layer in compared.layers
        if layer.has_moved_to_host
    )


def _rank(layers: Iterable[tuple[float, LayerOutcome, str]]) -> tuple[FailedLayer, ...]:
    """Return the layers with a positive excess and their messages, largest excess first."""
    found = sorted((one for one in layers if one[0] > 0), key=lambda one: -one[0])
    return tuple(make_failed_layer(layer, message) for _, layer, message in found)


def _named(culprits: Sequence[FailedLayer]) -> str:
    """Return the worst layer as text."""
    if not culprits:
        return "no layer"
    worst, more = culprits[0], len(culprits) - 1
    return f"layer {worst.name} ({worst.message})" + (f" and {more:,} more" if more else "")
