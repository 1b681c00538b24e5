"""The source map of a program: functions, inlined calls, source lines and unwind rules."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from pathlib import PurePath
from typing import Any, Generic, TypeVar

import attrs

from nmpsim.debuginfo.c_types import Types


@attrs.frozen
class SourceLine:
    """Line of a source file; lines count from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{PurePath(self.file).name}:{self.line}"


@attrs.frozen
class CodeFunction:
    """Function of a program, or the code from one label to the next.

    A function with code in several places has one record for each address range.
    """

    start: int
    end: int
    """Address after the last byte."""
    name: str
    declaration: SourceLine | None = None
    is_entry: bool = True
    """Whether the function begins here, unlike code that the compiler moved elsewhere."""


@attrs.frozen
class InlinedCall:
    """Address range of a function that the compiler inlined into another function."""

    start: int
    end: int
    name: str
    call: SourceLine | None
    """Line of the call."""
    depth: int
    """Number of inlined calls that contain this one."""


@attrs.frozen
class LineRow:
    """Row of the line table: the addresses from ``start`` to ``end`` belong to a source line.

    Of rows that begin at the same address, only the last row can have ``end > start``.
    """

    start: int
    end: int
    source: SourceLine
    is_statement: bool
    """Whether the address is a recommended place for a breakpoint on the line."""


@attrs.frozen
class UnwindRow:
    """Rules that recover the registers of the caller, for addresses from ``start`` to ``end``.

    The canonical frame address (CFA) is the value of ``base_register`` plus ``base_offset``.
    """

    start: int
    end: int
    base_register: int
    base_offset: int
    return_register: int
    """Number of the register that contains the return address."""
    saved: Mapping[int, int]
    """Offset from the CFA at which each saved register is stored, by register number."""


Operation = tuple[str, tuple[Any, ...]]
"""Name and operands of an operation of a DWARF expression."""


@attrs.frozen
class Location:
    """Place of a variable for addresses from ``start`` to ``end``, as a DWARF expression."""

    start: int
    end: int
    operations: Sequence[Operation]


@attrs.frozen
class SourceVariable:
    """SourceVariable or parameter that the code from ``start`` to ``end`` can name."""

    start: int
    end: int
    name: str
    nbytes: int
    """Size; 0 if it is unknown."""
    locations: Sequence[Location]
    frame_base: Sequence[Operation] = ()
    """Expression of the function's frame base."""
    type: int = -1
    """Key of the type in :attr:`SourceMap.types`."""
    function: str = ""
    """Function that contains the variable; empty for a global variable."""
    depth: int = 1
    """Number of scopes that contain the variable; an inner variable hides an outer one."""
    is_parameter: bool = False

    @property
    def is_static(self) -> bool:
        """Whether the variable has a fixed address."""
        operations = [one for place in self.locations for one in place.operations]
        return [name for name, _ in operations] == ["DW_OP_addr"]

    @property
    def frame_offset(self) -> int | None:
        """Address minus the canonical frame address (CFA), or None if it is not a constant."""
        is_cfa = [name for name, _ in self.frame_base] == ["DW_OP_call_frame_cfa"]
        if not is_cfa or len(self.locations) != 1 or len(self.locations[0].operations) != 1:
            return None
        ((name, operands),) = self.locations[0].operations
        return int(operands[0]) if name == "DW_OP_fbreg" else None


@attrs.frozen
class SourceFrame:
    """Function and source line of an address; inlined calls have frames of their own."""

    function: str | None
    source: SourceLine | None
    is_inlined: bool = False

    def __str__(self) -> str:
        """Return text such as ``fir (fir.c:7)``."""
        if self.function is None:
            return str(self.source or "")
        return self.function if self.source is None else f"{self.function} ({self.source})"


_Range = TypeVar("_Range", CodeFunction, LineRow, UnwindRow)


