"""Steps by source lines and functions."""

from __future__ import annotations

from nmpsim.debugger.backtrace import iter_call_frames
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.position import StopResult
from nmpsim.diagnostics import fail

_STACK_POINTER = 2


def step_line(
    debugger: Debugger, count: int = 1, core: int | None = None, *, over: bool = False
) -> StopResult:
    """Run a core to the start of another source line, or until its function returns.

    Parameters
    ----------
    debugger : Debugger
        Debugger that moves.
    count : int
        Number of steps. A breakpoint on the way stops the run earlier.
    core : int, optional
        Core that steps, by default the core with the next instruction; others run meanwhile.
    over : bool
        Whether to run called functions to their end instead of stopping in them.

    Raises
    ------
    UserError
        DEBUG002 without source lines, without a running core, or for an unknown core.
    """
    chosen = _select_core(debugger, core)
    for _ in range(count - 1):
        stopped = _step_once(debugger, chosen, over)
        if stopped.reason != "step":
            return stopped
    return _step_once(debugger, chosen, over)


def step_line_back(
    debugger: Debugger, count: int = 1, core: int | None = None, *, over: bool = False
) -> StopResult:
    """Go back to the start of a source line that a core has begun before, or to the start.

    The parameters are those of :func:`step_line`.
    """
    chosen = _select_core(debugger, core)
    base, _ = _find_frame(debugger, chosen)
    source_map = debugger.source_map
    starts = [
        address
        for address in source_map.list_statements()
        if source_map.find_line(address - 4) != source_map.find_line(address)
    ]
    return debugger.run_back_to(
        starts, chosen, count, lambda: not over or _find_frame(debugger, chosen)[0] >= base
    )


def finish_function(debugger: Debugger, core: int | None = None) -> StopResult:
    """Run until the function of a core returns to its caller.

    Raises UserError (DEBUG002) if the caller is unknown, or without a running core.
    """
    chosen = _select_core(debugger, core)
    base, caller = _find_frame(debugger, chosen)
    if caller is None:
        raise fail(
            "DEBUG002",
            "the caller of the function is unknown",
            found=debugger.source_map.describe(_get_pc(debugger, chosen)) or None,
            expected="a function that another one has called",
        )
    while True:
        stopped = debugger.run_to((caller,), chosen)
        if stopped.reason != "step" or _has_returned(debugger, chosen, base):
            return stopped


def _select_core(debugger: Debugger, core: int | None) -> int:
    chosen = debugger.find_next_core() if core is None else debugger.check_core_number(core)
    if not debugger.source_map.lines:
        found = debugger.source_map.warning or "no line table"
        hint = "Compile with -g, or use `step instruction`."
        raise fail("DEBUG002", "the program has no source lines", found=found, hint=hint)
    if chosen is None:
        hint = "Use `step instruction`, `restart` or `back`."
        raise fail("DEBUG002", "no core is running", hint=hint)
    return chosen


def _step_once(debugger: Debugger, core: int, over: bool) -> StopResult:
    source_map, pc = debugger.source_map, _get_pc(debugger, core)
    base, caller = _find_frame(debugger, core)
    line, function = source_map.find_line(pc), source_map.find_function(pc)
    name, depth = None if function is None else function.name, len(source_map.list_frames(pc))
    targets = []
    for address in source_map.list_statements():
        owner = source_map.find_function(address)
        is_own = owner is not None and owner.name == name
        is_hidden = over and not (is_own and len(source_map.list_frames(address)) <= depth)
        if not (is_own and source_map.find_line(address) == line) and not (is_hidden and line):
            targets.append(address)
    stops = targets if caller is None else [*targets, caller]
    while True:
        stopped = debugger.run_to(stops, core)
        if stopped.reason != "step":
            return stopped
        pc = _get_pc(debugger, core)
        if pc == caller and pc not in targets and _has_returned(debugger, core, base):
            return _step_once(debugger, core, over)  # to the next line of the caller
        if pc in targets and (not over or line is None or _find_frame(debugger, core)[0] >= base):
            return stopped


def _get_pc(debugger: Debugger, core: int) -> int:
    return int(debugger.machine.cores[core].pc)


def _find_frame(debugger: Debugger, core: int) -> tuple[int, int | None]:
    """Return the frame address of a core's function, and the return address or None."""
    frames = iter_call_frames(debugger, core)
    first, second = next(frames), next(frames, None)
    base = first.registers[_STACK_POINTER] if first.base is None else first.base
    return base or 0, None if second is None else second.address


def _has_returned(debugger: Debugger, core: int, base: int) -> bool:
    """Return whether the function with a frame address has returned."""
    now, _ = _find_frame(debugger, core)
    return now > base or debugger.source_map.find_unwind_row(_get_pc(debugger, core)) is None
