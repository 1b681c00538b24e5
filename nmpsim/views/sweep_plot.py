"""Figures of a sweep by matplotlib: cycles, roofline, Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import numpy as np

from nmpsim.atomic import make_write_error
from nmpsim.config import format_setting_name
from nmpsim.experiments import SweepResult
from nmpsim.experiments.table import Row
from nmpsim.extras import require_extra
from nmpsim.views.error_plot import save_figure
from nmpsim.views.text import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_NAMED = 10
"""Most lines, points or ticks with names; if there are more, none has one."""
MAX_IN_HALF = 45
"""Longest label that fits half of a figure's width, in characters."""
_DASHES = ("-", "--", ":", "-.")
"""Line styles in turn, so that coincident lines are distinguishable."""


def check_plot_folder(folder: Path) -> None:
    """Raise UserError early if figures cannot be written to a folder.

    Raises
    ------
    UserError
        PKG001 if matplotlib is missing, FILE002 if the folder cannot be made.
    """
    with require_extra("plot", "plots need matplotlib", instead="omit --plot"):
        import matplotlib.figure  # noqa: F401 - whether it is there
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise make_write_error(
            folder, error.strerror or str(error), "Pass another folder to --plot."
        ) from error


def write_plots(folder: Path, result: SweepResult) -> Iterator[Path]:
    """Write the figures of a sweep to a folder and yield their paths.

    At least one row must have a result.
    """
    rows = [row for row in result.rows if row["error"] is None]
    for name, draw in (
        ("cycles.svg", lambda axes: _draw_cycles(axes, result, rows)),
        ("roofline.svg", lambda axes: _draw_roofline(axes, rows)),
        ("pareto.svg", lambda axes: _draw_pareto(axes, result, rows)),
    ):
        path = folder / name
        _write(path, result.program, draw)
        yield path


def _write(path: Path, title: str, draw: Any) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, parse_math=False)
    axes.grid(visible=True, which="both", linewidth=0.3)
    draw(axes)
    save_figure(path, figure)


def _draw_cycles(axes: Axes, result: SweepResult, rows: Sequence[Row]) -> None:
    """Draw cycles against cores, or another varied setting, with a line per other settings."""
    across = "cores_count" if "cores_count" in result.varied else result.varied[0]
    others = [name for name in result.varied if name != across]
    lines: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        lines.setdefault(_settings(row, others), []).append((row[across], row["cycles"]))
    for number, (label, points) in enumerate(lines.items()):
        x, y = zip(*sorted(points), strict=True)
        dashes = _DASHES[number % len(_DASHES)]
        axes.plot(x, y, dashes, marker="o", markersize=3, linewidth=1, label=label)
    if others and len(lines) <= MAX_NAMED:
        _legend_below(axes)
    _log_axes(axes, format_setting_name(across), "cycles")
    values = sorted({row[across] for row in rows})
    if len(values) <= MAX_NAMED:
        axes.set_xticks(values)


def _draw_roofline(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw the performance of each device under the roofs of all devices."""
    points = [row for row in rows if row["macs"] and _bytes(row)]
    reach = [row["macs"] / _bytes(row) for row in points] or [1.0]
    ridges = [_peak(row) / row["dram_bytes_per_cycle"] for row in rows]
    x = np.geomspace(min(reach + ridges) / 2, max(reach + ridges) * 2, 200)
    for peak, bandwidth in sorted({(_peak(row), row["dram_bytes_per_cycle"]) for row in rows}):
        axes.plot(x, np.minimum(peak, x * bandwidth), color="grey", linewidth=0.7)
    for bandwidth in sorted({row["dram_bytes_per_cycle"] for row in rows}):
        _name(axes, f"{bandwidth} bytes per cycle", x[0], x[0] * bandwidth, "left")
    for peak, cores in sorted({(_peak(row), row["cores_count"]) for row in rows}):
        _name(axes, f"{format_count(cores, 'core')} of {peak // cores} MACs", x[-1], peak, "right")
    speed = [row["macs"] / row["cycles"] for row in points]
    for bound, marker in (("compute", "o"), ("memory", "^")):
        mine = [index for index, row in enumerate(points) if row["bound"] == bound]
        if mine:
            axes.plot(
                [reach[i] for i in mine],
                [speed[i] for i in mine],
                marker,
                markersize=4,
                label=f"limited by {bound}",
            )
    if points:
        _legend_below(axes)
    _log_axes(axes, "MACs per byte of DRAM traffic", "MACs per cycle (lines: Int8 peak)")


def _draw_pareto(axes: Axes, result: SweepResult, rows: Sequence[Row]) -> None:
    """Draw cycles against the scratchpads of all cores, and the Pareto front."""
    points = sorted((_scratchpads(row), row["cycles"]) for row in rows)
    front = find_pareto_front(points)
    axes.plot(*zip(*points, strict=True), "o", color="grey", markersize=3, label="device")
    axes.step(
        *zip(*front, strict=True), where="post", marker="o", markersize=4, label="Pareto front"
    )
    if len(front) <= MAX_NAMED:
        at = {(_scratchpads(row), row["cycles"]): _settings(row, result.varied) for row in rows}
        for letter, (x, y) in zip(ascii_uppercase, front, strict=False):
            _name(axes, letter, x, y, "left")
            axes.plot([], [], " ", label=f"{letter}: {at[x, y]}")
    _legend_below(axes)
    _log_axes(axes, "KiB of scratchpads in all cores", "cycles")


def find_pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other point improves in both axes."""
    front: list[tuple[float, float]] = []
    for point in sorted(points):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front


def _settings(row: Row, names: Sequence[str]) -> str:
    return ", ".join(f"{format_setting_name(name)} {row[name]}" for name in names)


def _name(axes: Axes, text: str, x: float, y: float, side: str) -> None:
    """Draw a small text at a point, below it on the left side, above it on the right."""
    dy, va = (-4, "top") if side == "left" else (3, "bottom")
    axes.annotate(
        text, (x, y), (0, dy), textcoords="offset points", fontsize="x-small", ha=side, va=va
    )


def _legend_below(axes: Axes) -> None:
    """Place the legend below the axes, in two columns if the labels are short."""
    _, labels = axes.get_legend_handles_labels()
    columns = 2 if max(map(len, labels)) <= MAX_IN_HALF else 1
    axes.figure.legend(loc="outside lower center", ncols=columns, fontsize="small")


def _log_axes(axes: Axes, x: str, y: str) -> None:
    """Make both axes logarithmic with plain numbers, and minor ticks within one decade."""
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    plain = StrMethodFormatter("{x:,.10g}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(plain)
    axes.yaxis.set_major_formatter(plain)
    low, high = axes.get_ylim()
    axes.yaxis.set_minor_formatter(plain if high < 10 * low else NullFormatter())
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _bytes(row: Row) -> int:
    return int(row["bytes_read"] + row["bytes_written"])


def _peak(row: Row) -> int:
    return int(row["cores_count"] * row["mac_out_lanes"] * row["mac_in_lanes"])


def _scratchpads(row: Row) -> float:
    return float(row["cores_count"] * row["scratchpad_bytes"] / 1024)
