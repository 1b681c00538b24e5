"""The points of a sweep as text and as JSON: settings and results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from rich.console import Console

from nmpsim.config import format_setting_name
from nmpsim.diagnostics import format_count
from nmpsim.experiments import SweepResult
from nmpsim.experiments.table_file import Row
from nmpsim.report.device_use import HostWork
from nmpsim.report.fields import Source
from nmpsim.views.console import print_heading, print_line, print_more, print_table
from nmpsim.views.measures import RUN_COLUMNS, NumberColumn, TableColumn, make_columns

MAX_ROWS = 64
"""Points that are shown, the fastest first."""


class SweepDocument(TypedDict):
    """Output of `nmpsim sweep --format json`."""

    schema: Literal["nmpsim-sweep-2"]
    program: str
    varied: Annotated[list[str], "columns of the settings that were varied"]
    reused: Annotated[int, "points that the file of results had already"]
    points: Annotated[
        list[dict[str, int | float | str | None]],
        Source("rows"),
        "with the columns of the file of results",
    ]
    pareto: Annotated[
        list[str],
        Source("pareto_points"),
        "`point` of each point on the Pareto front of cycles, energy and area",
    ]


def print_sweep(result: SweepResult, console: Console) -> None:
    """Print a table of the points of a sweep, and the points that failed."""
    done = [row for row in result.rows if row["error"] is None]
    failed = [row for row in result.rows if row["error"] is not None]
    fastest = sorted(done, key=lambda row: int(row["cycles"]))[:MAX_ROWS]
    shown = fastest if len(done) > MAX_ROWS else done
    print_line(console, f"{result.program}: {format_count(len(done), 'point')}", "bold")
    if shown:
        console.print()
        print_table(console, shown, *_columns(result, shown))
        print_line(console, "Pareto: on the Pareto front of cycles, energy and area", "dim")
    if len(shown) < len(done):
        print_line(console, f"and {len(done) - len(shown):,} slower ones")
    if failed:
        print_heading(console, f"{len(failed)} without a result")
        for row in failed[:MAX_ROWS]:
            settings = ", ".join(f"{format_setting_name(n)}={row[n]}" for n in result.varied)
            print_line(console, f"  {settings}: {row['error']}: {row['message']}")
        print_more(console, len(failed) - MAX_ROWS)


def _columns(result: SweepResult, rows: Sequence[Row]) -> list[TableColumn]:
    best = min(int(row["cycles"]) for row in rows)
    front = set(result.pareto_points)
    pareto, speedup, *costs, host = make_columns(
        "sweep",
        pareto=lambda row: "yes" if row["point"] in front else "no",
        speedup=lambda row: row["cycles"] / best if best else None,
        bytes=lambda row: row["bytes_read"] + row["bytes_written"],
        host=lambda row: (
            HostWork(row["host_layers"], row["host_elements"], row["host_cycles"]).text
        ),
    )
    return [
        *(NumberColumn(format_setting_name(one), one, str) for one in result.varied),
        RUN_COLUMNS["cycles"],
        speedup,
        RUN_COLUMNS["latency"],
        *costs,
        *(RUN_COLUMNS[key] for key in ("energy", "area", "energy-delay")),
        RUN_COLUMNS["saturated"],
        pareto,
        host,
    ]
