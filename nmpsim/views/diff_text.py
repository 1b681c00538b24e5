"""Differences of runs and reports as text: the first, the worst, and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from nmpsim.analysis.diff import ReportChange, ReportDifference, RunDifference, TensorDifference
from nmpsim.analysis.difference import ElementDifference, Tolerance
from nmpsim.diagnostics import format_count, join_first
from nmpsim.escape import escape_line
from nmpsim.lir.names import map_display_names
from nmpsim.views.console import print_heading, print_line, print_more, print_table
from nmpsim.views.measures import make_columns
from nmpsim.views.text import format_elem, format_real, format_shape

MAX_ROWS = 40
"""Rows of a table that are shown without ``--all``."""
FLOAT_BEFORE = "a float32 result differs before any quantized one, and may cause its differences"
FLOAT_UNKNOWN = "the first run lacks the float32 result before the first difference"
MAX_NAMES = 8
"""Names of layers in only one run that are shown."""


def print_run_difference(
    difference: RunDifference, console: Console, *, show_all: bool = False
) -> None:
    """Print the first and worst difference of two runs, and a table of the tensors."""
    differing = difference.differing
    if difference.only_second:
        print_line(console, escape_line(difference.coverage))
    shown = map_display_names([*(one.name for one in difference.tensors), *difference.only_second])
    if differing:
        _print_place("first difference", differing[0], "first", shown, console)
    if difference.worst_tensor is not None:
        _print_place("worst difference", difference.worst_tensor, "worst", shown, console)
    if difference.float_before is not None:
        name = _name(difference.float_before, shown)
        print_line(console, f"{FLOAT_BEFORE}: {name}", "yellow")
    if difference.float_unknown is not None:
        name = escape_line(shown.get(difference.float_unknown, difference.float_unknown))
        print_line(console, f"{FLOAT_UNKNOWN}: {name}", "yellow")
    rows = difference.tensors if show_all else differing
    if rows:
        console.print()
        columns = make_columns(
            "diff_tensors",
            number=lambda one: "" if one.number is None else str(one.number),
            layer=lambda one: _name(one, shown),
            ulp=_worst_ulp,
            remarks=_format_remarks,
        )
        print_table(console, rows if show_all else rows[:MAX_ROWS], *columns)
        if not show_all:
            print_more(console, len(rows) - MAX_ROWS, "; --all shows them")
    for one in differing:
        if one.problem:
            print_line(console, f"not compared: {_name(one, shown)}: {one.problem}", "yellow")
    _print_only("the first run", difference.only_first, console)
    if difference.first_wrong is not None:
        name = escape_line(shown.get(difference.first_wrong, difference.first_wrong))
        print_line(console, f"first layer that differs with A's values as inputs: {name}", "bold")
        for cause in difference.causes:
            print_line(console, f"  likely cause: {escape_line(cause)}")
        if not difference.causes:
            print_line(console, "  none of the tried changes makes the layer equal")
    if rows or difference.only_first:
        console.print()
    compared = f"{format_count(len(difference.tensors), 'tensor')} compared"
    allowed = _allowed(difference.tolerance)
    if differing:
        beyond = f" by more than {allowed}" if allowed else ""
        print_line(console, f"{compared}, {len(differing):,} differ{beyond}", "bold")
    else:
        within = f" within {allowed}" if allowed else ""
        print_line(console, f"{compared}, all equal{within}", "bold")


def print_report_difference(difference: ReportDifference, console: Console) -> None:
    """Print the differences of two reports: totals, layers and outputs."""
    if difference.facts:
        print_heading(console, "the whole run")
        for fact in difference.facts:
            print_line(console, f"  {_change(fact)}")
    if difference.layers:
        print_heading(console, "layers that differ")
    for layer in difference.layers[:MAX_ROWS]:
        print_line(console, f"  {layer.index} {layer.display_name}")
        for change in layer.changes:
            print_line(console, f"    {_change(change)}")
    print_more(console, len(difference.layers) - MAX_ROWS, "; --format json has all")
    _print_only("the first report", difference.only_first, console)
    _print_only("the second report", difference.only_second, console)
    print_heading(console, "outputs")
    if difference.outputs is None:
        print_line(console, "the reports have no output in common", "bold")
        return
    print_run_difference(difference.outputs, console)


def _print_place(
    title: str, one: TensorDifference, which: str, shown: Mapping[str, str], console: Console
) -> None:
    print_line(
        console,
        f"{title}: {_name(one, shown)}, {format_elem(one.elem)} {format_shape(one.shape)}",
        "bold",
    )
    if one.difference is None:
        print_line(console, f"  {one.problem}")
        return
    element: ElementDifference | None = getattr(one.difference, which)
    if element is not None:
        at = ", ".join(map(str, element.at))
        numbers = f"{format_real(element.actual)}, not {format_real(element.expected)}"
        distance = f"{element.ulp:,} ulp"
        if one.compared_as_real or "float" in one.elem:
            distance = f"largest error {format_real(one.difference.max_error or 0)}"
        print_line(console, f"  at [{at}]: {numbers} ({distance})")


def _worst_ulp(one: TensorDifference) -> int | None:
    return None if "float" in one.elem or one.difference is None else one.difference.worst_ulp


def _format_remarks(one: TensorDifference) -> str:
    notes = [] if one.differs else ["equal"]
    if one.problem:
        notes.append("not compared")
    if one.name_in_first:
        notes.append(escape_line(f"{one.name_in_first} in the first"))
    if one.name_in_first and one.matched_by != "name":
        notes.append(f"matched by {one.matched_by}")
    if one.is_out_of_order:
        notes.append("not in the order of the first")
    if one.layout_of_first:
        notes.append(f"first is {one.layout_of_first}")
    return ", ".join(notes)


def _print_only(whose: str, names: Sequence[str], console: Console) -> None:
    if names:
        shown = list(map_display_names(names).values())
        print_line(console, f"only in {whose}: {join_first(shown, MAX_NAMES)}")


def _allowed(tolerance: Tolerance) -> str:
    """Return a tolerance as text; absolute and relative tolerance add up."""
    reals = [f"{tolerance.absolute:g}"] if tolerance.absolute else []
    reals += [f"{100 * tolerance.relative:g} %"] if tolerance.relative else []
    units = [f"{tolerance.ulp} ulp"] if tolerance.ulp else []
    return " or ".join([*units, *([" + ".join(reals)] if reals else [])])


def _name(one: TensorDifference, shown: Mapping[str, str]) -> str:
    name = shown[one.name]
    return name if one.operand is None else f"{name}.{one.operand}"


def _change(change: ReportChange) -> str:
    first, second, share = change.first, change.second, ""
    if isinstance(first, int) and isinstance(second, int) and first:
        share = f" ({100 * (second - first) / first:+.1f} %)"
    return f"{change.what}: {_fact(first)} -> {_fact(second)}{share}"


def _fact(value: str | int | float | None) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
