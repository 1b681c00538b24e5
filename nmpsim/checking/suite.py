"""Suites: programs to check, with expected outputs and budgets, and the reader of their files.

``docs/check.md`` describes every key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from nmpsim.bundle.elffile import ElfFile
from nmpsim.bundle.schema import make_strict_converter
from nmpsim.core.limits import Limits
from nmpsim.diagnostics import Diagnostic, Place, UserError, did_you_mean, fail
from nmpsim.input_files import read_toml

if TYPE_CHECKING:
    from cattrs import Converter


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
        said = (self.expect.outputs, self.expect.layers, self.expect.top1, *_limits(self.budget))
        return self.baseline is None and all(one is None for one in said)

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


def _limits(budget: Budget) -> tuple[object, ...]:
    return attrs.astuple(budget, recurse=False)


# Reader of the TOML file of a suite; paths in it are relative to its folder.

_DEFAULTS = "defaults"
_CASES = "case"
_MERGED = ("expect", "budget")

_FORMAT_HINT = "See docs/check.md for the format of suites."


def read_suite(path: Path) -> Suite:
    """Read a suite from a TOML file.

    Raises
    ------
    UserError
        FILE001 if it cannot be read; SUITE001, SUITE002 with all that is wrong in it.
    """
    document = read_toml(path, "suite", "SUITE001")
    place = Place(str(path))
    stray = [key for key in document if key not in (_DEFAULTS, _CASES)]
    if stray:
        raise _unusable(place, _unknown(stray[0], (_DEFAULTS, _CASES)))
    tables, defaults = document.get(_CASES, []), document.get(_DEFAULTS, {})
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise _unusable(
            place, f"{_CASES} is not a list of tables", hint="Write each case as a table [[case]]."
        )
    if not isinstance(defaults, dict):
        raise _unusable(
            place, f"{_DEFAULTS} is not a table", hint="Write the defaults as a table [defaults]."
        )
    converter = _make_converter(path.parent)
    findings: list[Diagnostic] = []
    cases: list[SuiteCase] = []
    for number, table in enumerate(tables, 1):
        try:
            cases.append(_case(_merged(defaults, table), number, place, converter))
        except UserError as error:
            findings += error.diagnostics
    if findings:
        raise UserError(findings)
    return Suite(str(path), tuple(cases)).validate()


def _merged(defaults: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a case merged with the defaults; expectations and budgets are merged key by key."""
    merged = {**defaults, **table}
    for key in _MERGED:
        default, own = defaults.get(key, {}), table.get(key, {})
        if isinstance(default, dict) and isinstance(own, dict) and (default or own):
            if "baseline" not in merged:
                default = _without_comparisons(default, own)
            merged[key] = {**default, **own}
    return merged


def _without_comparisons(default: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults without comparisons with a baseline, for a case without one."""
    compares = {"cycles_percent"} if "layers" in {**default, **own} else {"cycles_percent", "only"}
    return {
        key: value for key, value in default.items() if key not in compares and value != "baseline"
    }


def _case(table: dict[str, Any], number: int, place: Place, converter: Converter) -> SuiteCase:
    from cattrs import BaseValidationError, transform_error

    name = table.get("name")
    where = f"case {name!r}" if isinstance(name, str) else f"case {number}"
    try:
        case = converter.structure(table, SuiteCase)
    except BaseValidationError as error:
        problems = transform_error(error, path=where, format_exception=_explained)
        raise UserError(
            Diagnostic("SUITE001", problem[:300], place, hint=_FORMAT_HINT)
            for problem in problems[:10]
        ) from error
    return attrs.evolve(case, name=case.name or case.bundle.stem)


def _make_converter(folder: Path) -> Converter:
    """Return the converter of a suite whose paths are relative to ``folder``."""

    def structure_path(value: Any, _: object) -> Path:
        if not isinstance(value, str) or not value or "\0" in value:
            raise TypeError(f"{value!r} is not the name of a file")
        return folder / value

    def structure_inputs(value: Any, kind: object) -> tuple[InputFile, ...]:
        """Parse a file, a list of files, or a table with a file for each name."""
        if isinstance(value, dict):
            named = value.items()
            return tuple(InputFile(structure_path(path, kind), name) for name, path in named)
        paths = value if isinstance(value, list) else [value]
        return tuple(InputFile(structure_path(path, kind)) for path in paths)

    converter = make_strict_converter()
    converter.register_structure_hook(float, _real)
    converter.register_structure_hook(Path, structure_path)
    converter.register_structure_hook(
        SaturationLimit, lambda value, _: SaturationLimit.parse(value)
    )
    converter.register_structure_hook_func(
        lambda kind: kind == tuple[InputFile, ...], structure_inputs
    )
    return converter


def _real(value: Any, _: object) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"{value!r} is not a number")
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


def _explained(error: BaseException, _: object) -> str:
    from cattrs import ForbiddenExtraKeysError

    if isinstance(error, ForbiddenExtraKeysError) and error.cl is not None:
        known = [field.name for field in attrs.fields(error.cl)]
        return "; ".join(_unknown(key, known) for key in sorted(error.extra_fields))
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"
    return str(error.args[0] if error.args else error) or type(error).__name__


def _unknown(key: str, known: tuple[str, ...] | list[str]) -> str:
    hint = did_you_mean(key, known) or f"Known keys are {', '.join(known)}."
    return f"unknown key {key!r}. {hint}"


def _unusable(place: Place, message: str, hint: str = _FORMAT_HINT) -> UserError:
    return fail("SUITE001", f"the suite cannot be used: {message}", place=place, hint=hint)
