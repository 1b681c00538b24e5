"""Checks of cycles, saturation and memory against limits and baselines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nmpsim.checking.baseline import Baseline, make_baseline_error
from nmpsim.checking.expectations import make_failed_layer
from nmpsim.checking.results import Check, FailedLayer
from nmpsim.checking.run import CheckedRun, list_changed_settings
from nmpsim.checking.suite import Budget, SaturationLimit
from nmpsim.diagnostics import Diagnostic, Place
from nmpsim.report.data import LayerReport


def check_cycles(run: CheckedRun, budget: Budget, baseline: Baseline | None) -> Check:
    """Check the cycles of a run against the limit and the baseline."""
    compared = _compared(budget, baseline)
    moved = () if compared is None else _moved_to_host(run, compared)
    if moved:
        message = (
            f"{run.report.cycles:,} do not include layers that moved to the host: {_named(moved)}"
        )
        return Check("cycles", "over", message, moved)
    over = _over(run.report.cycles, budget, compared)
    if not over:
        before = "" if compared is None else f", baseline {compared.cycles:,}"
        return Check("cycles", "passed", f"{run.report.cycles:,}{before}")
    culprits = _slow(run) if baseline is None else _slower(run, baseline)
    message = f"{run.report.cycles:,} are {' and '.join(over)}: {_named(culprits)}"
    changes = () if compared is None else list_changed_settings(compared.device, run.report.device)
    if changes:
        message += f"; the device has changed: {', '.join(changes)}"
    return Check("cycles", "over", message, culprits)


def find_device_mismatch(
    run: CheckedRun, budget: Budget, baseline: Baseline, place: Place
) -> tuple[Diagnostic, ...]:
    """Return an error (BASE002) if the baseline's cycles are of another device, else ``()``."""
    if _compared(budget, baseline) is None:
        return ()
    changes = list_changed_settings(baseline.device, run.report.device)
    if not changes:
        return ()
    found = f"{', '.join(changes)}{_most_changed(run, baseline)}"
    what, cure = "the run uses another device", "Pass the device of the baseline."
    return make_baseline_error(place, what, found, "the same settings", cure).diagnostics


def _compared(budget: Budget, baseline: Baseline | None) -> Baseline | None:
    """Return the baseline, or None if the only limit of cycles is a number."""
    return baseline if budget.cycles is None or budget.cycles_percent is not None else None


def _most_changed(run: CheckedRun, baseline: Baseline) -> str:
    pairs = zip(run.report.layers, baseline.layers, strict=True)
    changes = [(now.cycles - then.cycles, now.name) for now, then in pairs]
    more, name = max(changes, key=lambda one: abs(one[0]), default=(0, ""))
    return f"; most changed: layer {name}, {more:+,} cycles" if more else ""


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


def check_saturation(run: CheckedRun, limit: SaturationLimit, baseline: Baseline | None) -> Check:
    """Check the number of saturated values against a limit or the baseline."""
    total = sum(layer.saturated for layer in run.report.layers)
    allowed = [0] * len(run.report.layers)
    if limit.at_most is None and baseline is not None:
        allowed = [sum(layer.saturated.values()) for layer in baseline.layers]
    culprits = _more_saturated(run, allowed)
    if limit.at_most is None:
        worse, text = bool(culprits), f"baseline {sum(allowed):,}"
    else:
        worse, text = total > limit.at_most, f"{limit.at_most:,} allowed"
    message = f"{total:,} values saturated, {text}"
    if not worse:
        return Check("saturation", "passed", message)
    return Check("saturation", "over", f"{message}: {_named(culprits)}", culprits)


def check_memory(run: CheckedRun, most_bytes: int) -> Check:
    """Check the DRAM for code, constants and activations against a limit in bytes."""
    used = run.memory_bytes
    if used <= most_bytes:
        return Check("memory", "passed", f"{used:,} bytes of {most_bytes:,}")
    sizes = [(0 if out is None else out.nbytes, i) for i, out in enumerate(run.layer_outputs)]
    largest, index = max(sizes, default=(0, 0))
    layers = run.report.layers
    culprits = (make_failed_layer(layers[index], f"{largest:,} bytes of output"),) if layers else ()
    message = (
        f"{used:,} bytes exceed the limit of {most_bytes:,}; the largest output is that of"
        f" {_named(culprits)}"
    )
    return Check("memory", "over", message, culprits)


def _moved_to_host(run: CheckedRun, baseline: Baseline) -> tuple[FailedLayer, ...]:
    """Return the layers that moved from the device to the host, unless host cycles are counted."""
    if run.report.host.cycles is not None:
        return ()
    pairs = zip(run.report.layers, baseline.layers, strict=True)
    return tuple(
        make_failed_layer(
            now, f"took {then.cycles:,} cycles on the device; now on the host: {now.reason}"
        )
        for now, then in pairs
        if (then.placement, now.placement) == ("device", "host")
    )


def _slow(run: CheckedRun) -> tuple[FailedLayer, ...]:
    """Return the layers that take cycles, slowest first."""
    return _rank((layer.cycles, layer, f"{layer.cycles:,} cycles") for layer in run.report.layers)


def _slower(run: CheckedRun, baseline: Baseline) -> tuple[FailedLayer, ...]:
    """Return the layers that take more cycles than before, largest growth first."""
    slower = _rank(
        (more, now, f"{now.cycles:,} cycles, {more:,} more than {then.cycles:,}")
        for now, then in zip(run.report.layers, baseline.layers, strict=True)
        for more in [now.cycles - then.cycles]
    )
    return slower or _slow(run)


def _more_saturated(run: CheckedRun, allowed: Sequence[int]) -> tuple[FailedLayer, ...]:
    """Return the layers with more saturated values than allowed, largest excess first."""
    return _rank(
        (
            more,
            layer,
            f"{layer.saturated:,} of {layer.elements:,} values saturated,"
            f" {more:,} more than allowed",
        )
        for layer, most in zip(run.report.layers, allowed, strict=True)
        for more in [layer.saturated - most]
    )


def _rank(layers: Iterable[tuple[int, LayerReport, str]]) -> tuple[FailedLayer, ...]:
    """Return the layers with a positive excess and their messages, largest excess first."""
    found = sorted((one for one in layers if one[0] > 0), key=lambda one: -one[0])
    return tuple(make_failed_layer(layer, message) for _, layer, message in found)


def _named(culprits: Sequence[FailedLayer]) -> str:
    """Return the worst layer as text."""
    if not culprits:
        return "no layer"
    worst, more = culprits[0], len(culprits) - 1
    return f"layer {worst.name} ({worst.message})" + (f" and {more:,} more" if more else "")
