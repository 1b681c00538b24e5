"""The report of a run as text: layers, totals, causes of cycles, outputs, energy, and a trap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from rich.console import Console

from nmpsim.diagnostics import format_count
from nmpsim.energy.tables import Estimate, add_estimates
from nmpsim.escape import escape_line
from nmpsim.report.data import RunReport
from nmpsim.report.device_use import HOST_COSTS, HostWork, Throughput
from nmpsim.report.termination import ContractReport, TrapReport, ViolationReport
from nmpsim.views.console import print_facts, print_heading, print_line, print_table
from nmpsim.views.measures import (
    CORE_CAUSES,
    ENERGY_COMPONENTS,
    PATH_CAUSES,
    CycleCauseStyle,
    describe_critical_path,
    list_chain_columns,
    list_largest,
    list_layer_columns,
)
from nmpsim.views.text import (
    describe_output,
    format_area,
    format_duration,
    format_energy,
    format_percent,
    format_quantity,
    format_rate,
)

# Energy and area of a run as text.

MAX_LAYERS = 5
"""Number of layers that are listed by their energy."""


def describe_estimate(estimate: Estimate, format: Callable[[float], str]) -> str:
    """Describe an estimate with its range and source: ``12 uJ (5 uJ to 40 uJ, assumed)``."""
    low, value, high = (format(one) for one in (estimate.low, estimate.value, estimate.high))
    return f"{value} ({low} to {high}, {estimate.source})"


def list_energy_totals(report: RunReport) -> list[tuple[str, str]]:
    """Return energy, power and area of a run as pairs of label and text; [] if unknown."""
    energy, area = report.energy, report.area
    if energy is None:
        return []
    product = energy.delay_product.value
    delay = f"energy-delay product {format_quantity(product, 'J s')}"
    return [
        ("energy", f"{describe_estimate(energy.total, format_energy)}, {delay}"),
        ("power", describe_estimate(energy.watts, partial(format_quantity, unit="W"))),
        ("area", f"{describe_estimate(add_estimates(area.values()), format_area)}, without DRAM"),
    ]


def print_energy(report: RunReport, console: Console) -> None:
    """Print the energy of a run by component and of its largest layers; do nothing if unknown."""
    energy = report.energy
    if energy is None:
        return
    print_heading(console, f"energy by component, {energy.total.source}")
    total = energy.total.value
    for name, value in list_largest(get_estimate_values(energy.components)):
        share = format_percent(value, total)
        text = describe_estimate(energy.components[name], format_energy)
        print_line(console, f"  {share:>5}%  {ENERGY_COMPONENTS[name].meaning}: {text}")
    layers = [(one, sum(get_estimate_values(one.energy).values())) for one in report.layers]
    for layer, value in sorted(layers, key=lambda row: -row[1])[:MAX_LAYERS]:
        if value:
            name = escape_line(layer.display_name)
            share = format_percent(value, total)
            print_line(console, f"  layer {layer.index} {name}: {format_energy(value)}, {share}%")


def get_estimate_values(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """Return the best known value of each estimate by name."""
    return {name: one.value for name, one in estimates.items()}


MAX_SATURATED = 10
"""Layers whose saturation is listed by stage: those with the largest share."""
MAX_SLOW = 5
"""Layers that are listed by distance from their bound and by critical path."""
_TRAP_HINTS = {
    "deadlock": "Find the barrier or semaphore that a core does not reach with `nmpsim disasm`.",
    "cycle_limit": "Raise --max-cycles, or `cycles` in [limits] of the device file, unless the"
    " program is"
    " in an endless loop.",
    "timeout": "Raise --timeout, or use --max-cycles, which stops at the same cycle on every"
    " computer.",
    "contract": "Correct the program, or pass --no-strict; the output then depends on uninitialized"
    " memory or on the time of a transfer.",
    "trap": "Inspect the code at this pc with `nmpsim disasm`, or the run with `nmpsim debug`.",
}
_TRAP_WORDS = {
    "trap": "trap",
    "deadlock": "deadlock",
    "cycle_limit": "cycle limit reached",
    "timeout": "time limit reached",
    "contract": "the program violates the contract of the instruction set",
}
_PROGRAM_KINDS = {"assembly": "assembly program", "elf": "ELF program"}
"""Arithmetic in the report of a program without a network -> kind of the program."""
CONTRACT_WORDS = {
    "proved": "obeyed, proved for every input",
    "checked": "obeyed in this run",
    "violated": "VIOLATED, see below",
    "not_checked": "not checked",
}
"""Status of the contract -> text."""


def print_run(report: RunReport, console: Console) -> None:
    """Print the report of a run: layers, totals, causes of cycles, outputs and notes."""
    head = f"{report.program}: {_arithmetic(report)}, {report.engine} engine"
    print_line(console, f"{head}, device {report.device.get('name', '?')}", "bold")
    if report.limited_by:
        print_line(console, report.limited_by, "bold")
    if report.layers:
        console.print()
        print_table(console, report.layers, *list_layer_columns(report, "run"))
    if report.chains:
        print_heading(
            console,
            "chains (cycles of layers in proportion to work)",
        )
        print_table(console, report.chains, *list_chain_columns(report))
    _print_saturation_note(report, console)
    print_heading(console, "total")
    print_facts(console, list_run_totals(report))
    core_cycles = {
        name: sum(layer.core_cycles.get(name, 0) for layer in report.layers) for name in CORE_CAUSES
    }
    if total := sum(core_cycles.values()):
        print_heading(console, "core cycles by cause")
        _print_shares(core_cycles, total, CORE_CAUSES, console)
    _print_path(report, console)
    bounded = [layer for layer in report.layers if layer.bound.cycles]
    if slow := sorted(bounded, key=lambda layer: layer.bound.cycles - layer.cycles)[:MAX_SLOW]:
        print_heading(console, "layers furthest from their roofline bound")
        print_table(console, slow, *list_layer_columns(report, "bounds"))
    print_energy(report, console)
    if report.output_reports:
        stopped = " (invalid, the run did not complete)" if report.trap else ""
        print_heading(console, f"{format_count(len(report.output_reports), 'output')}{stopped}")
        for output in report.output_reports:
            for text in describe_output(output):
                print_line(console, f"  {text}")
    if report.trap is not None:
        _print_trap(report, report.trap, console)
    console.print()
    for note in report.notes:
        print_line(console, f"note: {note}")
    print_line(console, _footnote(report), "dim")
    if report.shadow is not None or report.sensitivity is not None:
        from nmpsim.views.analyses_text import print_sensitivity, print_shadow  # few runs need it

        if report.shadow is not None:
            print_shadow(report.shadow, console)
        if report.sensitivity is not None:
            print_sensitivity(report.sensitivity, console)


def _arithmetic(report: RunReport) -> str:
    """Return the numerics profiles of the layers, or the kind of a program without a network."""
    if report.numerics in _PROGRAM_KINDS:
        return _PROGRAM_KINDS[report.numerics]
    profiles = dict.fromkeys(layer.numerics for layer in report.layers if layer.numerics)
    names = ", ".join(profiles) or report.numerics
    custom = f" with the formulas {report.numerics}" if "@" in report.numerics else ""
    return f"{names} arithmetic{custom}"


def _print_saturation_note(report: RunReport, console: Console) -> None:
    saturated = [layer for layer in report.layers if layer.saturated]
    if not saturated:
        return
    console.print()
    print_line(console, "saturated: results limited by the integer type, by layer")
    for layer in sorted(
        sorted(saturated, key=lambda layer: layer.saturated_share)[-MAX_SATURATED:],
        key=lambda layer: layer.index,
    ):
        stages: Counter[str] = Counter()
        for one in layer.saturation:
            if not one.is_requested:
                stages[f"{one.stage} {one.side}"] += one.count
        parts = ", ".join(f"{count:,} at {stage}" for stage, count in stages.items())
        share = f"{format_percent(layer.saturated, layer.elements)}% of {layer.elements:,}"
        print_line(console, f"  {layer.index} {layer.display_name}: {parts} ({share})")
    if len(saturated) > MAX_SATURATED:
        more = format_count(len(saturated) - MAX_SATURATED, "layer")
        print_line(console, f"  and {more} with smaller shares; --format json has all")


def list_run_totals(report: RunReport) -> list[tuple[str, str]]:
    """Return the totals of a run as pairs of label and text."""
    clock = report.device.get("cores_clock_mhz")
    macs = sum(layer.macs for layer in report.layers)
    host = report.host
    at_clock = f" at {clock} MHz" if clock else ""
    took = f"{report.cycles:,} cycles, {format_duration(report.seconds)}{at_clock}"
    throughput = report.throughput
    return [
        ("latency", f"{took}{_host(report)}"),
        *([] if throughput is None else [("throughput", describe_throughput(throughput, host))]),
        ("MACs", f"{macs:,}, {format_percent(report.use.mac_utilization, 1)}% MAC utilization"),
        ("DRAM", f"{report.use.describe_dram()}{_multicast(report)}"),
        *list_energy_totals(report),
        ("layers", f"{len(report.layers) - host.layers} on the device, {host.layers} on the host"),
        ("simulation", f"{format_duration(report.host_seconds)} of wall time"),
        ("contract", describe_contract(report.contract)),
        *([] if report.exit_status is None else [("exit status", str(report.exit_status))]),
    ]


def describe_throughput(throughput: Throughput, host: HostWork) -> str:
    """Describe the throughput of runs: inferences per second and cycles per inference."""
    later = throughput.run_cycles[1:]
    least, most = (f"{of(later or throughput.run_cycles):,}" for of in (min, max))
    took = least if least == most else f"{least} to {most}"
    runs = "run 2" if len(later) == 1 else f"runs 2 to {len(later) + 1}"
    batch = f" for a batch of {throughput.batch:,}" if throughput.batch > 1 else ""
    how = f"{runs if later else 'one run from rest'} took {took}{batch}"
    rate = throughput.inferences_per_second
    pace = "-" if rate is None else format_rate(rate)
    each = f"{throughput.cycles_per_inference:,.1f} cycles each"
    uncounted = f"; + {host.text}" if host.layers and host.cycles is None else ""
    return f"{pace} inferences per second, {each}: {how}{uncounted}"


def _host(report: RunReport) -> str:
    """Return the cycles of device and host, or that the host's cycles are not counted."""
    host = report.host
    if not host.layers:
        return ""
    if host.cycles is None:
        return f"; + {host.text}"
    is_assumed = any(report.sources.get(name) == "assumed" for name in HOST_COSTS)
    source = " (assumed)" if is_assumed else ""
    return f"; {report.device_cycles:,} on the device, {host.cycles:,} on the host{source}"


