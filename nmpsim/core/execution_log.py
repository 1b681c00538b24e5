"""The execution log of a run: counts of executed instructions, and transitions between functions.

Both engines write it (:mod:`nmpsim.core.code_regions`). Coverage is derived from the counts, call
stacks and profiles from the transitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Protocol

import numpy as np

from nmpsim.bundle.read import Bundle
from nmpsim.core.state import TRANSITION, Int64s, Machine
from nmpsim.debuginfo import CodeFunction, SourceLine

CAPACITY = 1 << 20
"""Entries of the transition log."""
NO_FUNCTION = -1
"""Number in place of a function for code outside of all functions."""
_LINK_REGISTERS = (1, 5)
"""Registers for return addresses, by the hints of the RISC-V instruction set."""
_JAL, _JALR = 0x6F, 0x67
"""Opcodes of jumps that can store a return address."""


class JumpKind(IntEnum):
    """Kind of an instruction: a call, a return, or any other instruction."""

    OTHER = 0
    CALL = 1
    RETURN = 2


class CodeLayout:
    """Function and jump kind of each word of a program's code."""

    def __init__(self, bundle: Bundle, functions: Sequence[CodeFunction]) -> None:
        """Create the layout of a bundle.

        Address ranges with the same name and declaration are one function.
        """
        self.base = min((first for first, _ in bundle.text), default=0)
        """Address of the first word."""
        end = max((end for _, end in bundle.text), default=0)
        start = self.base - bundle.image_base
        words = bundle.image[start : start + (end - self.base) // 4 * 4].copy().view("<u4")
        self.kinds = _find_jump_kinds(words)
        """[words] JumpKind of each word."""
        self.functions = np.full(words.size, NO_FUNCTION, np.int64)
        """[words] number of the function of each word, or NO_FUNCTION."""
        numbers: dict[tuple[str, SourceLine | None], int] = {}
        for one in functions:
            number = numbers.setdefault((one.name, one.declaration), len(numbers))
            at, after = np.clip([self.index(one.start), self.index(one.end)], 0, words.size)
            self.functions[at:after] = number
        self.names = list(numbers)
        """Name and declaration of each function, by number."""

    def index(self, address: Any) -> Any:
        """Return the index of the word at an address, or at each address of an array."""
        return (address - self.base) >> 2

    def find_jump_kind(self, address: int) -> JumpKind:
        """Return the jump kind of the instruction at an address; OTHER if it is no code."""
        index = self.index(address)
        return JumpKind(int(self.kinds[index]) if 0 <= index < self.kinds.size else 0)

    def look_up(self, addresses: Int64s) -> tuple[list[int], list[int]]:
        """Return the function and the JumpKind of the word at each address, as two lists."""
        index = self.index(addresses)
        is_code = (index >= 0) & (index < self.functions.size)
        index = np.where(is_code, index, 0)
        functions = np.where(is_code, self.functions[index], NO_FUNCTION)
        return functions.tolist(), np.where(is_code, self.kinds[index], JumpKind.OTHER).tolist()


class TransitionListener(Protocol):
    """Listener to the transitions of a run."""

    def begin_run(self) -> None:
        """Begin a run: forget the transitions of the previous run."""

    def add_transitions(self, transitions: Any) -> None:
        """Add a structured array of :data:`nmpsim.core.state.TRANSITION`."""

    def end_step(self, halts: Int64s, retired: Int64s, ends: Int64s) -> None:
        """End a device step.

        For each core, ``halts`` and ``retired`` are the cycle at which it stopped and its number of
        executed instructions, ``ends`` is the last cycle of the step.
        """


class ExecutionLog:
    """Counts of executions, and transitions that are passed to listeners during the run."""

    def __init__(self, layout: CodeLayout, listeners: Sequence[TransitionListener] = ()) -> None:
        self.layout = layout
        self.counts = np.zeros(layout.kinds.size, np.int64)
        """[words] executions of the instruction at each word of the code."""
        self._regions = 1 + len(JumpKind) * (layout.functions - NO_FUNCTION) + layout.kinds
        self._transitions = np.zeros(CAPACITY, TRANSITION).view(np.recarray)
        self._listeners = listeners

    def begin_run(self) -> None:
        """Begin a run: forget the counts and transitions of the previous run."""
        self.counts[:] = 0
        for listener in self._listeners:
            listener.begin_run()

    def attach(self, machine: Machine) -> Machine:
        """Return a machine that writes this log and shares all other arrays of ``machine``."""
        machine.shared.code_base[:] = self.layout.base
        return machine._replace(
            code_regions=self._regions,
            execution_counts=self.counts,
            transitions=self._transitions,
        )

    def drain(self, machine: Machine) -> None:
        """Pass the new transitions of a machine to the listeners, and clear them."""
        transitions = self._transitions[: int(machine.shared[0].transitions)].view(np.ndarray)
        for listener in self._listeners:
            listener.add_transitions(transitions)
        machine.shared.transitions[:] = 0

    def end_step(self, machine: Machine, *, is_done: bool) -> None:
        """Pass the end of a device step to the listeners.

        If the step ``is_done``, its last cycle is the same for all cores.
        """
        halts, retired = machine.cores.clock.copy(), machine.cores.retired.copy()
        ends = np.maximum(halts, halts.max() if is_done else 0)
        for listener in self._listeners:
            listener.end_step(halts, retired, ends)

    def get_count(self, address: int) -> int:
        """Return how often the instruction at an address was executed."""
        index = self.layout.index(address)
        return int(self.counts[index]) if 0 <= index < self.counts.size else 0


def _find_jump_kinds(words: Any) -> Int64s:
    """Return the JumpKind of each instruction word.

    Calls store the return address in a link register; returns jump to one and store nothing.
    """
    opcode, rd, rs1 = words & 0x7F, words >> 7 & 31, words >> 15 & 31
    is_call = np.isin(opcode, (_JAL, _JALR)) & np.isin(rd, _LINK_REGISTERS)
    is_return = (opcode == _JALR) & (rd == 0) & np.isin(rs1, _LINK_REGISTERS)
    kinds: Int64s = is_call * np.int64(JumpKind.CALL) + is_return * np.int64(JumpKind.RETURN)
    return kinds
