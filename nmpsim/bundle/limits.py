"""Ranges of the numbers in a bundle, which are also the types of the records' fields.

A reader checks every number before it is used. The ranges exclude absurd numbers; whether a run
fits the memory of the host is checked when it begins (:mod:`nmpsim.core.memory_demand`).
docs/bundle.md lists the table.
"""

from __future__ import annotations

from typing import Annotated

from nmpsim.bundle.layout import READ_ONLY_LIMIT, RW_LIMIT
from nmpsim.lir.nodes import MAX_ELEMENTS
from nmpsim.records import frozen
from nmpsim.report.fields import AllowedRange


@frozen
class Limit(AllowedRange):
    """Limit of an integer: an inclusive range, and its description for messages."""

    what: str
    low: int
    high: int

    def find_problem(self, value: int) -> str | None:
        """Return a message if a value is out of range, or None if it is in range."""
        if self.low == 0 > value:
            return f"{value} is negative, but the range of {self.what} is {self.range_text}"
        if not self.low <= value <= self.high:
            return f"{value} is outside the range {self.range_text} of {self.what}"
        return None

    @property
    def range_text(self) -> str:
        """Range as text, such as ``0 to 65,535``."""
        return f"{self.low:,} to {self.high:,}"


_LAYERS = 1 << 16
_INT32 = (-(1 << 31), (1 << 31) - 1)

SEGMENTS = Limit("program headers", 0, 64)
SECTIONS = Limit("section headers", 0, 1024)
SYMBOLS = Limit("symbols", 0, 200_000)
NAME_BYTES = Limit("bytes of a section's or symbol's name", 0, 1024)
READ_ONLY_BYTES = Limit("bytes that all read-only segments span", 0, READ_ONLY_LIMIT)
WRITABLE_BYTES = Limit("bytes that all writable segments span", 0, RW_LIMIT)
JSON_BYTES = Limit("bytes of the metadata, and of the index of the LIR", 0, 16 << 20)
TEXT_BYTES = Limit("bytes of the LIR text", 0, 16 << 20)
ADDRESS = Limit("an address or an entry", 0, (1 << 32) - 1)
RANK = Limit("dimensions of a tensor", 0, 16)
DIMENSION = Limit("a dimension of a tensor", 0, 1 << 32)
ELEMENTS = Limit("elements of a tensor, dimensions of 0 counted as 1", 1, MAX_ELEMENTS)
ZERO_POINT = Limit("the offset of a scale", *_INT32)
LAYERS = Limit("layers", 0, _LAYERS)
STEPS = Limit("steps", 0, _LAYERS)
TENSORS = Limit("inputs, and outputs", 0, _LAYERS)
FUSED = Limit("instructions fused into a layer", 0, 4096)
CHANNELS = Limit("channels that an image is normalized by", 0, 4096)
BARRIER = Limit("the barrier of a layer", 0, _LAYERS - 1)
PIECES = Limit("pieces of packed weights, and bounds of them", 0, _LAYERS)
LINE = Limit("the number or line of an instruction", 0, (1 << 31) - 1)
MACS = Limit("MACs of a layer", 0, 1 << 62)
OWNED_RANGES = Limit("ranges of results that instructions of a layer own", 0, _LAYERS)
ELEMENT_INDEX = Limit("an index of such a range", 0, MAX_ELEMENTS)
OPERANDS = Limit("operands of a host step", 0, 64)
ATTRIBUTES = Limit("attributes of a host step", 0, 64)
CLIPPED_SIDES = Limit("sides that the network clips, of a host step", 0, 3)
ATTRIBUTE_ITEMS = Limit("numbers in a list of an attribute", 0, 1024)
ATTRIBUTE_NUMBER = Limit("a whole number of an attribute", *_INT32)

TABLE: tuple[Limit, ...] = tuple(value for value in vars().values() if isinstance(value, Limit))
"""All limits, in the order of the page."""

Address = Annotated[int, ADDRESS]
ZeroPoint = Annotated[int, ZERO_POINT]
Barrier = Annotated[int, BARRIER]
Line = Annotated[int, LINE]
ClippedSides = Annotated[int, CLIPPED_SIDES]
Macs = Annotated[int, MACS]
ElementIndex = Annotated[int, ELEMENT_INDEX]
Pad = Annotated[int, DIMENSION]
