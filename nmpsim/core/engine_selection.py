"""Engines by name, and automatic engine selection.

Both engines give the same results, and all state is in the machine. So a run may begin on the
reference engine, which needs no compilation, and continue on the compiled one if it takes longer
than expected.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nmpsim.bundle.read import Bundle
from nmpsim.core.engine import Engine
from nmpsim.core.kernel_cache import mark_kernel_cache_used
from nmpsim.core.limits import Limits
from nmpsim.core.state import Int64s, Machine, Outcome
from nmpsim.core.stop_conditions import StopConditions
from nmpsim.diagnostics import fail
from nmpsim.timing import Costs

if TYPE_CHECKING:
    from nmpsim.core.compiled.contract_state import ContractState
    from nmpsim.core.compiled.engine import CompiledEngine
    from nmpsim.core.reference.engine import ReferenceEngine

ENGINES = ("compiled", "reference")
AUTO = "auto"
"""Name of automatic engine selection."""

READING_SECONDS = 0.1
"""Upper bound for loading LLVM and kernels; the reference engine is no slower until then."""
COMPILING_SECONDS = 15.0
"""Seconds that the reference engine may take if kernels would have to be compiled first."""
PART_OF_LIMIT = 4
"""The reference engine may take at most the timeout divided by this."""
INSTRUCTION_SECONDS, MAC_SECONDS, ELEMENT_SECONDS = 2e-4, 2e-8, 3.2e-6
"""Costs of the reference engine, measured on five networks, with a margin of one half."""


def make_engine(name: str, threads: int = 1) -> Engine:
    """Make the engine with this name; raise UserError (ARG001) if there is none.

    ``threads`` of the host share the work of the compiled engine; no result depends on it.
    """
    if name not in (AUTO, *ENGINES):
        expected = " or ".join((AUTO, *ENGINES))
        raise fail("ARG001", "unknown engine", found=repr(name), expected=expected)
    if name == "reference":
        from nmpsim.core.reference.engine import ReferenceEngine

        return ReferenceEngine()
    if name == AUTO:
        return AutoEngine(threads)
    from nmpsim.core.compiled.engine import CompiledEngine

    mark_kernel_cache_used()
    return CompiledEngine(threads)


def estimate_reference_seconds(bundle: Bundle) -> float:
    """Estimate how long the reference engine takes for a program without long loops."""
    instructions = sum(end - start for start, end in bundle.text) / 4
    layers = [one for one in bundle.metadata.layers if one.placement == "device"]
    elements = sum(math.prod(one.output.shape) for one in layers)
    macs = sum(one.macs for one in layers)
    return instructions * INSTRUCTION_SECONDS + macs * MAC_SECONDS + elements * ELEMENT_SECONDS


class _Delegated:
    """A member that the current engine provides."""

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, engine: AutoEngine, _: type) -> Any:
        return getattr(engine.current, self._name)


class AutoEngine(Engine):
    """The reference engine for short work, the compiled engine for long work."""

    name: Any = _Delegated()
    can_prove: Any = _Delegated()
    has_scratchpads: Any = _Delegated()
    has_run_in_parallel: Any = _Delegated()
    begin_run: Any = _Delegated()
    is_ready: Any = _Delegated()
    is_complete: Any = _Delegated()
    compile_all: Any = _Delegated()
    prove: Any = _Delegated()
    replay: Any = _Delegated()

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._compiled: CompiledEngine | None = None
        self._is_compiled = False
        """Whether the compiled engine is the current one."""
        self._listener: Callable[[], None] | None = None
        self._spent = 0.0
        """Processor seconds that the reference engine has taken; not wall time."""
        self._is_ready: bool | None = None
        """Whether the compiled engine is in the cache; None if unknown."""
        self._most = COMPILING_SECONDS
        self._reading_seconds = 0.0

    @cached_property
    def _reference(self) -> ReferenceEngine:
        from nmpsim.core.reference.engine import ReferenceEngine  # not every program needs it

        return ReferenceEngine()

    @property
    def current(self) -> Engine:
        """The engine that executes now."""
        return self._get_compiled() if self._is_compiled else self._reference

    @property
    def compiling_seconds(self) -> float:
        """Seconds spent on compiling kernels or reading them."""
        return self._compiled_seconds() + self._reading_seconds

    def when_compiling(self, listener: Callable[[], None] | None) -> None:
        """Call ``listener`` before kernels are compiled that are not in the cache."""
        self._listener = listener
        if self._compiled is not None:
            self._compiled.when_compiling(listener)

    def choose(self, bundle: Bundle, limits: Limits) -> None:
        """Choose the engine with which a run of a bundle begins."""
        if self._is_compiled:
            return
        timeout = math.inf if limits.timeout is None else limits.timeout
        self._most = min(COMPILING_SECONDS, timeout / PART_OF_LIMIT)
        self._is_compiled = self._should_compile(estimate_reference_seconds(bundle))

    def run(
        self,
        machine: Machine,
        costs: Costs,
        turns: int,
        stop_at_layers: bool,
        stops: StopConditions | None = None,
    ) -> Outcome:
        """Run for at most ``turns`` turns; see :class:`~nmpsim.core.engine.Engine`."""
        if not self._is_compiled and turns > 0 and self._should_compile(0.0):
            self._switch_to_compiled(machine, costs)
        begin = time.thread_time()
        outcome = self.current.run(machine, costs, turns, stop_at_layers, stops)
        if not self._is_compiled:
            self._spent += time.thread_time() - begin
        return outcome

    def check_events(
        self, state: ContractState, events: Int64s, words: Int64s, first_word: int
    ) -> bool:
        """Check events on the current engine; see :class:`~nmpsim.core.engine.Engine`."""
        begin = time.thread_time()
        is_cached = self.current.check_events(state, events, words, first_word)
        if not self._is_compiled:
            self._spent += time.thread_time() - begin
        return is_cached

    def _should_compile(self, more: float) -> bool:
        """Return whether the compiled engine finishes first if ``more`` seconds remain."""
        seconds = self._spent + more
        if seconds <= READING_SECONDS:
            return False
        if self._is_ready is None:
            self._is_ready = self._get_compiled().is_ready()
        return self._is_ready or seconds > self._most

    def _get_compiled(self) -> CompiledEngine:
        if self._compiled is None:
            begin = time.perf_counter()
            from nmpsim.core.compiled.engine import CompiledEngine

            mark_kernel_cache_used()
            self._compiled = CompiledEngine(self._threads)
            self._compiled.when_compiling(self._listener)
            self._reading_seconds += time.perf_counter() - begin
        return self._compiled

    def _switch_to_compiled(self, machine: Machine, costs: Costs) -> None:
        """Continue on the compiled engine; compiling or reading it is no simulation time."""
        self._is_compiled = True
        seconds, begin = self._compiled_seconds(), time.perf_counter()
        self.current.run(machine, costs, 0, False)
        counted = self._compiled_seconds() - seconds
        self._reading_seconds += time.perf_counter() - begin - counted

    def _compiled_seconds(self) -> float:
        return self._compiled.compiling_seconds if self._compiled else 0.0
