"""Headline of a run: a verdict, key numbers, and the most important layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import attrs

from nmpsim.escape import escape_line
from nmpsim.report.analyses import ShadowLayer
from nmpsim.report.data import NOTABLE_SHARE, LayerReport, RunReport
from nmpsim.views.analyses_text import PARTS
from nmpsim.views.html.figures import get_core_count, shorten_names
from nmpsim.views.measures import PATH_CAUSES, describe_core_cycles, find_cause, list_largest
from nmpsim.views.text import (
    format_count,
    format_decibels,
    format_duration,
    format_percent,
    format_rate,
)

FUNCTION = "main"
"""Glow's name of every network."""
MAX_LAYERS = 3
"""Layers of a list."""
MAX_CAUSES = 2
"""Causes shown for a slow layer."""
OWN_PARTS = [part for part in PARTS if part != "inherited"]


@attrs.frozen
class KeyNumber:
    """Number in large type with its label and note."""

    label: str
    value: str
    note: str = ""
    layer: int | None = None
    """Layer that the note is about."""
    is_alarm: bool = False


@attrs.frozen
class LayerRemark:
    """Remark about a layer."""

    layer: int
    name: str
    words: str


@attrs.frozen
class Headline:
    """Summary at the top of a run's page: verdict, key numbers and remarks."""

    verdict: str
    numbers: tuple[KeyNumber, ...]
    slow: tuple[LayerRemark, ...]
    """Slowest layers."""
    saturated: tuple[LayerRemark, ...]
    """Layers with the largest share of saturated values."""
    remaining: str
    """Saturation of the other layers."""
    inexact: tuple[LayerRemark, ...]
    """Layers with the largest error of their own; empty without a shadow."""


def make_headline(report: RunReport) -> Headline:
    """Return the summary at the top of a run's page."""
    notable = sorted(
        (layer for layer in report.layers if layer.saturates_notably),
        key=lambda layer: layer.saturated_share,
        reverse=True,
    )
    slow = sorted(report.layers, key=lambda layer: -layer.cycles)[:MAX_LAYERS]
    names = shorten_names([layer.display_name for layer in report.layers])

    def found(layer: LayerReport, words: str) -> LayerRemark:
        return LayerRemark(layer.index, names[layer.index], words)

    return Headline(
        _verdict(report, notable),
        _numbers(report, notable),
        tuple(found(layer, _slow_words(layer, report)) for layer in slow if layer.cycles),
        tuple(found(layer, _saturation_words(layer)) for layer in notable[:MAX_LAYERS]),
        _remaining(report, notable),
        tuple(found(report.layers[index], words) for index, words in _inexact(report)),
    )


def choose_title(name: str, report: RunReport) -> str:
    """Return the network's name, or ``name`` if the network has only Glow's default name."""
    return name if report.program == FUNCTION else escape_line(report.program)


def _verdict(report: RunReport, notable: Sequence[LayerReport]) -> str:
    if report.trap is not None:
        return "The run did not complete."
    clauses = [report.limited_by or "no layer took any cycles"]
    if notable:
        clauses.append(
            f"in {format_count(len(notable), 'layer')} of {len(report.layers)} more than"
            f" {NOTABLE_SHARE:.1%} of the values saturated"
        )
    else:
        clauses.append("saturation is negligible" if report.saturated else "no value saturated")
    if (worst := report.worst_sqnr) is not None:
        clauses.append(f"the worst SQNR is {format_decibels(worst[1], ' dB')}")
    text = "; ".join(clauses)
    return f"{text[0].upper()}{text[1:]}."


def _numbers(report: RunReport, notable: Sequence[LayerReport]) -> tuple[KeyNumber, ...]:
    clock = report.device.get("cores_clock_mhz")
    return (
        KeyNumber("cycles", f"{report.cycles:,}"),
        KeyNumber("latency", format_duration(report.seconds), f"at {clock} MHz" if clock else ""),
        *_throughput(report),
        KeyNumber("DRAM busy", _percent(report.use.dram_busy, report), "of the cycles"),
        KeyNumber(
            "MAC utilization",
            _percent(report.use.mac_utilization, report),
            "of the peak of all arrays",
        ),
        KeyNumber(
            "saturated values",
            f"{report.saturated:,}",
            f"notable in {format_count(len(notable), 'layer')}" if notable else "",
            is_alarm=bool(notable),
        ),
        _sqnr(report),
    )


