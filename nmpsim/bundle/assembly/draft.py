"""Statements of assembly text, and the program that they become: sections, symbols, layers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator

import attrs

from nmpsim.bundle import elf
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
from nmpsim.diagnostics import Diagnostic, Place
from nmpsim.isa.expressions import (
    Cursor,
    Expression,
    ExpressionToken,
    Scope,
    SourceError,
    make_unknown_name_error,
    tokenize,
)
from nmpsim.isa.table import DRAM_BASE
from nmpsim.lir.nodes import TensorType

# Statements of assembly text: lines without comments, continued lines joined.

_CODE = re.compile(r'(?:[^"#]|"(?:[^"\\]|\\.)*"|")*')
"""Pattern of a line up to its comment; a ``#`` within quotes starts no comment."""

_METADATA = re.compile(r"\s*\.metadata(?=\s)")


@attrs.frozen
class Statement:
    """Statement of assembly text: one line, or several lines joined by backslashes."""

    text: str
    file: str
    starts: tuple[tuple[int, int], ...]
    """Offset in the text (0-based) and number (1-based) of each physical line."""

    @property
    def line(self) -> int:
        """Number of the first line, 1-based."""
        return self.starts[0][1]

    @property
    def end_column(self) -> int:
        """Column after the last character, 1-based."""
        return len(self.text.rstrip()) + 1

    def get_place(self, column: int) -> Place:
        """Return the file, line and column of a character, given its column in the joined text."""
        index = bisect_right(self.starts, (column - 1, 1 << 62)) - 1
        start, line = self.starts[index]
        return Place(self.file, line, column - start)

    def tokens(self) -> list[ExpressionToken]:
        """Return the statement's tokens; for ``.metadata``, return only the directive's tokens."""
        directive = _METADATA.match(self.text)
        return tokenize(directive.group() if directive else self.text)

    def make_cursor(self, tokens: list[ExpressionToken]) -> Cursor:
        """Return a cursor over tokens of the statement."""
        return Cursor(tokens, self.end_column)

    def make_diagnostic(self, error: SourceError) -> Diagnostic:
        """Convert an error to a diagnostic with file, line and column."""
        return Diagnostic(
            error.code,
            error.message,
            self.get_place(error.column),
            error.found,
            error.expected,
            error.hint,
        )


