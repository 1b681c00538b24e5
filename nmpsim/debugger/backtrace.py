"""Backtrace of a core: the functions that have called each other, innermost first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from nmpsim.core.execution_log import CodeLayout, JumpKind
from nmpsim.debugger.debugger import Debugger
from nmpsim.escape import escape_line
from nmpsim.memory.address_map import read_word

MAX_FRAMES = 64
"""Maximum number of frames of a backtrace."""
_RETURN_ADDRESS, _STACK_POINTER = 1, 2
"""Numbers of the registers ``ra`` and ``sp``."""
_CALLER_SAVED = (*range(5, 8), *range(10, 18), *range(28, 32))
"""Registers that a called function may change without saving them."""


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


@attrs.frozen(eq=False)
class CallFrame:
    """Active call of a function on a core, with the state of the core in this call."""

    core: int
    address: int
    """Next instruction; after a call the return address."""
    place: int
    """Address whose source line and variables belong to the frame."""
    registers: Mapping[int, int | None]
    """Unsigned value of each register; None or missing if it is unknown."""
    base: int | None
    """Canonical frame address (CFA); None without unwind rules."""


def list_stack_frames(debugger: Debugger, core: int) -> tuple[StackFrame, ...]:
    """List the stack frames of a core, innermost first.

    The unwind rules of the program give each caller. Where there are none, the innermost frame's
    caller is taken from ``ra`` if this register contains the address after a call in another
    function.
    """
    return tuple(frame for frame, _ in list_frames_with_state(debugger, core))


def list_frames_with_state(debugger: Debugger, core: int) -> list[tuple[StackFrame, CallFrame]]:
    """List the stack frames of a core with the state of their calls, innermost first."""
    frames: list[tuple[StackFrame, CallFrame]] = []
    for call in iter_call_frames(debugger, core):
        for frame in debugger.source_map.list_frames(call.place):
            source = frame.source
            file, line = ("", 0) if source is None else (escape_line(source.file), source.line)
            function = escape_line(frame.function or "")
            shown = StackFrame(call.address, function, file, line, frame.is_inlined)
            frames.append((shown, call))
    return frames[:MAX_FRAMES]


def iter_call_frames(debugger: Debugger, core: int) -> Iterator[CallFrame]:
    """Yield the active calls of a core, innermost first."""
    state = debugger.machine.cores[debugger.check_core_number(core)]
    registers: dict[int, int | None] = {
        number: int(value) & 0xFFFF_FFFF for number, value in enumerate(state.registers)
    }
    layout = CodeLayout(debugger.bundle, ())
    address = int(state.pc)
    for depth in range(MAX_FRAMES):
        place = address - 4 * (depth > 0)  # a caller's line is that of the call
        row = debugger.source_map.find_unwind_row(place)
        start = None if row is None else registers.get(row.base_register)
        base = None if row is None or start is None else start + row.base_offset & 0xFFFF_FFFF
        yield CallFrame(core, address, place, dict(registers), base)
        found = None
        if row is not None and base is not None:
            registers |= dict.fromkeys(_CALLER_SAVED)
            for number, offset in row.saved.items():
                registers[number] = read_word(debugger.machine, core, base + offset & 0xFFFF_FFFF)
            registers[_STACK_POINTER] = base
            found = registers.get(row.return_register)
        if found is None and depth == 0:
            found = registers[_RETURN_ADDRESS] or 0
            find = debugger.source_map.find_function
            if find(found) == find(address):  # ra is from a call that has returned
                return
        if not found or layout.find_jump_kind(found - 4) != JumpKind.CALL:
            return
        address = found
