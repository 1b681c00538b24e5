"""Runs of a program on every device of a grid."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle import Bundle
from nmpsim.config import SETTINGS, DeviceConfig, format_setting_name
from nmpsim.core.limits import NO_LIMITS, Limits
from nmpsim.core.memory_demand import check_device_memory
from nmpsim.core.run import Progress, ProgressCallback
from nmpsim.diagnostics import UserError, fail
from nmpsim.experiments.grid import Grid, GridPoint, list_grid_points
from nmpsim.experiments.identity import compute_array_digest, compute_digest, get_code_version
from nmpsim.experiments.jobs import run_jobs
from nmpsim.experiments.pareto import find_pareto_front
from nmpsim.experiments.process_pool import share_resources
from nmpsim.experiments.table import COLUMNS, ResultsFile, compute_measures
from nmpsim.experiments.table_file import Row
from nmpsim.experiments.worker import PointResult, SweepPoint, SweepWork, measure_point

if TYPE_CHECKING:
    from nmpsim.analysis.program import Program


@attrs.frozen
class SweepResult:
    """Result of a sweep: one row for each grid point, in grid order."""

    program: str
    varied: tuple[str, ...]
    """Settings that the grid varies (``cores_count``)."""
    rows: tuple[Row, ...]
    """Column -> value of each point; docs/sweep.md describes the columns."""
    reused: int
    """Number of rows that the results file already had."""

    @property
    def pareto_points(self) -> tuple[str, ...]:
        """Keys of the points on the Pareto front of cycles, energy and area."""
        measures = {
            row["point"]: (row["cycles"], row["energy_pj"], row["area_um2"])
            for row in self.rows
            if row["error"] is None and row["energy_pj"] is not None
        }
        front = set(find_pareto_front(list(measures.values())))
        return tuple(point for point, values in measures.items() if values in front)


def sweep(
    program: Program | Bundle | Path | str,
    inputs: Mapping[str, npt.ArrayLike],
    grid: Grid,
    *,
    weights: Path | str | None = None,
    tensors: Path | str | None = None,
    numerics: str | None = None,
    device: DeviceConfig | None = None,
    results: Path | str | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    max_memory: int | None = None,
    progress: ProgressCallback | None = None,
    limits: Limits = NO_LIMITS,
) -> SweepResult:
    """Compile and run a program on each device of a grid in parallel; return the rows.

    It starts new processes: a script that calls it needs ``if __name__ == "__main__":``.

    Parameters
    ----------
    program
        A bundle that carries its LIR, a file of one or of LIR, or a loaded program.
    inputs
        An array for each input, as ``Device.run`` takes them.
    grid
        Setting (``cores_count`` or ``cores.count``) -> its values.
    weights
        ``.npz`` file with the constants of a LIR file.
    tensors
        JSON file with its exact scales; the file next to it is taken if there is one.
    numerics
        Numerics profile for a LIR file, ``glow-int`` if None.
    device
        Device whose settings the grid changes; the bundle's own, or the NMP, if None.
    results
        ``.csv`` or ``.parquet`` file that is written after each point; points that it already has
        are not run again.
    jobs
        Number of processes, one for each processor if None.
    scheduler
        Address of a Dask scheduler, to run there instead.
    max_memory
        Bytes that all processes may take together; what is free, less a margin, if None. On a
        cluster, the bytes that each worker may take.
    progress
        Called with ``compiling`` if kernels must be compiled, and for every ``point``.
    limits
        Limits of each run. Its cycles are a setting of the device; points of ``results`` that took
        too long are run again.

    Returns
    -------
    SweepResult
        A row for each point. A program that does not fit or does not reach its end is a row that
        says so.

    Raises
    ------
    UserError
        Codes of FILE, LIR, CONST, BUN, INPUT, GRID, DEV and PKG; COMP001; RESULT001 for results of
        something else, WORK001 if a worker was lost, MEM001 if a point needs too much memory.
    """
    loaded = (
        load_sweep_program(program, weights, tensors, numerics)
        if isinstance(program, Bundle | Path | str)
        else program
    )
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    points = list_grid_points(grid, limits.apply_to_device(device or loaded.device))
    same = {
        "nmpsim": get_code_version(),
        "program": loaded.module.name,
        "program_digest": _compute_program_digest(loaded),
        "inputs_digest": compute_array_digest(arrays),
    }
    heads = [_known_columns(point, same, loaded.numerics_label) for point in points]
    keys = [head["point"] for head in heads]
    table = ResultsFile.open(None if results is None else Path(results), same)
    known = {key for key, row in table.rows.items() if row["error"] != "timeout"}
    missing = [index for index, key in enumerate(keys) if key not in known]
    done = reused = len(keys) - len(missing)

    def measure() -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the index and the columns of each missing point, those without a device first."""
        runnable = []
        for index in missing:
            if (error := points[index].error) is not None:
                yield index, _error_columns(error)
            elif (config := points[index].device) is not None:
                runnable.append(SweepPoint(index, config))
        if not runnable:
            return
        processes, limit = share_resources(jobs, len(runnable), max_memory, scheduler)
        for point in runnable if scheduler is None else ():
            check_device_memory(point.device, limit)
        work = SweepWork(loaded, arrays, limit, Limits(timeout=limits.timeout))
        for measured in run_jobs(
            measure_point, work, runnable, jobs=processes, scheduler=scheduler, progress=progress
        ):
            yield measured.index, _columns(measured)

    for index, found in measure():
        table.add_row({**dict.fromkeys(COLUMNS), **heads[index], **found})
        done += 1
        if progress:
            settings = points[index].settings.items()
            text = ", ".join(f"{format_setting_name(name)}={value}" for name, value in settings)
            progress(Progress("point", done, len(keys), text))
    table.move_to_end(keys)
    rows = tuple(table.rows[key] for key in keys)
    return SweepResult(loaded.module.name, tuple(points[0].settings), rows, reused)


