"""Call stacks of the cores, and the cycles and instructions of each call path.

The stacks are reconstructed from calls and returns: a call begins a frame, and a return ends all
frames up to the one with the return address. Other jumps between functions, such as tail calls and
traps, replace the innermost frame. So the cycles of a function itself are always right. Those with
its callees are right for code that uses ``ra`` and ``t0`` as the RISC-V calling convention does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from nmpsim.core.execution_log import NO_FUNCTION, CodeLayout, JumpKind
from nmpsim.core.state import Int64s

HALTED = -2
"""Number in place of a function for the time of a core between its halt and the end of a step."""
MAX_DEPTH = 256
"""Maximum depth of a stack; deeper calls replace the innermost frame."""
MAX_PATHS = 1 << 16
"""Maximum number of call paths of a core; further paths are counted as their callers."""

FrameListener = Callable[[int, int, int, int], None]
"""Called with core, function, and first and last cycle of each frame that ends."""


@attrs.define(slots=True)
class CallPath:
    """Path from the first function of a core to a function, with the cost of the last function."""

    function: int
    """Number of the last function, NO_FUNCTION or HALTED."""
    caller: CallPath | None = None
    cycles: int = 0
    """Cycles in the last function itself."""
    instructions: int = 0
    """Instructions of the last function itself."""
    calls: dict[int, CallPath] = attrs.field(factory=dict, repr=False)
    """Paths of the called functions, by function."""

    def list_functions(self) -> list[int]:
        """Return the functions of the path, outermost first."""
        functions: list[int] = []
        path: CallPath | None = self
        while path is not None:
            functions.append(path.function)
            path = path.caller
        return functions[::-1]


@attrs.define(slots=True)
class _Frame:
    path: CallPath
    return_address: int
    begin: int


class CallStacks:
    """Call stacks of all cores during a run: a listener to the transitions of an execution log."""

    def __init__(
        self, layout: CodeLayout, cores: int, on_frame_end: FrameListener | None = None
    ) -> None:
        self._layout = layout
        self.cores = cores
        """Number of cores."""
        self._on_frame_end = on_frame_end
        self.begin_run()

    def begin_run(self) -> None:
        """Begin a run: forget all paths."""
        self._stacks = [_CoreStack(core, self._on_frame_end) for core in range(self.cores)]

    def add_transitions(self, transitions: Any) -> None:
        """Add a structured array of :data:`nmpsim.core.state.TRANSITION`."""
        functions, kinds = self._layout.look_up(transitions["pc"])
        columns = [transitions[name].tolist() for name in ("core", "pc", "cycle", "retired")]
        for core, pc, cycle, retired, function, kind in zip(
            *columns, functions, kinds, strict=True
        ):
            stack = self._stacks[core]
            stack.spend(cycle, retired)
            stack.enter(pc, function, kind)

    def end_step(self, halts: Int64s, retired: Int64s, ends: Int64s) -> None:
        """End a device step: end all frames, and count the time after the halt of each core."""
        for stack, halt, count, end in zip(
            self._stacks, halts.tolist(), retired.tolist(), ends.tolist(), strict=True
        ):
            stack.end_step(halt, count, end)

    def list_paths(self, core: int) -> list[CallPath]:
        """List the call paths of a core with their cost; callers come before their callees."""
        paths: list[CallPath] = []
        left = list(self._stacks[core].roots.values())[::-1]
        while left:
            path = left.pop()
            paths.append(path)
            left += list(path.calls.values())[::-1]
        return paths


class _CoreStack:
    """Call stack of one core."""

    def __init__(self, core: int, on_frame_end: FrameListener | None) -> None:
        self.roots: dict[int, CallPath] = {}
        self._core = core
        self._on_frame_end = on_frame_end
        self._frames: list[_Frame] = []
        self._paths = 0
        self._cycle = self._retired = 0
        self._pc, self._kind = 0, int(JumpKind.OTHER)

    def spend(self, cycle: int, retired: int) -> None:
        """Count the cycles and instructions up to now for the innermost frame."""
        if cycle == self._cycle and retired == self._retired:
            return
        if not self._frames:  # code outside of all functions, where the step began
            self._begin_frame(NO_FUNCTION, 0)
        path = self._frames[-1].path
        path.cycles += cycle - self._cycle
        path.instructions += retired - self._retired
        self._cycle, self._retired = cycle, retired

    def enter(self, pc: int, function: int, kind: int) -> None:
        """Continue at ``pc``, in a function, after the instruction of the last transition."""
        if self._kind == JumpKind.CALL and len(self._frames) < MAX_DEPTH:
            self._begin_frame(function, self._pc + 4)
        elif self._kind == JumpKind.RETURN:
            self._return_to(pc)
        if not self._frames:
            self._begin_frame(function, 0)
        elif self._frames[-1].path.function != function:
            return_address = self._frames[-1].return_address
            self._end_frame()
            self._begin_frame(function, return_address)
        self._pc, self._kind = pc, kind

    def end_step(self, halt: int, retired: int, end: int) -> None:
        """End all frames at the cycle ``halt``; count the cycles up to ``end`` as HALTED."""
        self.spend(halt, retired)
        while self._frames:
            self._end_frame()
        if end > halt:
            self._begin_frame(HALTED, 0)
            self.spend(end, retired)
            self._end_frame()
        self._kind = JumpKind.OTHER

    def _return_to(self, address: int) -> None:
        """End all frames up to the innermost one with a return address, if there is one."""
        for depth in reversed(range(len(self._frames))):
            if self._frames[depth].return_address == address:
                while len(self._frames) > depth:
                    self._end_frame()
                return

    def _begin_frame(self, function: int, return_address: int) -> None:
        caller = self._frames[-1].path if self._frames else None
        calls = self.roots if caller is None else caller.calls
        path = calls.get(function)
        if path is None and caller is not None and self._paths >= MAX_PATHS:
            path = caller
        elif path is None:
            path = calls[function] = CallPath(function, caller)
            self._paths += 1
        self._frames.append(_Frame(path, return_address, self._cycle))

    def _end_frame(self) -> None:
        frame = self._frames.pop()
        if self._on_frame_end is not None and self._cycle > frame.begin:
            self._on_frame_end(self._core, frame.path.function, frame.begin, self._cycle)
