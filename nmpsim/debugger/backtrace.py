"""Backtrace of a core: the functions that have called each other, innermost first."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from nmpsim.core.execution_log import CodeLayout, JumpKind
from nmpsim.debugger.debugger import Debugger
from nmpsim.debuginfo import SourceMap
from nmpsim.escape import escape_line
from nmpsim.memory.address_map import read_word

MAX_FRAMES = 64
"""Maximum number of frames of a backtrace."""
_RETURN_ADDRESS, _STACK_POINTER = 1, 2
"""Numbers of the registers ``ra`` and ``sp``."""


@attrs.frozen
class StackFrame:
    """Frame of a call stack: a function, or a call that the compiler inlined."""

    address: int
    """Next instruction of the frame."""
    function: str
    """Name of the function; empty if unknown."""
    file: str
    """Source file; empty if unknown."""
    line: int
    """Line in the file; 0 if unknown."""
    is_inlined: bool


def list_stack_frames(debugger: Debugger, core: int) -> tuple[StackFrame, ...]:
    """List the stack frames of a core, innermost first.

    The unwind rules of the program give each caller. Where there are none, the innermost frame's
    caller is taken from ``ra`` if this register contains the address after a call in another
    function.
    """
    frames: list[StackFrame] = []
    for number, address in enumerate(_list_addresses(debugger, core)):
        # A caller's line is that of the call, which the return address follows.
        for frame in debugger.source_map.list_frames(address - 4 * (number > 0)):
            place = frame.source
            file, line = ("", 0) if place is None else (escape_line(place.file), place.line)
            function = escape_line(frame.function or "")
            frames.append(StackFrame(address, function, file, line, frame.is_inlined))
    return tuple(frames[:MAX_FRAMES])


def _list_addresses(debugger: Debugger, core: int) -> Iterator[int]:
    """Yield the next instruction of a core, then the return address of each caller."""
    state = debugger.machine.cores[debugger.check_core_number(core)]
    registers: dict[int, int | None] = {
        number: int(value) & 0xFFFF_FFFF for number, value in enumerate(state.registers)
    }
    layout = CodeLayout(debugger.bundle, ())
    address = int(state.pc)
    yield address
    for depth in range(MAX_FRAMES):
        place = address - 4 * (depth > 0)
        found = _unwind(debugger, core, debugger.source_map, place, registers)
        if found is None and depth == 0:
            found = registers[_RETURN_ADDRESS] or 0
            find = debugger.source_map.find_function
            if find(found) == find(address):  # ra is from a call that has returned
                return
        if not found or layout.find_jump_kind(found - 4) != JumpKind.CALL:
            return
        address = found
        yield address


def _unwind(
    debugger: Debugger,
    core: int,
    source_map: SourceMap,
    address: int,
    registers: dict[int, int | None],
) -> int | None:
    """Replace registers by those of the caller; return its address, or None if it is unknown."""
    row = source_map.find_unwind_row(address)
    base = None if row is None else registers.get(row.base_register)
    if row is None or base is None:
        return None
    frame = base + row.base_offset & 0xFFFF_FFFF
    for number, offset in row.saved.items():
        registers[number] = read_word(debugger.machine, core, frame + offset & 0xFFFF_FFFF)
    registers[_STACK_POINTER] = frame
    return registers.get(row.return_register)