def load_sweep_program(
    program: Bundle | Path | str,
    weights: Path | str | None = None,
    tensors: Path | str | None = None,
    numerics: str | None = None,
) -> Program:
    """Load a program with its constants from a bundle, a model file or LIR text.

    Raises
    ------
    UserError
        Codes of FILE, LIR, CONST, MODEL, PKG and BUN; BUN005 for a bundle without its module;
        ARG001 for weights or numerics given with a bundle, which has its own.
    """
    from nmpsim.analysis.program import is_bundle, load_program, make_bundle_program

    if isinstance(program, Bundle):
        return make_bundle_program(program)
    path = Path(program)
    if numerics is not None and is_bundle(path):
        raise fail(
            "ARG001",
            "--numerics cannot change the numerics of a bundle",
            place=path,
            found=f"--numerics {numerics}",
            hint="Leave out --numerics, or pass the LIR file.",
        )
    files = (None if file is None else Path(file) for file in (weights, tensors))
    loaded = load_program(path, *files)
    if numerics is None:
        return loaded
    return loaded.with_numerics(numerics)


def _compute_program_digest(program: Program) -> str:
    """Return a digest of LIR, exact scales, constants and numerics."""
    from nmpsim.bundle.debug import make_debug_sections  # imports the parser of LIR

    arithmetic = repr((program.numerics_label, sorted(program.layer_numerics.items())))
    sections = make_debug_sections(program.module, {}).values()
    parts = [memoryview(chunk).cast("B") for chunks in sections for chunk in chunks]
    return compute_digest([arithmetic.encode(), *parts])


def _known_columns(point: GridPoint, same: Mapping[str, str], numerics: str) -> dict[str, Any]:
    """Return the columns known before a point is run; column ``point`` is their digest."""
    settings = (
        {**dict.fromkeys(SETTINGS), **point.settings}
        if point.device is None
        else {name: getattr(point.device, name) for name in SETTINGS}
    )
    given = {} if point.device is None else point.device.estimates
    estimates = {name: attrs.astuple(given[name]) for name in sorted(given)}
    key = compute_digest([json.dumps([same, settings, estimates]).encode()])
    return {"point": key, **same, "numerics": numerics, **settings}


def _columns(measured: PointResult) -> dict[str, Any]:
    found: dict[str, Any] = {"compile_seconds": measured.compile_seconds}
    report = measured.report
    if measured.error is not None or report is None:
        return found | (_error_columns(measured.error) if measured.error else {})
    if report.trap is not None:
        return found | {"error": report.trap.kind, "message": report.trap.message}
    return compute_measures(measured)


def _error_columns(error: UserError) -> dict[str, Any]:
    first = error.diagnostics[0]
    facts = [f"found {first.found}" if first.found else "", first.message]
    return {"error": first.code, "message": "; ".join(fact for fact in reversed(facts) if fact)}
