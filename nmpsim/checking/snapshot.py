"""Implementation of the pytest fixtures: run programs, compare them with arrays and snapshots."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim import session
from nmpsim.bundle import Bundle, BundleHolder, get_bundle, parse_bundle
from nmpsim.checking.baseline import ComparedRun, make_baseline, read_baseline, write_baseline
from nmpsim.checking.case import ExpectedArrays, check_run
from nmpsim.checking.expectations import check_end, check_layers, check_outputs
from nmpsim.checking.hazards import check_hazards, find_hazards
from nmpsim.checking.results import CaseResult, CheckResult
from nmpsim.checking.run import CheckedRun, LoadedProgram
from nmpsim.checking.suite import Budget, Expectations, SuiteCase
from nmpsim.config import DeviceConfig, load_device, make_device_config
from nmpsim.diagnostics import UserError, fail


class ProgramRunner:
    """Runner that loads, compiles and runs programs, with a cache of programs and devices."""

    def __init__(self) -> None:
        self._bundles: dict[Path, Bundle] = {}
        self._devices: dict[DeviceConfig, session.Device] = {}

    def load(self, path: Path | str) -> Bundle:
        """Load a bundle file or compile a model file; later calls return the same bundle."""
        where = Path(path).absolute()
        if where not in self._bundles:
            self._bundles[where] = session.load(where)
        return self._bundles[where]

    def compile(self, lir: Path | str, weights: Path | str | None = None, **options: Any) -> Bundle:
        """Compile LIR text with options of :func:`nmpsim.compile`; return the bundle."""
        return parse_bundle(session.compile(lir, weights, **options).file, str(lir))

    def run(
        self,
        bundle: Bundle | BundleHolder | Path | str,
        inputs: Mapping[str, npt.ArrayLike],
        device: Path | None,
        settings: Mapping[str, Any],
        hazards: str | None = None,
        strict: bool = True,
    ) -> tuple[CheckedRun, str]:
        """Run a program on a device with changed settings; return the run and its failures as text.

        Parameters
        ----------
        bundle
            The program or its file.
        inputs
            Inputs by name.
        device
            Device file; None for the bundle's device.
        settings
            Changed settings of the device.
        hazards
            ``"none"`` if hazards count as failures.
        strict
            Whether violations of the contract count as failures.

        Returns
        -------
        tuple of CheckedRun and str
            The run, and the reasons why it failed; empty if it did not.

        Raises
        ------
        UserError
            Codes of FILE, BUN, DEV and INPUT; ARG001 for another limit of hazards.
        """
        if hazards not in (None, "none"):
            raise fail(
                "ARG001",
                "unknown value of hazards",
                found=f"hazards={hazards!r}",
                expected="'none', or None to omit the check",
            )
        loaded = self.load(bundle) if isinstance(bundle, Path | str) else get_bundle(bundle)
        base = dict(loaded.metadata.device) if device is None else load_device(device).settings()
        config = make_device_config({**base, **settings})
        if config not in self._devices:
            self._devices[config] = session.Device(config)
        arrays = {name: np.asarray(array) for name, array in inputs.items()}
        run = LoadedProgram(loaded, self._devices[config]).run(arrays, strict=strict)
        trap = run.report.trap
        checks = check_end(run.report)
        if hazards and (trap is None or trap.kind == "contract"):
            log = find_hazards(loaded, arrays, config)
            checks.append(check_hazards(log.found, run.layers, log.message))
        return run, format_failures(checks)


def check_tolerances(ulp: int, sqnr_db: float | None, cycles_percent: float = 0.0) -> None:
    """Raise UserError (ARG001) unless all tolerances are finite and in their valid range."""
    limits: tuple[tuple[str, float, float], ...] = (
        ("ulp", ulp, 0),
        ("sqnr_db", 0 if sqnr_db is None else sqnr_db, -math.inf),
        ("cycles_percent", cycles_percent, 0),
    )
    for name, value, least in limits:
        kind = numbers.Integral if name == "ulp" else numbers.Real
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or value < least:
            what = "a whole number" if name == "ulp" else "a finite number"
            expected = what if math.isinf(least) else f"{what} of at least {least}"
            raise fail(
                "ARG001", f"{name} is not a valid tolerance", found=repr(value), expected=expected
            )


def compare_arrays(
    run: CheckedRun,
    outputs: Mapping[str, npt.ArrayLike],
    layers: Mapping[str, npt.ArrayLike],
    ulp: int,
    sqnr_db: float | None,
) -> str:
    """Compare a run's outputs and layers with arrays; return the failures as text or "".

    Raises INPUT001 or INPUT002 for arrays that no output can be compared with.
    """
    expect, compared = Expectations(ulp=ulp, sqnr_db=sqnr_db), ComparedRun(run)
    checks = []
    if outputs:
        arrays = {name: np.asarray(array) for name, array in outputs.items()}
        checks.append(check_outputs(compared, arrays, expect))
    if layers:
        arrays = {name: np.asarray(array) for name, array in layers.items()}
        checks.append(check_layers(compared, arrays, expect))
    return format_failures(checks)


def compare_snapshot(
    run: CheckedRun, path: Path, cycles_percent: float, ulp: int, sqnr_db: float | None
) -> str:
    """Compare a run with a snapshot; return a text that lists regressions, or "" if none exist."""
    case = SuiteCase(
        bundle=Path(),
        baseline=path,
        expect=Expectations(ulp=ulp, sqnr_db=sqnr_db),
        budget=Budget(cycles_percent=cycles_percent),
    )
    try:
        result = check_run(case, run, ExpectedArrays(), read_baseline(path))
    except UserError as error:
        result = CaseResult("", "", errors=error.diagnostics)
    errors = [str(attrs.evolve(one, hint=None)) for one in result.errors]
    return "\n".join([*errors, format_failures(result.checks)]).strip()


def write_snapshot(run: CheckedRun, path: Path) -> None:
    """Write the outputs, costs and settings of a run to a snapshot file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_baseline(path, make_baseline(run))


def format_failures(checks: list[CheckResult] | tuple[CheckResult, ...]) -> str:
    """Format the failed checks and the affected layers as text."""
    lines = []
    for check in checks:
        if check.failed:
            lines.append(f"{check.name}: {check.message}")
            lines += [f"  {one.place}: {one.message}" for one in check.culprits]
    return "\n".join(lines)