def _throughput(report: RunReport) -> Iterator[KeyNumber]:
    if report.throughput is not None and report.throughput.inferences_per_second is not None:
        rate = report.throughput.inferences_per_second
        yield KeyNumber(
            "throughput",
            f"{format_rate(rate)} / s",
            f"{report.throughput.cycles_per_inference:,.1f} cycles per inference",
        )


def _sqnr(report: RunReport) -> KeyNumber:
    label = "worst SQNR"
    if (worst := report.worst_sqnr) is None:
        return KeyNumber(label, "-", "nmpsim run --shadow measures it")
    layer, sqnr_db = worst
    against = "rounding only" if layer.accumulated is None else "against float"
    return KeyNumber(
        label, format_decibels(sqnr_db, " dB"), f"{against}, layer {layer.index}", layer.index
    )


def _slow_words(layer: LayerReport, report: RunReport) -> str:
    distance = "" if layer.distance is None else f", {layer.distance:.2f} x its bound"
    facts = [f"{format_percent(layer.cycles, report.cycles)}% of the cycles{distance}"]
    path = list_largest(layer.critical_path, MAX_CAUSES)
    if causes := [
        f"{format_percent(n, layer.cycles)}% {find_cause(PATH_CAUSES, name).meaning}"
        for name, n in path
    ]:
        facts.append(f"critical path: {', '.join(causes)}")
    elif cause := describe_core_cycles(layer, 1):
        facts.append(cause)
    if 0 < layer.cores < (cores := get_core_count(report)):
        facts.append(f"{layer.cores} of {cores} cores have work")
    return "; ".join(facts)


def _saturation_words(layer: LayerReport) -> str:
    most = max((one for one in layer.saturation if not one.is_requested), key=lambda one: one.count)
    return (
        f"{format_percent(layer.saturated, layer.elements)}% of the values, most at {most.stage},"
        f" {most.side} side, by up to {format_count(most.worst, 'unit')} of the last place"
    )


def _remaining(report: RunReport, notable: Sequence[LayerReport]) -> str:
    others = [one for one in report.layers if one.saturated and not one.saturates_notably]
    if not others:
        return f"No {'other ' if notable else ''}value saturated"
    count = format_count(sum(layer.saturated for layer in others), "value")
    more = "more " if notable else ""
    where = f"{len(others):,} {more}{'layer' if len(others) == 1 else 'layers'}"
    return f"{count} in {where}, at most {NOTABLE_SHARE:.1%} of each"


def _inexact(report: RunReport) -> Iterator[tuple[int, str]]:
    """Yield the layers with the largest error of their own, and a remark."""
    layers = report.shadow.layers if report.shadow is not None else ()
    lossy = [(size.sqnr_db, one) for one in layers if (size := one.isolated_error) is not None]
    for sqnr_db, one in sorted(lossy, key=lambda item: item[0])[:MAX_LAYERS]:
        if sqnr_db < math.inf:
            yield one.index, f"{format_decibels(sqnr_db, ' dB')}{_main_part(one)}"


def _main_part(layer: ShadowLayer) -> str:
    """Return the largest part of a layer's own error as text."""
    sizes = {} if layer.split is None else {part: getattr(layer.split, part) for part in OWN_PARTS}
    units = {
        part: size.mean_error_ulp for part, size in sizes.items() if size and size.mean_error_ulp
    }
    if not units:
        return ""
    part = max(units, key=lambda part: units[part])
    return f"; mostly {PARTS[part]}: {units[part]:.2g} units of the last place on average"


def _percent(share: float, report: RunReport) -> str:
    return f"{format_percent(share, 1)}%" if report.cycles else "-"
