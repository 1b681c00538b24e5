"""Did it cost too much? Cycles, saturation and memory against limits and baselines."""

from __future__ import annotations

from collections.abc import Sequence

from nmpsim.checking.baseline import Baseline, foreign
from nmpsim.checking.expectations import culprit
from nmpsim.checking.results import Check, Culprit
from nmpsim.checking.run import Run, changed_settings
from nmpsim.checking.suite import Budget, SaturationLimit
from nmpsim.diagnostics import Place

MOST_NAMED = 3
"""Layers that a message names."""


def check_cycles(run: Run, budget: Budget, baseline: Baseline | None, place: Place) -> Check:
    """Cycles against the limit and the baseline, which must be of the same device to pass.

    Raises BASE002 for a baseline of another device, unless the run is slower than allowed.
    """
    compared = baseline if budget.cycles is None or budget.cycles_percent is not None else None
    over, cycles = [], run.report.cycles
    if budget.cycles is not None and cycles > budget.cycles:
        over.append(f"the budget of {budget.cycles:,}")
    percent = budget.cycles_percent or 0.0
    changes: tuple[str, ...] = ()
    if compared is not None:
        changes = changed_settings(compared.device, run.report.device)
        if cycles > compared.cycles * (1 + percent / 100):
            over.append(f"{percent:g}% above the baseline's {compared.cycles:,}")
    if not over:
        if changes:
            raise foreign(place, "another device", ", ".join(changes), "the same settings")
        before = "" if compared is None else f", baseline {compared.cycles:,}"
        return Check("cycles", "passed", f"{cycles:,}{before}")
    culprits = _slow(run) if baseline is None else _slower(run, baseline)
    message = f"{cycles:,} are more than {' and '.join(over)}: {_named(culprits)}"
    if changes:
        message += f"; settings of the device that changed: {', '.join(changes)}"
    return Check("cycles", "over", message, culprits)


def check_saturation(run: Run, limit: SaturationLimit, baseline: Baseline | None) -> Check:
    """Values that were cut and should not be."""
    counts = [layer.saturated for layer in run.report.layers]
    total = sum(counts)
    before = [0] * len(counts)
    if baseline is not None:
        before = [sum(layer.saturated.values()) for layer in baseline.layers]
    if limit.at_most is not None:
        worse = total > limit.at_most
        allowed = f"{limit.at_most:,} allowed"
    else:
        worse = any(now > then for now, then in zip(counts, before, strict=True))
        allowed = f"baseline {sum(before):,}"
    if not worse:
        return Check("saturation", "passed", f"{total:,} values cut, {allowed}")
    culprits = _cut_more(run, before)
    return Check(
        "saturation", "over", f"{total:,} values cut, {allowed}: {_named(culprits)}", culprits
    )


def check_memory(run: Run, most_bytes: int) -> Check:
    """DRAM for code, constants and activations."""
    used = run.memory_bytes
    if used <= most_bytes:
        return Check("memory", "passed", f"{used:,} bytes of {most_bytes:,}")
    sizes = [(0 if out is None else out.nbytes, i) for i, out in enumerate(run.layer_outputs)]
    largest, index = max(sizes, default=(0, 0))
    layers = run.report.layers
    culprits = (culprit(layers[index], f"{largest:,} bytes of output"),) if layers else ()
    message = f"{used:,} bytes are more than {most_bytes:,}; the largest layer: {_named(culprits)}"
    return Check("memory", "over", message, culprits)


def _slow(run: Run) -> tuple[Culprit, ...]:
    """Layers that take cycles, the slowest first."""
    layers = sorted(run.report.layers, key=lambda layer: -layer.cycles)
    return tuple(culprit(layer, f"{layer.cycles:,} cycles") for layer in layers if layer.cycles)


def _slower(run: Run, baseline: Baseline) -> tuple[Culprit, ...]:
    """Layers that take more cycles than they did, the largest growth first."""
    pairs = zip(run.report.layers, baseline.layers, strict=True)
    grown = [(now.cycles - then.cycles, now, then) for now, then in pairs]
    grown.sort(key=lambda one: -one[0])
    slower = tuple(
        culprit(now, f"{now.cycles:,} cycles, {more:,} more than {then.cycles:,}")
        for more, now, then in grown
        if more > 0
    )
    return slower or _slow(run)


def _cut_more(run: Run, before: Sequence[int]) -> tuple[Culprit, ...]:
    pairs = zip(run.report.layers, before, strict=True)
    grown = [(now.saturated - then, now) for now, then in pairs if now.saturated > then]
    grown.sort(key=lambda one: -one[0])
    return tuple(
        culprit(layer, f"{layer.saturated:,} of {layer.elements:,} values cut, {more:,} too many")
        for more, layer in grown
    )


def _named(culprits: Sequence[Culprit]) -> str:
    texts = [f"layer {one.name} ({one.message})" for one in culprits[:MOST_NAMED]]
    more = len(culprits) - MOST_NAMED
    return ", ".join(texts) + (f" and {more:,} more" if more > 0 else "")