def _multicast(report: RunReport) -> str:
    """Return how many bursts loads shared; empty if none."""
    shared = sum(layer.bursts_shared for layer in report.layers)
    bursts = sum(layer.bursts for layer in report.layers)
    return f"; multicast saved {shared:,} of {shared + bursts:,} bursts" if shared else ""


def describe_contract(contract: ContractReport) -> str:
    """Describe whether a run obeyed the contract of the instruction set."""
    text = CONTRACT_WORDS[contract.status]
    return f"{text}: {contract.message}" if contract.message else text


def _print_shares(
    cycles: Mapping[str, int], total: int, causes: Mapping[str, CycleCauseStyle], console: Console
) -> None:
    for name, count in list_largest(cycles):
        print_line(console, f"  {format_percent(count, total):>5}%  {causes[name].meaning}")


def _print_path(report: RunReport, console: Console) -> None:
    if not any(report.critical_path.values()):
        return
    print_heading(console, "critical path by cause")
    _print_shares(report.critical_path, report.device_cycles, PATH_CAUSES, console)
    if report.queueing:
        share = format_percent(report.queueing, report.device_cycles)
        print_line(
            console,
            f"  {share:>5}%  of the path is queueing delay: the DRAM served other transfers",
        )
    for layer in sorted(report.layers, key=lambda layer: -layer.cycles)[:MAX_SLOW]:
        if any(layer.critical_path.values()):
            name = f"layer {layer.index} {escape_line(layer.display_name)}"
            print_line(console, f"  {name}: {describe_critical_path(layer)}")


