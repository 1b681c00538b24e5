"""Engines by name, and automatic engine selection.

Both engines give the same results, and all state is in the machine. So a run may begin on the
reference engine, which needs no compilation, and continue on the compiled one if it takes longer
than expected.
"""

from __future__ import annotations

import math
import time
from functools import cached_property
from typing import TYPE_CHECKING

from nmpsim.bundle.read import Bundle
from nmpsim.core.engine import Compilation, Engine, EventConsumer, LayerCallback, RecordedStep
from nmpsim.core.kernel_cache import mark_kernel_cache_used
from nmpsim.core.limits import Limits
from nmpsim.core.state import Int64s, Machine, Outcome
from nmpsim.core.stop_conditions import StopConditions
from nmpsim.diagnostics import fail, list_alternatives
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
    """Return a new engine of the given name; raise UserError (ARG001) if the name is unknown.

    ``threads`` of the host share the work of the compiled engine; no result depends on it.
    """
    if name not in (AUTO, *ENGINES):
        expected = list_alternatives((AUTO, *ENGINES))
        raise fail("ARG001", "unknown engine", found=f"engine={name!r}", expected=expected)
    if name == "reference":
        from nmpsim.core.reference.engine import ReferenceEngine

        return ReferenceEngine()
    return AutoEngine(threads) if name == AUTO else make_compiled_engine(threads)


def make_compiled_engine(
    threads: int = 1, compilation: Compilation | None = None
) -> CompiledEngine:
    """Make a compiled engine, and mark the folder of its kernels as recently used."""
    from nmpsim.core.compiled.engine import CompiledEngine

    mark_kernel_cache_used()
    return CompiledEngine(threads, compilation)


def estimate_reference_seconds(bundle: Bundle) -> float:
    """Estimate the seconds that the reference engine takes for a program without loops."""
    instructions = sum(end - start for start, end in bundle.text) / 4
    layers = [one for one in bundle.metadata.layers if one.placement == "device"]
    elements = sum(math.prod(one.output.shape) for one in layers)
    macs = sum(one.macs for one in layers)
    return instructions * INSTRUCTION_SECONDS + macs * MAC_SECONDS + elements * ELEMENT_SECONDS


class AutoEngine(Engine):
    """Engine that begins with the reference engine and continues with the compiled engine."""

    def __init__(self, threads: int = 1) -> None:
        super().__init__()
        self._threads = threads
        self._compiled: CompiledEngine | None = None
        self._is_compiled = False
        """Whether the compiled engine is the current one."""
        self._spent = 0.0
        """Processor seconds that the reference engine has taken; not wall time."""
        self._is_ready: bool | None = None
        """Whether the compiled engine is in the cache; None if unknown."""
        self._most = COMPILING_SECONDS

    @cached_property
    def _reference(self) -> ReferenceEngine:
        from nmpsim.core.reference.engine import ReferenceEngine  # not every program needs it

        return ReferenceEngine()

    @property
    def current_engine(self) -> Engine:
        """Reference or compiled engine that executes the next call."""
        return self._get_compiled() if self._is_compiled else self._reference

    @property
    def name(self) -> str:
        """Name of the current engine."""
        return self.current_engine.name

    @property
    def can_record(self) -> bool:
        """Whether the current engine can record programs."""
        return self.current_engine.can_record

    def choose_engine(self, bundle: Bundle, limits: Limits) -> None:
        """Choose the engine that starts a run of a bundle, from an estimate of its run time."""
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
        """Run a machine for at most ``turns`` turns of cores and the DRAM; see ``Engine.run``."""
        if not self._is_compiled and turns > 0 and self._should_compile(0.0):
            self._switch_to_compiled(machine, costs)
        begin = time.thread_time()
        outcome = self.current_engine.run(machine, costs, turns, stop_at_layers, stops)
        if not self._is_compiled:
            self._spent += time.thread_time() - begin
        return outcome

    def check_events(
        self, state: ContractState, events: Int64s, words: Int64s, first_word: int
    ) -> bool:
        """Check events on the current engine; return whether all are valid. See ``Engine``."""
        begin = time.thread_time()
        is_cached = self.current_engine.check_events(state, events, words, first_word)
        if not self._is_compiled:
            self._spent += time.thread_time() - begin
        return is_cached

    def record(
        self, machine: Machine, costs: Costs, consume: EventConsumer | None = None
    ) -> RecordedStep | None:
        """Record a program on the current engine, or return None if it cannot. See ``Engine``."""
        return self.current_engine.record(machine, costs, consume)

    def run_timing(self, machine: Machine, costs: Costs) -> bool:
        """Run a machine on the current engine without computing values. See ``Engine``."""
        return self.current_engine.run_timing(machine, costs)

    def replay(
        self,
        machine: Machine,
        recorded: RecordedStep,
        on_layer: LayerCallback | None,
        strict: bool = False,
        layer_kernels: bool = False,
    ) -> bool:
        """Replay a program on the current engine; return False if data invalidate it."""
        return self.current_engine.replay(machine, recorded, on_layer, strict, layer_kernels)

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
            self._compiled = make_compiled_engine(self._threads, self.compilation)
            self.compilation.seconds += time.perf_counter() - begin
        return self._compiled

    def _switch_to_compiled(self, machine: Machine, costs: Costs) -> None:
        """Continue on the compiled engine; compiling or reading it is no simulation time."""
        self._is_compiled = True
        seconds, begin = self.compilation.seconds, time.perf_counter()
        self.current_engine.run(machine, costs, 0, False)
        self.compilation.seconds = seconds + time.perf_counter() - begin
