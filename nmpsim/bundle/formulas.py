"""Formulas of a user that replace those of ``isa/formulas.toml`` in one program.

The file is in the same language; docs/numerics.md describes it. Every integer that a new formula or
function computes must fit 64 bits, which intervals prove for all words that a descriptor may have.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn

import attrs

from nmpsim.bundle.formula_check import (
    FUNCTION_NAMES,
    KINDS,
    RESERVED,
    SyntaxChecker,
    check_factors,
    check_ranges,
)
from nmpsim.diagnostics import Place, did_you_mean, fail
from nmpsim.input_files import read_text
from nmpsim.isa.profiles import NUMERICS, PROFILES
from nmpsim.kernels.formula_ranges import PRIMITIVES, FormulaError, make_signed_interval
from nmpsim.kernels.formulas import ELEMENTS, FORMULAS, FormulaReader, FormulaTable
from nmpsim.records import frozen

_SUFFIX = ".toml"
MAX_BYTES = 1 << 14
"""Largest size of a file."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_CODE = "NUM001"


@frozen
class CustomFormulas:
    """User-defined formulas and the numerics profile on which they are based."""

    name: str
    base: str
    """Profile of ``--numerics`` that converts scales to words."""
    text: str
    """Contents of the file."""
    table: FormulaTable
    """All formulas, those of the user in place of the standard ones."""
    factors: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """Tables of factors by operation that replace those of the base."""
    others: str = ""
    """Profile of layers that are no sums of products; empty for the base."""
    profiles: tuple[str, ...] = attrs.field(init=False)
    """Device profiles with a changed formula."""

    @profiles.default
    def _find_profiles(self) -> tuple[str, ...]:
        known = next(row.profiles for row in NUMERICS if row.name == self.base)
        return tuple(
            one for one in known if any(self.is_changed(one, kind) for kind in self.table[one])
        )

    def is_changed(self, profile: str, kind: str) -> bool:
        """Return whether a formula of a profile differs from the standard formula."""
        return kind in self.table[profile] and any(
            FormulaReader(self.table, element).read(self.table[profile][kind])
            != FormulaReader(FORMULAS, element).read(FORMULAS[profile][kind])
            for element in ELEMENTS
        )

    @property
    def digest(self) -> str:
        """First 12 hexadecimal digits of the SHA-256 of the file."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """Label of the formulas in reports: their name and digest, separated by ``@``."""
        return f"{self.name}@{self.digest}"

    @property
    def changed_table(self) -> FormulaTable:
        """Table with the formulas of changed device profiles, and all constants and functions."""
        kept = ("constants", "functions", *self.profiles)
        return {name: part for name, part in self.table.items() if name in kept}


def select_numerics(choice: str) -> tuple[str, CustomFormulas | None]:
    """Return (profile, formulas) for ``choice``; the formulas are None if it names a profile.

    ``choice`` is the name of a profile, or the path of a formulas file, which ends with ``.toml``.
    Raises UserError as :func:`read_custom_formulas` does.
    """
    if not choice.endswith(_SUFFIX):
        return choice, None
    formulas = read_custom_formulas(Path(choice))
    return formulas.base, formulas if formulas.profiles or formulas.factors else None


def read_custom_formulas(path: Path) -> CustomFormulas:
    """Read and check a file of formulas.

    Raises
    ------
    UserError
        FILE001 if the file cannot be read, NUM001 if it is invalid.
    """
    return parse_custom_formulas(read_text(path, "formulas file", MAX_BYTES, _CODE), str(path))


@cache
def parse_stored_formulas(text: bytes) -> CustomFormulas:
    """Parse the text of custom formulas that a program stores, and cache the result."""
    return parse_custom_formulas(text.decode(), "<formulas of the program>")


def find_custom_formulas(stored: str) -> CustomFormulas | None:
    """Return the custom formulas stored in a bundle's metadata, or None if ``stored`` is empty."""
    return parse_stored_formulas(stored.encode()) if stored else None


def parse_custom_formulas(text: str, file: str) -> CustomFormulas:
    """Parse and check the text of a formulas file.

    Raises
    ------
    UserError
        NUM001 with the first problem.
    """
    place = Place(file)
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise fail(
            _CODE, "the formulas file is not TOML", place=place, found=error, expected="TOML 1.0"
        ) from error
    return _FormulaReader(file, text, document).read()


# --- the file ------------------------------------------------------------------------------------


