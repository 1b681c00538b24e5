"""Suites: programs to check, with their expected outputs and their budgets.

``docs/check.md`` describes every key; :mod:`nmpsim.checking.suite_file` reads the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from nmpsim.bundle.elffile import ElfFile
from nmpsim.core.limits import Limits
from nmpsim.diagnostics import Diagnostic, Place, UserError


@attrs.frozen
class SaturationLimit:
    """Limit on the number of saturated values: a number, or as many as in the baseline."""

    at_most: int | None
    """Limit for the whole run; None to allow as many in each layer as the baseline has."""

    @classmethod
    def parse(cls, value: object) -> SaturationLimit:
        """Parse ``none``, ``baseline`` or a number; raise ValueError for anything else."""
        if value == "none":
            return cls(0)
        if value == "baseline":
            return cls(None)
        if type(value) is not int or value < 0:
            raise ValueError(f"{value!r} is not 'none', 'baseline' or a whole number of at least 0")
        return cls(value)


@attrs.frozen
class InputFile:
    """File with values of one input, or of several inputs by name."""

    path: Path
    name: str | None = None
    """Name of the input; None if the file or the program has the name."""

    @property
    def argument(self) -> str:
        """Argument of ``--input`` that names the file."""
        return str(self.path) if self.name is None else f"{self.name}={self.path}"


def _optional_count() -> Any:
    """Return an attrs field for a number from 0 on, or None."""
    return attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(0)))


@attrs.frozen
class Expectations:
    """Expectations about a run; a field is None if its result is not checked."""

    outputs: Path | None = None
    """``.npz`` file with outputs by name, or ``.npy`` file for the only output."""
    layers: Path | None = None
    """``.npz`` file as ``nmpsim run --save-layers`` writes it, or with the model's tensors."""
    only: tuple[str, ...] = ()
    """Names or patterns of the layers to check, such as ``conv*``; empty for all of ``layers``."""
    ulp: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    """Allowed difference in units of the last place."""
    sqnr_db: float | None = None
    """Signal-to-quantization-noise ratio in dB that is sufficient instead."""
    top1: int | None = _optional_count()
    """Class that the program must predict."""
    map: Mapping[str, str] = attrs.field(factory=dict)
    """Name of an array in ``layers`` -> name of its layer."""
    layout: Literal["auto", "same", "nchw", "nhwc"] = "auto"
    """Layout of the 4-D arrays in ``layers``."""


@attrs.frozen
class Budget:
    """Budget of a run: limits on its costs; a field is None if its cost is not checked."""

    cycles: int | None = _optional_count()
    cycles_percent: float | None = _optional_count()
    """Allowed increase of cycles from the baseline, in percent."""
    saturation: SaturationLimit | None = None
    memory_bytes: int | None = _optional_count()
    """DRAM for code, constants and activations."""
    hazards: Literal["none"] | None = None
    """``none`` if hazards are searched for and not allowed."""
    energy_pj: float | None = _optional_count()
    """Best known energy of the run in picojoules."""
    area_um2: float | None = _optional_count()
    """Best known area of the device without its DRAM in square micrometres."""


def _is_limit(name: str) -> Callable[[Any, Any, Any], None]:
    """Return an attrs validator for a field of :class:`~nmpsim.core.limits.Limits`."""

    def check(_: object, __: object, value: Any) -> None:
        try:
            Limits(**{name: value})
        except UserError as error:
            raise ValueError(f"{value!r} is not a valid {name}") from error

    return check


@attrs.frozen
class SuiteCase:
    """Case of a suite: a bundle with inputs, expectations, budget and baseline."""

    bundle: Path
    input: tuple[InputFile, ...] = ()
    name: str = ""
    """Unique name in the suite; by default the file name of the bundle."""
    device: Path | None = None
    """Device file; None for the device that the bundle was made for."""
    baseline: Path | None = None
    lir: str = ""
    """Path of the LIR text for annotations; by default the name in the bundle."""
    expect: Expectations = Expectations()
    budget: Budget = Budget()
    max_cycles: int | None = attrs.field(default=None, validator=_is_limit("max_cycles"))
    timeout: float | None = attrs.field(default=None, validator=_is_limit("timeout"))

    @property
    def limits(self) -> Limits:
        """Limits of cycles and time of the run."""
        return Limits(self.max_cycles, self.timeout)

    @property
    def has_no_checks(self) -> bool:
        """Whether the case has no checks, so that no completed run can fail."""
        limits = attrs.astuple(self.budget, recurse=False)
        checks = (self.baseline, self.expect.outputs, self.expect.layers, self.expect.top1, *limits)
        return all(one is None for one in checks)

    @property
    def lacks_baseline(self) -> bool:
        """Whether the case has checks against a baseline but no baseline file."""
        limit = self.budget.saturation
        compares = (
            self.budget.cycles_percent is not None,
            limit is not None and limit.at_most is None,
            bool(self.expect.only) and self.expect.layers is None,
        )
        return any(compares) and self.baseline is None


@attrs.frozen
class Suite:
    """Suite: the path of a suite file, and its cases in order."""

    file: str
    cases: tuple[SuiteCase, ...]

    def validate(self) -> Suite:
        """Validate and return the suite; raise UserError for a useless case or a repeated name."""
        place = Place(self.file)
        findings = [finding for case in self.cases for finding in _findings(case, place)]
        if not self.cases:
            hint = "Add a table [[case]] with bundle, input, and expect, budget or baseline."
            findings = [Diagnostic("SUITE002", "the suite has no cases", place, hint=hint)]
        findings += _twice("are named", [case.name for case in self.cases], place)
        baselines = [str(case.baseline) for case in self.cases if case.baseline is not None]
        findings += _twice("have the baseline", baselines, place)
        if findings:
            raise UserError(findings)
        return self


def _findings(case: SuiteCase, place: Place) -> list[Diagnostic]:
    title = f"case {case.name!r}"
    if case.has_no_checks and not _is_executable(case.bundle):
        message = f"{title} has nothing to check"
        hint = "Add expect, budget or baseline; for a single bundle, pass --expect or --top1."
        return [Diagnostic("SUITE002", message, place, hint=hint)]
    if case.lacks_baseline:
        message = f"{title} has no baseline to compare with"
        hint = 'Add baseline = "FILE.json", then run `nmpsim check --update-baseline`.'
        return [Diagnostic("SUITE001", message, place, hint=hint)]
    return []


def _is_executable(path: Path) -> bool:
    """Return whether a file is an executable that is no bundle, whose exit status is checked."""
    try:
        return path.is_file() and not ElfFile(memoryview(path.read_bytes()), str(path)).is_bundle
    except (OSError, UserError):
        return False


def _twice(what: str, values: list[str], place: Place) -> list[Diagnostic]:
    return [
        Diagnostic(
            "SUITE001",
            f"two cases {what} {value!r}",
            place,
            hint="Give each case its own name and baseline.",
        )
        for value in dict.fromkeys(values)
        if values.count(value) > 1
    ]
