"""The engine that suits: the reference engine at once, or the compiled one where that is sooner.

Both give the same results, and all state is in the machine. So a run may begin on the reference
engine and go on with the compiled one: where it takes longer than was expected of its program.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from nmpsim.bundle.read import Bundle
from nmpsim.core.engine import Engine, LayerCallback, Replayed, ShowInstructions
from nmpsim.core.kernel_cache import mark_kernel_cache_used
from nmpsim.core.limits import Limits
from nmpsim.core.state import Int64s, Machine, Outcome
from nmpsim.core.stop_conditions import StopConditions
from nmpsim.timing import Costs

if TYPE_CHECKING:
    from nmpsim.core.compiled.contract_state import Contract
    from nmpsim.core.compiled.engine import CompiledEngine
    from nmpsim.core.reference.engine import ReferenceEngine

READING_SECONDS = 0.1
"""What loading LLVM and kernels takes at most: until then the reference engine is no slower."""
COMPILING_SECONDS = 15.0
"""How long the reference engine may take where kernels would have to be compiled first."""
PART_OF_LIMIT = 4
"""It is left in this part of the seconds that a run may take."""
INSTRUCTION_SECONDS, MAC_SECONDS, ELEMENT_SECONDS = 2e-4, 2e-8, 3.2e-6
"""What the reference engine takes, measured on five networks, half as much again on top."""


def reference_seconds(bundle: Bundle) -> float:
    """About how long the reference engine takes for a bundle whose program has no long loops."""
    instructions = sum(end - start for start, end in bundle.text) / 4
    layers = [one for one in bundle.metadata.layers if one.placement == "device"]
    elements = sum(math.prod(one.output.shape) for one in layers)
    macs = sum(one.macs for one in layers)
    return instructions * INSTRUCTION_SECONDS + macs * MAC_SECONDS + elements * ELEMENT_SECONDS


class AutoEngine(Engine):
    """One of the two engines; see :class:`~nmpsim.core.engine.Engine`."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._compiled: CompiledEngine | None = None
        self._is_compiled = False
        """Whether the compiled engine is the one at hand."""
        self._listener: Callable[[], None] | None = None
        self._spent = 0.0
        """Seconds of a processor that the reference engine has taken so far: how busy the host is
        does not decide."""
        self._is_ready: bool | None = None
        """Whether the compiled engine was kept; None before anybody has looked."""
        self._most = COMPILING_SECONDS
        self._reading_seconds = 0.0

    @cached_property
    def _reference(self) -> ReferenceEngine:
        from nmpsim.core.reference.engine import ReferenceEngine  # not every program needs it

        return ReferenceEngine()

    @property
    def _engine(self) -> Engine:
        """The engine at hand."""
        return self._get_compiled() if self._is_compiled else self._reference

    @property
    def name(self) -> str:
        """Of the engine that ran last."""
        return self._engine.name

    @property
    def has_scratchpads(self) -> bool:
        """As the engine at hand has them."""
        return self._engine.has_scratchpads

    @property
    def has_run_in_parallel(self) -> bool:
        """As in the engine at hand."""
        return self._engine.has_run_in_parallel

    @property
    def can_prove(self) -> bool:
        """As the engine at hand can."""
        return self._engine.can_prove

    def begin(self) -> None:
        """A run begins on the engine at hand."""
        self._engine.begin()

    @property
    def compiling_seconds(self) -> float:
        """Seconds spent on compiling kernels, or on reading them."""
        compiling = self._compiled.compiling_seconds if self._compiled else 0.0
        return compiling + self._reading_seconds

    def when_compiling(self, listener: Callable[[], None] | None) -> None:
        """Call ``listener`` before kernels are compiled that no process has kept."""
        self._listener = listener
        if self._compiled is not None:
            self._compiled.when_compiling(listener)

    def is_ready(self) -> bool:
        """False if the engine at hand would have to compile itself first."""
        return self._engine.is_ready()

    def is_complete(self) -> bool:
        """False if a program might have to wait for kernels to be compiled."""
        return self._engine.is_complete()

    def compile_all(self) -> None:
        """Compile all kernels of the engine at hand."""
        self._engine.compile_all()

    def choose(self, bundle: Bundle, limits: Limits) -> None:
        """A run of a bundle begins."""
        if self._is_compiled:
            return
        timeout = math.inf if limits.timeout is None else limits.timeout
        self._most = min(COMPILING_SECONDS, timeout / PART_OF_LIMIT)
        self._is_compiled = self._is_late(reference_seconds(bundle))

    def run(
        self,
        machine: Machine,
        costs: Costs,
        turns: int,
        stop_at_layers: bool,
        stops: StopConditions | None = None,
    ) -> Outcome:
        """Run for at most ``turns`` turns; see :class:`~nmpsim.core.engine.Engine`."""
        if self._is_compiled:
            return self._engine.run(machine, costs, turns, stop_at_layers, stops)
        if turns > 0 and self._is_late(0.0):
            self._hand_over(machine, costs)
            return self._engine.run(machine, costs, turns, stop_at_layers, stops)
        begin = time.thread_time()
        outcome = self._reference.run(machine, costs, turns, stop_at_layers, stops)
        self._spent += time.thread_time() - begin
        return outcome

    def prove(self, machine: Machine, costs: Costs, show: ShowInstructions) -> bool:
        """As the engine at hand does it."""
        return self._engine.prove(machine, costs, show)

    def check_events(self, known: Contract, events: Int64s, words: Int64s, first_word: int) -> bool:
        """As the engine at hand does it."""
        begin = time.thread_time()
        is_kept = self._engine.check_events(known, events, words, first_word)
        if not self._is_compiled:
            self._spent += time.thread_time() - begin
        return is_kept

    def replay(
        self,
        machine: Machine,
        costs: Costs,
        reached: LayerCallback,
        strict: bool = False,
        whole_layers: bool = False,
        is_last: bool = True,
    ) -> Replayed | None:
        """As the engine at hand does it."""
        return self._engine.replay(machine, costs, reached, strict, whole_layers, is_last)

    def _is_late(self, more: float) -> bool:
        """Would the compiled engine be done sooner if this many seconds are still to come?"""
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

    def _hand_over(self, machine: Machine, costs: Costs) -> None:
        """Go on with the compiled engine; that it is compiled or read first is no simulation."""
        self._is_compiled = True
        seconds, begin = self._compiled_seconds(), time.perf_counter()
        self._engine.run(machine, costs, 0, False)
        counted = self._compiled_seconds() - seconds
        self._reading_seconds += time.perf_counter() - begin - counted

    def _compiled_seconds(self) -> float:
        return self._compiled.compiling_seconds if self._compiled else 0.0
