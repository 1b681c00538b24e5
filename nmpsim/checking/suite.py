"""A suite: the programs to check, what they must answer and what they may cost.

``docs/check.md`` describes every key; :mod:`nmpsim.checking.suite_file` reads the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import attrs

from nmpsim.core.limits import Limits
from nmpsim.diagnostics import Diagnostic, Place, UserError


@attrs.frozen
class SaturationLimit:
    """How many values may saturate."""

    at_most: int | None
    """In the whole run; None for no more in any layer than the baseline has there."""

    @classmethod
    def of(cls, value: object) -> SaturationLimit:
        """From ``none``, ``baseline`` or a number; ValueError for anything else."""
        if value == "none":
            return cls(0)
        if value == "baseline":
            return cls(None)
        if type(value) is not int or value < 0:
            raise ValueError(f"{value!r} is neither 'none', 'baseline' nor a number from 0 on")
        return cls(value)


@attrs.frozen
class InputFile:
    """A file with values for an input, or for several by their names."""

    path: Path
    name: str | None = None
    """The input that it is for, where that must be said."""

    @property
    def argument(self) -> str:
        """As ``--input`` takes it."""
        return str(self.path) if self.name is None else f"{self.name}={self.path}"


@attrs.frozen
class Expect:
    """What a run must answer; None for what nothing is said about."""

    outputs: Path | None = None
    """``.npz`` with outputs by name, or ``.npy`` for the only one."""
    layers: Path | None = None
    """``.npz`` as ``nmpsim run --save-layers`` writes it."""
    only: tuple[str, ...] = ()
    """Names of the layers that must be right, or patterns as ``conv*``: of ``layers``, or else of
    the baseline. All that ``layers`` has if empty."""
    ulp: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    """Units of the last place that an element may be off."""
    sqnr_db: float | None = None
    """Signal to noise that is enough, however far single elements are off."""
    top1: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(0))
    )
    """The class that the program must name."""


@attrs.frozen
class Budget:
    """What a run may cost; None for what nothing is said about."""

    cycles: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(0))
    )
    cycles_percent: float | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(0))
    )
    """Above the baseline."""
    saturation: SaturationLimit | None = None
    memory_bytes: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(0))
    )
    """DRAM for code, constants and activations."""
    hazards: Literal["none"] | None = None
    """None are allowed; not looked for if nothing is said."""


def _is_limit(name: str) -> Callable[[Any, Any, Any], None]:
    """A validator: ValueError for what :class:`~nmpsim.core.limits.Limits` does not take."""

    def check(_: object, __: object, value: Any) -> None:
        try:
            Limits(**{name: value})
        except UserError as error:
            raise ValueError(f"{value!r} is no {name}") from error

    return check


@attrs.frozen
class Case:
    """A program on inputs, and what must come out."""

    bundle: Path
    input: tuple[InputFile, ...] = ()
    name: str = ""
    """Unique in its suite; the bundle's file name, if the suite gives none."""
    device: Path | None = None
    """Device file; None for the device that the bundle was made for."""
    baseline: Path | None = None
    lir: str = ""
    """Where the LIR text is, for annotations; the name that the bundle knows if empty."""
    expect: Expect = Expect()
    budget: Budget = Budget()
    max_cycles: int | None = attrs.field(default=None, validator=_is_limit("max_cycles"))
    timeout: float | None = attrs.field(default=None, validator=_is_limit("timeout"))

    @property
    def limits(self) -> Limits:
        """What the run may take."""
        return Limits(self.max_cycles, self.timeout)

    @property
    def says_nothing(self) -> bool:
        """True if a run that reaches its end cannot fail."""
        said = (self.expect.outputs, self.expect.layers, self.expect.top1, *_limits(self.budget))
        return self.baseline is None and all(one is None for one in said)

    @property
    def needs_baseline(self) -> bool:
        """True if it compares with a baseline that it does not name."""
        limit = self.budget.saturation
        compares = (
            self.budget.cycles_percent is not None,
            limit is not None and limit.at_most is None,
            bool(self.expect.only) and self.expect.layers is None,
        )
        return any(compares) and self.baseline is None


@attrs.frozen
class Suite:
    """Cases in their order."""

    file: str
    cases: tuple[Case, ...]

    def checked(self) -> Suite:
        """Itself, if every case can fail and has its own name; SUITE001 or SUITE002 otherwise."""
        place = Place(self.file)
        findings = [finding for case in self.cases for finding in _findings(case, place)]
        if not self.cases:
            hint = "[[case]] with bundle, input, and expect, budget or baseline"
            findings = [Diagnostic("SUITE002", "the suite has no case", place, hint=hint)]
        findings += _twice("are named", [case.name for case in self.cases], place)
        baselines = [str(case.baseline) for case in self.cases if case.baseline is not None]
        findings += _twice("have the baseline", baselines, place)
        if findings:
            raise UserError(findings)
        return self


def _findings(case: Case, place: Place) -> list[Diagnostic]:
    title = f"case {case.name!r}"
    if case.says_nothing:
        message = f"{title} has nothing to check"
        hint = "give it expect, budget or baseline; a single bundle --expect, --top1, ..."
        return [Diagnostic("SUITE002", message, place, hint=hint)]
    if case.needs_baseline:
        message = f"{title} compares with a baseline and names none"
        hint = 'baseline = "FILE.json", then nmpsim check --update-baseline'
        return [Diagnostic("SUITE001", message, place, hint=hint)]
    return []


def _twice(what: str, values: list[str], place: Place) -> list[Diagnostic]:
    return [
        Diagnostic("SUITE001", f"two cases {what} {value!r}", place, hint="give each its own")
        for value in dict.fromkeys(values)
        if values.count(value) > 1
    ]


def _limits(budget: Budget) -> tuple[object, ...]:
    return attrs.astuple(budget, recurse=False)