def split_statements(text: str, file: str) -> Iterator[Statement]:
    """Split assembly text into statements; yield all statements that are not empty."""
    joined = ""
    starts: list[tuple[int, int]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        match = _CODE.match(line)
        code = match.group().rstrip() if match else ""
        starts.append((len(joined), number))
        continued = code.endswith("\\")
        joined += code[:-1] + " " if continued else code
        if not continued:
            if joined.strip():
                yield Statement(joined, file, tuple(starts))
            joined, starts = "", []
    if joined.strip():
        yield Statement(joined, file, tuple(starts))


Emit = Callable[[int, Scope], bytes]
"""Returns the bytes of an item at an address; the scope resolves symbols."""


@attrs.frozen
class SectionItem:
    """Item of a section: its offset, its size and a function that computes its bytes."""

    offset: int
    nbytes: int
    emit: Emit
    statement: Statement


@attrs.define
class AssemblySection:
    """Section of an assembly program: its items and their size in bytes."""

    items: list[SectionItem] = attrs.field(factory=list)
    nbytes: int = 0

    def append(self, nbytes: int, emit: Emit, statement: Statement, column: int = 1) -> None:
        """Append an item; raise SourceError if the section becomes too large."""
        if self.nbytes + nbytes > READ_ONLY_LIMIT:
            raise SourceError(
                "ASM003",
                "the program is too large",
                column,
                found=f"{self.nbytes + nbytes} bytes",
                expected=f"at most {READ_ONLY_LIMIT} bytes",
            )
        self.items.append(SectionItem(self.nbytes, nbytes, emit, statement))
        self.nbytes += nbytes


@attrs.frozen
class Variable:
    """Variable of an assembly program: a tensor in read-write memory, with its address."""

    name: str
    type: TensorType
    address: int


@attrs.frozen
class LayerRecord:
    """Record of a layer from a ``.layer`` directive: name, operation, output and barrier."""

    statement: Statement
    name: str
    op: str
    output: ExpressionToken
    barrier: int | None


@attrs.define
class ProgramDraft:
    """Draft of a program: the assembler's first pass fills the draft, and the second encodes it."""

    sections: dict[str, AssemblySection] = attrs.field(
        factory=lambda: {
            CONSTANTS: AssemblySection(),
            DESCRIPTORS: AssemblySection(),
            TEXT: AssemblySection(),
        }
    )
    debug: dict[str, AssemblySection] = attrs.field(factory=dict)
    """Debug sections, which are not loaded."""
    current: str = TEXT
    defined: set[str] = attrs.field(factory=set)
    local: set[str] = attrs.field(factory=set)
    """Local names, which do not become symbols of the bundle."""
    labels: dict[str, tuple[str, int]] = attrs.field(factory=dict)
    """Label -> section and offset."""
    numbers: dict[str, int] = attrs.field(factory=dict)
    """Values known in the first pass: ``.set`` to a number, and read-write memory."""
    deferred: dict[str, tuple[Expression, Statement]] = attrs.field(factory=dict)
    """Names that ``.set`` defines by an expression with labels."""
    sizes: list[tuple[ExpressionToken, Expression, Statement]] = attrs.field(factory=list)
    rw_bytes: int = 0
    variables: dict[str, Variable] = attrs.field(factory=dict)
    inputs: list[str] = attrs.field(factory=list)
    outputs: list[str] = attrs.field(factory=list)
    layers: list[LayerRecord] = attrs.field(factory=list)
    entry: tuple[ExpressionToken, Statement] | None = None
    metadata: tuple[str, Statement] | None = None
    """JSON text of a ``.metadata`` directive."""
    problems: list[Diagnostic] = attrs.field(factory=list)

    @property
    def section(self) -> AssemblySection:
        """Current section, to which items are appended."""
        return self.sections.get(self.current) or self.debug[self.current]

    def define_symbol(self, name: ExpressionToken) -> str:
        """Define a symbol and return its name; raise SourceError if already defined or empty."""
        if name.text in self.defined:
            message = f"{name.text!r} is already defined"
            expected = "one definition of each symbol"
            raise SourceError("ASM002", message, name.column, expected=expected)
        if not name.text or "\0" in name.text:
            message = f"the symbol's name {'contains a NUL' if name.text else 'is empty'}"
            raise SourceError("ASM002", message, name.column, found=repr(name.text)[:80])
        self.defined.add(name.text)
        if not name.quoted and name.text.startswith(".L"):
            self.local.add(name.text)
        return name.text

    def define_label(self, name: ExpressionToken, section: str) -> None:
        """Define a label at the end of a section; raise SourceError for a debug section."""
        if section in self.debug:
            message = f"labels are not allowed in section {section}"
            expected = "a label in a section that is loaded into memory"
            raise SourceError("ASM001", message, name.column, found=name.text, expected=expected)
        self.labels[self.define_symbol(name)] = (section, self.sections[section].nbytes)

    def reserve_tensor(self, name: ExpressionToken, type: TensorType) -> None:
        """Reserve read-write memory for a tensor and define a symbol for its address."""
        address = RW_BASE + elf.align_up(self.rw_bytes, TENSOR_ALIGNMENT)
        self.enlarge_memory(address - RW_BASE + type.nbytes, name.column)
        text = self.define_symbol(name)
        self.numbers[text] = address
        self.variables[text] = Variable(text, type, address)

    def enlarge_memory(self, nbytes: int, column: int) -> None:
        """Enlarge the read-write memory to ``nbytes`` bytes; raise SourceError above the limit."""
        if not 0 <= nbytes <= RW_LIMIT:
            raise SourceError(
                "ASM003",
                "the read-write memory is too large",
                column,
                found=f"{nbytes} bytes",
                expected=f"0 to {RW_LIMIT} bytes",
            )
        self.rw_bytes = max(self.rw_bytes, nbytes)

    def get_symbol_value(self, name: ExpressionToken) -> int:
        """Return the value of a symbol; raise SourceError if no number is defined for it."""
        if name.text in self.numbers:
            return self.numbers[name.text]
        raise SourceError(
            "ASM002",
            f"the value of {name.text!r} is not yet known here",
            name.column,
            hint="Use `la` for an address, or define the number with `.set` before this line.",
        )

    def compute_section_addresses(self) -> dict[str, int]:
        """Compute the first address of each section in the bundle; return the addresses by name."""
        addresses = {}
        offset = CONSTANTS_OFFSET
        for name, section in self.sections.items():
            offset = elf.align_up(offset, PART_ALIGNMENT)
            addresses[name] = DRAM_BASE + offset
            offset += section.nbytes
        return addresses

    def make_unknown_symbol_error(self, name: ExpressionToken) -> SourceError:
        """Return the error for an undefined symbol."""
        hint = "Define the symbol with a label or with `.set`."
        return make_unknown_name_error("symbol", name, self.defined, hint)
