"""What pytest's fixtures do: run programs, and compare runs with arrays and with snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim import session
from nmpsim.bundle import Bundle, bundle_from_bytes, read_bundle
from nmpsim.checking.baseline import baseline_of, read_baseline, write_baseline
from nmpsim.checking.case import Expected, judged
from nmpsim.checking.expectations import check_layers, check_outputs, check_trap
from nmpsim.checking.results import CaseResult, Check
from nmpsim.checking.run import Run, run_bundle
from nmpsim.checking.suite import Budget, Case, Expect
from nmpsim.config import DeviceConfig, from_settings, load_device
from nmpsim.core.device import Device
from nmpsim.diagnostics import UserError


class Runner:
    """Programs and devices of a test session, each made once."""

    def __init__(self) -> None:
        self._bundles: dict[Path, Bundle] = {}
        self._devices: dict[DeviceConfig, Device] = {}

    def load(self, path: Path | str) -> Bundle:
        """The bundle of a file."""
        where = Path(path).absolute()
        if where not in self._bundles:
            self._bundles[where] = read_bundle(where)
        return self._bundles[where]

    def compile(self, lir: Path | str, weights: Path | str | None = None, **options: Any) -> Bundle:
        """Compile LIR text; options are those of :func:`nmpsim.compile`."""
        return bundle_from_bytes(session.compile(lir, weights, **options).image, str(lir))

    def run(
        self,
        bundle: Bundle | Path | str,
        inputs: Mapping[str, npt.ArrayLike],
        device: Path | None,
        settings: Mapping[str, Any],
    ) -> Run:
        """Run a bundle on its own device, or on that of a file, with some settings changed.

        Raises:
            UserError: codes of FILE, BUN, DEV and INPUT.
        """
        loaded = bundle if isinstance(bundle, Bundle) else self.load(bundle)
        base = dict(loaded.metadata.device) if device is None else load_device(device).settings()
        config = from_settings({**base, **settings})
        if config not in self._devices:
            self._devices[config] = Device(config)
        arrays = {name: np.asarray(array) for name, array in inputs.items()}
        return run_bundle(self._devices[config], loaded, arrays)


def trap_text(run: Run) -> str:
    """Why a run did not reach its end; empty if it did."""
    trap = run.report.trap
    return "" if trap is None else failure_text([check_trap(trap, run)])


def compare_arrays(
    run: Run,
    outputs: Mapping[str, npt.ArrayLike],
    layers: Mapping[str, npt.ArrayLike],
    ulp: int,
    sqnr_db: float | None,
) -> str:
    """What is wrong with outputs and layers; empty if nothing is.

    Raises INPUT001 or INPUT002 for arrays that no output can be compared with.
    """
    expect = Expect(ulp=ulp, sqnr_db=sqnr_db)
    checks = []
    if outputs:
        arrays = {name: np.asarray(array) for name, array in outputs.items()}
        checks.append(check_outputs(run, arrays, expect, None))
    if layers:
        arrays = {name: np.asarray(array) for name, array in layers.items()}
        checks.append(check_layers(run, arrays, expect))
    return failure_text(checks)


def compare_snapshot(
    run: Run, path: Path, cycles_percent: float, ulp: int, sqnr_db: float | None
) -> str:
    """What got worse since a snapshot was written; empty if nothing did."""
    case = Case(
        bundle=Path(),
        baseline=path,
        expect=Expect(ulp=ulp, sqnr_db=sqnr_db),
        budget=Budget(cycles_percent=cycles_percent),
    )
    try:
        result = judged(case, run, Expected(), read_baseline(path))
    except UserError as error:
        result = CaseResult("", "", errors=error.diagnostics)
    errors = [str(attrs.evolve(one, hint=None)) for one in result.errors]
    return "\n".join([*errors, failure_text(result.checks)]).strip()


def write_snapshot(run: Run, path: Path) -> None:
    """Write what a run was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_baseline(path, baseline_of(run))


def failure_text(checks: list[Check] | tuple[Check, ...]) -> str:
    """Each failed check and the layers concerned."""
    lines = []
    for check in checks:
        if check.failed:
            lines.append(f"{check.name}: {check.message}")
            lines += [f"  {one.place}: {one.message}" for one in check.culprits]
    return "\n".join(lines)
