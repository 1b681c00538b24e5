"""Reader of the TOML file of a suite; paths in it are relative to its folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from nmpsim.bundle.schema import make_strict_converter
from nmpsim.checking.suite import InputFile, SaturationLimit, Suite, SuiteCase
from nmpsim.diagnostics import Diagnostic, Place, UserError, did_you_mean, fail
from nmpsim.input_files import read_toml

if TYPE_CHECKING:
    from cattrs import Converter


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
                compares = {"cycles_percent"}  # with the baseline that the case lacks
                if "layers" not in {**default, **own}:
                    compares.add("only")
                kept = default.items()
                default = {k: v for k, v in kept if k not in compares and v != "baseline"}
            merged[key] = {**default, **own}
    return merged


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
