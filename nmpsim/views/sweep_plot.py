"""Figures of a sweep: cycles, roofline, Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from string import ascii_uppercase

from nmpsim.atomic import make_write_error
from nmpsim.config import format_setting_name
from nmpsim.diagnostics import format_count
from nmpsim.experiments import SweepResult
from nmpsim.experiments.pareto import find_pareto_front
from nmpsim.experiments.table_file import Row
from nmpsim.views.error_plot import require_plots
from nmpsim.views.html.draw import write_figure
from nmpsim.views.html.figures import Figure, make_figure

MAX_NAMED = 10
"""Most lines, points or ticks with names; if there are more, none has one."""


def create_plot_folder(folder: Path) -> None:
    """Create the folder for figures; raise UserError if this fails or a package is missing.

    Raises
    ------
    UserError
        PKG001 if vl-convert-python is missing, FILE002 if the folder cannot be made.
    """
    require_plots()
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
    for name, make in (
        ("cycles", make_cycles_figure),
        ("roofline", make_devices_figure),
        ("pareto", make_pareto_figure),
    ):
        path = folder / f"{name}.svg"
        write_figure(path, make(result, rows))
        yield path


def make_cycles_figure(result: SweepResult, rows: Sequence[Row]) -> Figure:
    """Return a figure of cycles over the core count, or over the first varied setting."""
    across = "cores_count" if "cores_count" in result.varied else result.varied[0]
    others = [name for name in result.varied if name != across]
    values = [
        {"setting": row[across], "cycles": row["cycles"], "others": _settings(row, others)}
        for row in rows
    ]
    lines = len({value["others"] for value in values})
    ticks = sorted({row[across] for row in rows})
    return make_figure(
        "cycles",
        result.program,
        "",
        values,
        setting=format_setting_name(across),
        lines=bool(others) and lines <= MAX_NAMED,
        ticks=ticks if len(ticks) <= MAX_NAMED else None,
    )


def make_devices_figure(result: SweepResult, rows: Sequence[Row]) -> Figure:
    """Return a roofline figure with a point for each run and the roofs of all devices."""
    points = [
        {
            "device": _settings(row, result.varied),
            "reach": row["macs"] / (row["bytes_read"] + row["bytes_written"]),
            "speed": row["macs"] / row["cycles"],
            "bound": row["bound"],
            "cycles": row["cycles"],
        }
        for row in rows
        if row["macs"] and row["bytes_read"] + row["bytes_written"]
    ]
    roofs = sorted(
        {
            (
                row["cores_count"] * row["mac_out_lanes"] * row["mac_in_lanes"],
                row["dram_bytes_per_cycle"],
                row["cores_count"],
            )
            for row in rows
        }
    )
    reach = [point["reach"] for point in points] or [1.0]
    reach += [peak / bandwidth for peak, bandwidth, _ in roofs]
    low, high = min(reach) / 2, max(reach) * 2
    corners = [
        {"roof": f"{peak} {rate}", "reach": at, "speed": min(peak, at * rate)}
        for peak, rate, _ in roofs
        for at in (low, peak / rate, high)
    ]
    labels = [
        {"name": f"{rate} bytes per cycle", "reach": low, "speed": low * rate, "align": "left"}
        for rate in sorted({rate for _, rate, _ in roofs})
    ] + [
        {
            "name": f"{format_count(cores, 'core')} of {peak // cores} MACs",
            "reach": high,
            "speed": peak,
            "align": "right",
        }
        for peak, cores in sorted({(peak, cores) for peak, _, cores in roofs})
    ]
    speed = [one["speed"] for one in (*points, *corners)]
    return make_figure(
        "roofline",
        result.program,
        "Lines: peak of Int8 and bandwidth of the DRAM.",
        points,
        domains={"reach": [low, high], "speed": [min(speed) / 2, max(speed) * 2]},
        roof=corners,
        subject="device",
        labels=labels,
    )


def make_pareto_figure(result: SweepResult, rows: Sequence[Row]) -> Figure:
    """Return a figure of cycles over the total scratchpad size, with the Pareto front."""
    at: dict[tuple[float, ...], str] = {
        (row["cores_count"] * row["scratchpad_bytes"] / 1024, row["cycles"]): _settings(
            row, result.varied
        )
        for row in rows
    }
    front = find_pareto_front(list(at))
    letters = ascii_uppercase if len(front) <= MAX_NAMED else [""] * len(front)
    named = dict(zip(front, letters, strict=False))
    return make_figure(
        "pareto",
        result.program,
        "\n".join(f"{letter}: {at[point]}" for point, letter in named.items() if letter),
        [{"kibibytes": size, "cycles": cycles} for size, cycles in at],
        front=[
            {"kibibytes": size, "cycles": cycles, "name": letter}
            for (size, cycles), letter in named.items()
        ],
    )


def _settings(row: Row, names: Sequence[str]) -> str:
    return ", ".join(f"{format_setting_name(name)} {row[name]}" for name in names)