class _FormulaReader:
    """Reader of a file whose syntax is that of TOML.

    Parameters
    ----------
    file, text
        Name and contents of the file.
    document
        Its tables and keys.
    """

    def __init__(self, file: str, text: str, document: dict[str, Any]) -> None:
        self._file, self._text, self._document = file, text, document
        self._table = {place: dict(part) for place, part in FORMULAS.items()}
        self._given: dict[tuple[str, str], None] = {}

    def read(self) -> CustomFormulas:
        """Return the checked formulas."""
        name, base = (self._document.pop(key, None) for key in ("name", "base"))
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self._fail(
                "has no valid name",
                f"name = {name!r}",
                'name = "TEXT" of at most 40 letters and digits',
            )
        factors, others = self._document.pop("factors", {}), self._document.pop("others", "")
        known = {row.name: row.profiles for row in NUMERICS}
        if others not in ("", *known):
            self._fail("has no valid others", f"others = {others!r}", f"{' or '.join(known)}")
        if not isinstance(base, str) or base not in known:
            self._fail("has no valid base", f"base = {base!r}", f"base = {' or '.join(known)}")
        has_formulas = bool(self._document)
        self._read_tables(known[base])
        self._check_factors(factors)
        self._check_texts()
        for element in ELEMENTS:
            for profile in known[base]:
                self._check_profile(profile, element)
        found = CustomFormulas(name, base, self._text, self._table, factors, others)
        if has_formulas and not found.profiles and not factors:
            self._fail(
                f"does not change a formula of {base}",
                "formulas of the base",
                f"at least one formula that differs from {base}",
            )
        return found

    def _fail(
        self, problem: str, found: object = None, expected: object = None, hint: str | None = None
    ) -> NoReturn:
        shown = None if found is None else str(found)[:200]
        raise fail(
            _CODE, f"the formulas file {problem}", place=Place(self._file), found=shown,
            expected=expected, hint=hint,
        )  # fmt: skip

    def _read_tables(self, profiles: Sequence[str]) -> None:
        """Replace formulas of the table by those of the file."""
        places = ("constants", "functions", *profiles)
        for place, part in self._document.items():
            if place not in places:
                hint = did_you_mean(place, places)
                self._fail("has an unknown table or key", place, ", ".join(places), hint)
            if not isinstance(part, dict):
                self._fail(f"has no table [{place}]", f"{place} = {part!r}", f"a table [{place}]")
            for keys, text in part.items():
                for key in keys.split() if place in profiles else [keys]:
                    self._replace(place, key, text)

    def _replace(self, place: str, key: str, text: Any) -> None:
        standard, where = self._table[place].get(key), f"[{place}] {key}"
        if place in PROFILES and standard is None:
            known = self._table[place]
            hint = did_you_mean(key, known)
            self._fail(f"has an unknown formula in [{place}]", key, ", ".join(known), hint)
        if (place, key) == ("onnx", "average"):
            self._fail(
                "changes a formula that cannot be changed",
                "[onnx] average",
                hint="Remove the formula from the file.",
            )
        if place not in PROFILES and (not key.isidentifier() or key in PRIMITIVES):
            self._fail(
                f"has an invalid name in [{place}]", key, "an identifier that is no primitive"
            )
        if place == "constants" and key in RESERVED:
            self._fail("has a constant with a reserved name", key, hint="Rename the constant.")
        if place == "constants" and (not isinstance(text, str) or "\n" in text.strip()):
            self._fail(f"has an invalid constant in {where}", text, "a text with one expression")
        if isinstance(text, dict):
            whole = {} if standard is None else standard
            text = (whole if isinstance(whole, dict) else dict.fromkeys(ELEMENTS, whole)) | text
            if set(text) != set(ELEMENTS):
                found = ", ".join(map(str, text))
                self._fail(
                    f"has wrong element types in {where}", found, f"only {' and '.join(ELEMENTS)}"
                )
        self._table[place][key] = _dedent(text)
        self._given[place, key] = None

    def _check_texts(self) -> None:
        """Raise UserError if the syntax of a text of the file is invalid."""
        for place, key in self._given:
            text = self._table[place][key]
            texts, standard = _list_texts(text), _list_texts(FORMULAS[place].get(key))
            if place == "constants":
                checker = partial(SyntaxChecker, {**self._table, "constants": {}}, {"element"})
            elif place == "functions":
                checker = partial(SyntaxChecker, self._table, FUNCTION_NAMES)
            else:
                extra = {"total"} if place == "onnx" else set()
                kind = KINDS[key]
                checker = partial(SyntaxChecker, self._table, kind.names | extra, kind.scales)
            try:
                for one in texts:
                    if one not in standard:
                        checker().check(one)
            except FormulaError as error:
                self._fail_formula(error, f"[{place}] {key}")

    def _check_factors(self, factors: Any) -> None:
        """Raise UserError if the tables of factors are invalid."""
        try:
            check_factors(factors)
        except FormulaError as error:
            self._fail_formula(error, "[factors]")

    def _check_profile(self, profile: str, element: str) -> None:
        """Raise UserError if a formula of a profile has a wrong type or a wide integer."""
        sums = make_signed_interval(48 if element == "int16" else 32)
        for kind in sorted(self._table[profile], key=lambda one: one != "sums"):
            try:
                result = check_ranges(self._table, profile, kind, element, sums)
            except FormulaError as error:
                self._fail_formula(error, f"[{profile}] {kind}, {element}")
            sums = result if kind == "sums" else sums

    def _fail_formula(self, error: FormulaError, where: str) -> NoReturn:
        message, _, hint = str(error).partition(". ")
        self._fail(f"{message} in {where}", error.found, error.expected, hint or None)


def _dedent(entry: Any) -> Any:
    """Return an entry whose texts lack their common indentation."""
    if isinstance(entry, dict):
        return {element: _dedent(text) for element, text in entry.items()}
    return textwrap.dedent(entry) if isinstance(entry, str) else entry


def _list_texts(entry: Any) -> list[Any]:
    """Return the texts of an entry for all element types."""
    return [*entry.values()] if isinstance(entry, dict) else [entry]