def _print_trap(report: RunReport, trap: TrapReport, console: Console) -> None:
    violation = report.contract.violation
    print_heading(console, f"THE RUN STOPPED: {_TRAP_WORDS[trap.kind]}")
    place = None if not trap.layer else report.get_display_name(trap.layer)
    if place and trap.line:
        place += f", line {trap.line}"
    facts = (
        ("reason", trap.message),
        ("layer", place),
        ("core", None if trap.core is None else str(trap.core)),
        ("pc", None if trap.pc is None else f"{trap.pc:#010x}"),
        ("function", trap.describe_source() or None),
        ("instruction", trap.instruction),
        ("value", None if trap.value is None else f"{trap.value:#x}"),
        ("after", None if violation is None else _other(report, violation)),
        ("code", None if violation is None else violation.code),
        ("hint", _TRAP_HINTS[trap.kind] if violation is None else violation.hint),
    )
    for label, text in facts:
        if text is not None:
            print_line(console, f"  {label:<12} {text}", "red" if label == "reason" else "")


def _other(report: RunReport, violation: ViolationReport) -> str | None:
    """Return the earlier of the two instructions of a violation."""
    if violation.other_core is None or violation.other_pc is None:
        return None
    name = violation.other_layer
    layer = f", layer {report.get_display_name(name)}" if name else ""
    instruction = violation.other_instruction or "?"
    return f"core {violation.other_core}, pc {violation.other_pc:#010x}, {instruction}{layer}"


def _footnote(report: RunReport) -> str:
    assumed = sum(source == "assumed" for source in report.sources.values())
    if not assumed:
        return "note: no device setting is assumed; `nmpsim device` lists the settings"
    count = format_count(assumed, "assumed device setting")
    return f"note: cycles depend on {count}; `nmpsim device` lists the settings and their sources"
