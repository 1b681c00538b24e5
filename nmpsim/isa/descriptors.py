"""The descriptors of tensor instructions, word by word, ``descriptors.toml``.

A descriptor is a record of 32-bit little-endian words. :mod:`nmpsim.isa.table` has the
instructions and re-exports these names.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmpsim.isa.exhaustive import check_exhaustive
from nmpsim.isa.layouts import (
    AccessDirection,
    Alignment,
    InstructionWork,
    ItemSize,
    OperandLayout,
    RepeatAxis,
    ThroughputKind,
)
from nmpsim.isa.profiles import PROFILES, PROFILES_OF
from nmpsim.records import frozen


@frozen
class Word:
    """Definition of a 32-bit word of a descriptor: its name, meaning and valid values.

    The address of an operand has a ``direction`` and a ``layout``.
    """

    name: str
    summary: str
    signed: bool = False
    address: bool = False
    choices: tuple[str, ...] = ()
    """Names of the values of an enumeration."""
    least: int | None = None
    """Lowest value; ``most`` is the highest one."""
    most: int | None = None
    values: tuple[int, ...] = ()
    """All valid values, each at most 31."""
    is_element: bool = False
    """Whether it is a value of the element type, such as a zero point."""
    alignment: Alignment = Alignment.NONE
    direction: AccessDirection | None = None
    layout: OperandLayout | None = None
    in_place: bool = False
    """Whether the result may be stored exactly over this operand."""
    may_overlap_itself: bool = False
    """Whether parts of this result may overlap each other."""
    is_optional: bool = False
    """Whether an address of 0 means that there is no operand."""

    def __attrs_post_init__(self) -> None:
        if not self.address == (self.direction is not None) == (self.layout is not None):
            raise ValueError(f"{self.name}: an address has a direction and a layout")


@frozen
class Descriptor:
    """Definition of a record of 32-bit words that hold the parameters of a tensor instruction."""

    name: str
    words: tuple[Word, ...]
    summary: str
    work: InstructionWork
    invalid: tuple[tuple[str, str], ...]
    """Conditions on several words, as expressions, and the word that is invalid if one is true."""

    @property
    def nbytes(self) -> int:
        """Size of the record in bytes."""
        return 4 * len(self.words)

    @property
    def operands(self) -> tuple[Word, ...]:
        """Words that hold the addresses of operands, in the order of the record."""
        return tuple(word for word in self.words if word.direction is not None)

    def __iter__(self) -> Iterator[Word]:
        return iter(self.words)


# --- the table -------------------------------------------------------------------------------

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_SCALE_WORDS = (
    ("pre", "shift before the product (q31: to the left)", False),
    ("mul", "factor (float profiles: float32)", True),
    ("post", "shift after the product, rounding", False),
)
"""Name, summary and sign of each word of a scale, whose forms
:class:`~nmpsim.isa.profiles.ScaleForm` describes."""
_LAYOUT_FIELDS = ("run", "axes", "size", "is_blocked", "in_any_order")
_ITEM_SIZES = {size.name.lower(): int(size) for size in ItemSize}
"""Name of an item of an operand -> its size."""


def _as_tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the table with tuples in place of lists."""
    return {name: tuple(one) if isinstance(one, list) else one for name, one in row.items()}


def _make_layout(*, axes: Sequence[Any] = (), size: str | int = "element", **row: Any) -> Any:
    """Return the layout of an operand from the fields of its row."""
    repeated = tuple(RepeatAxis(**_as_tuples(axis)) for axis in axes)
    nbytes = size if isinstance(size, int) else _ITEM_SIZES[size]
    return OperandLayout(**_as_tuples(row), axes=repeated, size=nbytes)


def _make_word(*, kind: str = "", alignment: str = "none", **row: Any) -> Word:
    """Return the word of a row whose kind is resolved."""
    row["alignment"] = Alignment[alignment.upper()]
    if row["name"] == "profile":
        row["choices"] = PROFILES
    if "direction" in row:
        layout = {name: row.pop(name) for name in _LAYOUT_FIELDS if name in row}
        row["direction"] = AccessDirection[row["direction"].upper()]
        row["layout"] = _make_layout(**layout)
    return Word(**_as_tuples(row))


def _make_words(rows: Sequence[Any]) -> Iterator[Word]:
    """Yield the words of rows, which may name groups of words and scales."""
    for row in rows:
        if isinstance(row, str):
            yield from _make_words(_TABLE["groups"][row])
        elif "scale" in row:
            for name, summary, is_signed in _SCALE_WORDS:
                yield Word(f"{row['scale']}_{name}", f"{row['summary']}: {summary}", is_signed)
        else:
            yield _make_word(**_TABLE["kinds"].get(row.get("kind"), {}) | row)


def _make_records(part: str) -> dict[str, Descriptor]:
    """Return the records of a part of the table by name."""
    found = {}
    for name, row in _TABLE[part].items():
        work = {"throughput": "transfer"} | _as_tuples(row.get("work", {}))
        throughput = ThroughputKind[work.pop("throughput").upper()]
        found[name] = Descriptor(
            name,
            tuple(_make_words(row["words"])),
            row["summary"],
            InstructionWork(throughput, **work),
            tuple((one["if"], one["word"]) for one in row.get("invalid", ())),
        )
    return found


_RECORDS = _make_records("records")
_ITEM_SIZES |= {name: record.nbytes for name, record in _RECORDS.items()}
CHANNEL_RECORD, SCALE_RECORD = _RECORDS.values()
DESCRIPTORS = _make_records("descriptors")
KERNEL_RECORDS = _make_records("kernel_records")
"""Records that a layer in C gets: a layer and its tensors."""
MAX_COUNT: int = _TABLE["kinds"]["count"]["most"]
"""Largest count or stride within a scratchpad: the bytes of the largest scratchpad."""
OPERATIONS = next(word.choices for word in DESCRIPTORS["eltwise"] if word.name == "operation")
"""Elementwise operations, by value of the word ``operation``."""
ELEMENTS: tuple[str, ...] = tuple(_TABLE["kinds"]["element"]["choices"])
"""Element types of activations and weights; the index is log2 of the bytes."""
PADS = tuple(word.name for word in DESCRIPTORS["load"] if word.name.startswith("pad_"))
"""Words of a load with its padding."""

check_exhaustive(
    "nmpsim.isa.profiles.PROFILES_OF",
    PROFILES_OF,
    (n for n, d in DESCRIPTORS.items() if any(word.name == "profile" for word in d)),
)

DESCRIPTOR_ALIGNMENT = 4
"""Alignment of descriptors in bytes; another address is a descriptor fault."""
