"""The contract of the instruction set: cases that it leaves undefined, by category.

The result of a program that respects the contract is the same on a chip: it depends neither on the
time of a transfer nor on the previous contents of memory. ``docs/isa.md`` has the table.
"""

from __future__ import annotations

import tomllib
from enum import Enum
from pathlib import Path

from nmpsim.records import frozen


class ViolationCategory(Enum):
    """Category of a contract violation; its value is the code of the diagnostic."""

    UNDEFINED = "CONTRACT001"
    UNPREDICTABLE_VALUE = "CONTRACT002"
    MISSING_SYNCHRONIZATION = "CONTRACT003"
    NOT_SUPPORTED = "CONTRACT004"
    INTERNAL = "CONTRACT005"

    @property
    def title(self) -> str:
        """Name of the category in reports, such as ``missing synchronization``."""
        return _TITLES[self]


_TITLES = {
    ViolationCategory.UNDEFINED: "undefined",
    ViolationCategory.UNPREDICTABLE_VALUE: "unpredictable value used",
    ViolationCategory.MISSING_SYNCHRONIZATION: "missing synchronization",
    ViolationCategory.NOT_SUPPORTED: "not supported",
    ViolationCategory.INTERNAL: "internal",
}


class Detection(Enum):
    """Detection of an undefined case: by ``--strict``, a trap or an error, or not at all."""

    STRICT = "`--strict`"
    TRAP = "a trap, always"
    EXIT = "an error, always"
    NOTHING = "nothing"


@frozen
class UndefinedCase:
    """A case that the instruction set leaves undefined, and how the simulator handles it."""

    key: str
    category: ViolationCategory
    title: str
    """Description of what the program does."""
    simulator: str
    """Behavior of the simulator without ``--strict``."""
    hint: str
    found_by: Detection


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
CASES = tuple(
    UndefinedCase(
        key,
        ViolationCategory[row["category"].upper()],
        row["title"],
        row["simulator"],
        row["hint"],
        Detection[row.get("found_by", "strict").upper()],
    )
    for key, row in _TABLE["cases"].items()
)
"""All cases in the order of the page; compiled code uses the position as their number."""

NUMBER_OF_CASE = {case.key: number for number, case in enumerate(CASES)}

DEFINED: tuple[str, ...] = tuple(_TABLE["defined"])
"""Behavior that is defined although it is undefined in some instruction sets."""
