"""A program while it is assembled: sections with what they will hold, symbols, records."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from nmpsim.bundle import elf
from nmpsim.bundle.assembly.source import Statement
from nmpsim.bundle.layout import (
    CONSTANTS,
    CONSTANTS_OFFSET,
    DESCRIPTORS,
    PART_ALIGNMENT,
    READ_ONLY_LIMIT,
    RW_BASE,
    RW_LIMIT,
    TENSOR_ALIGNMENT,
    TEXT,
)
from nmpsim.diagnostics import Diagnostic
from nmpsim.isa.codec import did_you_mean
from nmpsim.isa.expressions import Expression, Scope, SourceError, Token
from nmpsim.isa.table import DRAM_BASE
from nmpsim.lir.nodes import TensorType

Emit = Callable[[int, Scope], bytes]
"""Makes an item's bytes from its address and the symbols."""


@attrs.frozen
class Item:
    """Something that takes room in a section; its bytes are made when all symbols are known."""

    offset: int
    nbytes: int
    emit: Emit
    statement: Statement


@attrs.define
class Section:
    """Items one after the other."""

    items: list[Item] = attrs.field(factory=list)
    nbytes: int = 0

    def append(self, nbytes: int, emit: Emit, statement: Statement, column: int = 1) -> None:
        """Take room for an item; SourceError if a bundle cannot hold that much."""
        if self.nbytes + nbytes > READ_ONLY_LIMIT:
            raise SourceError(
                "ASM003",
                "the program is too large",
                column,
                found=f"{self.nbytes + nbytes} bytes",
                expected=f"at most {READ_ONLY_LIMIT} bytes",
            )
        self.items.append(Item(self.nbytes, nbytes, emit, statement))
        self.nbytes += nbytes


@attrs.frozen
class Variable:
    """A tensor in read-write memory."""

    name: str
    type: TensorType
    address: int


@attrs.frozen
class LayerRecord:
    """What a ``.layer`` directive said."""

    statement: Statement
    name: str
    op: str
    output: Token
    barrier: int | None


@attrs.define
class Draft:
    """Everything that the first pass collects."""

    sections: dict[str, Section] = attrs.field(
        factory=lambda: {CONSTANTS: Section(), DESCRIPTORS: Section(), TEXT: Section()}
    )
    debug: dict[str, Section] = attrs.field(factory=dict)
    """Sections that the device never sees."""
    current: str = TEXT
    defined: set[str] = attrs.field(factory=set)
    local: set[str] = attrs.field(factory=set)
    """Names that stay out of the bundle's symbols."""
    labels: dict[str, tuple[str, int]] = attrs.field(factory=dict)
    """Name -> section and offset."""
    numbers: dict[str, int] = attrs.field(factory=dict)
    """Names whose value is known at once: ``.set`` to a number, read-write memory."""
    deferred: dict[str, tuple[Expression, Statement]] = attrs.field(factory=dict)
    """Names that ``.set`` gives an expression with labels."""
    sizes: list[tuple[Token, Expression, Statement]] = attrs.field(factory=list)
    rw_bytes: int = 0
    variables: dict[str, Variable] = attrs.field(factory=dict)
    inputs: list[str] = attrs.field(factory=list)
    outputs: list[str] = attrs.field(factory=list)
    layers: list[LayerRecord] = attrs.field(factory=list)
    entry: tuple[Token, Statement] | None = None
    metadata: tuple[str, Statement] | None = None
    """JSON of a ``.metadata`` directive."""
    problems: list[Diagnostic] = attrs.field(factory=list)

    @property
    def section(self) -> Section:
        """The section that is being filled."""
        return self.sections.get(self.current) or self.debug[self.current]

    def define(self, name: Token) -> str:
        """Take a name for a new symbol; SourceError if it is taken."""
        if name.text in self.defined:
            raise SourceError("ASM002", f"{name.text!r} is already defined", name.column)
        if not name.text or "\0" in name.text:
            message = "a symbol's name is empty or holds a NUL"
            raise SourceError("ASM002", message, name.column, found=repr(name.text))
        self.defined.add(name.text)
        if not name.quoted and name.text.startswith(".L"):
            self.local.add(name.text)
        return name.text

    def place_label(self, name: Token, section: str) -> None:
        """Define a label at the current end of a section; SourceError if it has no address."""
        if section in self.debug:
            raise SourceError("ASM001", f"{section} has no addresses to label", name.column)
        self.labels[self.define(name)] = (section, self.sections[section].nbytes)

    def reserve(self, name: Token, type: TensorType) -> None:
        """Read-write memory for a tensor."""
        address = RW_BASE + elf.align_up(self.rw_bytes, TENSOR_ALIGNMENT)
        self.grow_rw(address - RW_BASE + type.nbytes, name.column)
        text = self.define(name)
        self.numbers[text] = address
        self.variables[text] = Variable(text, type, address)

    def grow_rw(self, nbytes: int, column: int) -> None:
        """Have at least this much read-write memory."""
        if not 0 <= nbytes <= RW_LIMIT:
            raise SourceError(
                "ASM003",
                "that much read-write memory cannot be",
                column,
                found=f"{nbytes} bytes",
                expected=f"0 to {RW_LIMIT} bytes",
            )
        self.rw_bytes = max(self.rw_bytes, nbytes)

    def known_number(self, name: Token) -> int:
        """Scope of what must be known in the first pass."""
        if name.text in self.numbers:
            return self.numbers[name.text]
        raise SourceError(
            "ASM002",
            f"{name.text!r} is no number that is known here",
            name.column,
            hint="use `la` for an address, and `.set` before the use for a number",
        )

    def section_addresses(self) -> dict[str, int]:
        """First address of each section, as the bundle builder will give them."""
        addresses = {}
        offset = CONSTANTS_OFFSET
        for name, section in self.sections.items():
            offset = elf.align_up(offset, PART_ALIGNMENT)
            addresses[name] = DRAM_BASE + offset
            offset += section.nbytes
        return addresses

    def unknown_symbol(self, name: Token) -> SourceError:
        """The error for a symbol that nothing defines."""
        return SourceError(
            "ASM002",
            f"unknown symbol {name.text!r}",
            name.column,
            hint=did_you_mean(name.text, self.defined),
        )