class _RangeTable(Generic[_Range]):
    """Table of records with address ranges that do not overlap."""

    def __init__(self, records: Iterable[_Range]) -> None:
        used = [record for record in records if record.end > record.start]
        self._records: list[_Range] = sorted(used, key=attrgetter("start"))
        self._starts: list[int] = [record.start for record in self._records]

    def find(self, address: int) -> _Range | None:
        """Return the record whose range contains an address, or None if there is none."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._records[index].end:
            return None
        return self._records[index]


@attrs.frozen(eq=False)
class SourceMap:
    """Map from addresses of a program to functions, source lines and call frames, and back."""

    functions: Sequence[CodeFunction] = ()
    inlined: Sequence[InlinedCall] = ()
    lines: Sequence[LineRow] = ()
    unwind_rows: Sequence[UnwindRow] = ()
    variables: Sequence[SourceVariable] = ()
    types: Types = attrs.field(factory=dict)
    """Types of the variables."""
    warning: str = ""
    """Why debug information of the file is not used; empty if there is no reason."""

    @cached_property
    def _function_table(self) -> _RangeTable[CodeFunction]:
        return _RangeTable(self.functions)

    @cached_property
    def _line_table(self) -> _RangeTable[LineRow]:
        return _RangeTable(self.lines)

    @cached_property
    def _unwind_table(self) -> _RangeTable[UnwindRow]:
        return _RangeTable(self.unwind_rows)

    @cached_property
    def _rows_by_line(self) -> Mapping[str, Mapping[int, list[LineRow]]]:
        """Rows of the line table by file and line."""
        found: dict[str, dict[int, list[LineRow]]] = defaultdict(lambda: defaultdict(list))
        for row in self.lines:
            found[row.source.file][row.source.line].append(row)
        return found

    def find_function(self, address: int) -> CodeFunction | None:
        """Return the function that contains an address, or None if no function does."""
        return self._function_table.find(address)

    def find_line(self, address: int) -> SourceLine | None:
        """Return the source line of an address, or None if it is unknown."""
        row = self._line_table.find(address)
        return None if row is None else row.source

    def find_unwind_row(self, address: int) -> UnwindRow | None:
        """Return the rules that recover the caller's registers at an address, or None."""
        return self._unwind_table.find(address)

    def list_frames(self, address: int) -> tuple[SourceFrame, ...]:
        """List the frames of an address: inlined calls, innermost first, then the function."""
        function, source = self.find_function(address), self.find_line(address)
        frames = []
        for call in self._find_inlined_calls(address):
            frames.append(SourceFrame(call.name, source, is_inlined=True))
            source = call.call
        return (*frames, SourceFrame(None if function is None else function.name, source))

    def describe(self, address: int) -> str:
        """Describe an address, such as ``fir (fir.c:7)`` or ``loop+8``; "" if unknown."""
        frame, function = self.list_frames(address)[0], self.find_function(address)
        if frame.source is None and function is not None and address > function.start:
            return f"{function.name}+{address - function.start}"
        return str(frame)

    def find_function_starts(self, name: str) -> tuple[int, ...]:
        """Return the first address of each function with a name; () if there is none."""
        return tuple(one.start for one in self.functions if one.name == name and one.is_entry)

    @cached_property
    def _statement_starts(self) -> Sequence[int]:
        """First addresses of statements, without those of prologues."""
        rows = Counter(row.start for row in self.lines if row.is_statement)
        starts = sorted(rows)
        prologues = {
            one.start
            for one in self.functions
            if rows[one.start] == 1
            and bisect_left(starts, one.end) - bisect_left(starts, one.start) > 1
        }
        return [start for start in starts if start not in prologues]

    def list_statements(self, start: int = 0, end: int = 1 << 32) -> Sequence[int]:
        """List the first addresses of statements from ``start`` to ``end``, without prologues.

        A prologue is the code of a function before its second statement.
        """
        starts = self._statement_starts
        return starts[bisect_left(starts, start) : bisect_left(starts, end)]

    def list_files(self) -> tuple[str, ...]:
        """List the source files that have code, sorted by path."""
        return tuple(sorted(self._rows_by_line))

    def find_files(self, name: str) -> tuple[str, ...]:
        """Return the source files whose path ends with ``name``, such as ``src/fir.c``."""
        wanted = PurePath(name).parts
        return tuple(
            file for file in self.list_files() if PurePath(file).parts[-len(wanted) :] == wanted
        )

    def list_lines(self, file: str) -> tuple[int, ...]:
        """List the lines of a source file that have code, in ascending order."""
        return tuple(sorted(self._rows_by_line.get(file, ())))

    def find_line_addresses(self, source: SourceLine) -> tuple[int, ...]:
        """Return the first address of a line in each function or inlined call; () without code.

        Rows of the line table that are recommended for breakpoints are preferred.
        """
        rows = self._rows_by_line.get(source.file, {}).get(source.line, [])
        first: dict[object, int] = {}
        for row in [row for row in rows if row.is_statement] or rows:
            inlined = self._find_inlined_calls(row.start)
            block = next(
                (call for call in inlined if call.call != source), self.find_function(row.start)
            )
            first[block] = min(first.get(block, row.start), row.start)
        return tuple(sorted(first.values()))

    @cached_property
    def _inlined_by_function(self) -> Mapping[CodeFunction | None, list[InlinedCall]]:
        found = defaultdict(list)
        for call in self.inlined:
            found[self.find_function(call.start)].append(call)
        return found

    def _find_inlined_calls(self, address: int) -> list[InlinedCall]:
        """Return the inlined calls that contain an address, innermost first."""
        calls = self._inlined_by_function.get(self.find_function(address), ())
        found = [call for call in calls if call.start <= address < call.end]
        return sorted(found, key=lambda call: -call.depth)
