"""Run cores in parallel on several host threads while their order cannot matter.

No other core observes what a core computes in its scratchpad. The same holds for DRAM accesses that
repeat ones which the contract check has already seen. Cores with much such work run as far as they
can without a turn, at the same time. Then all take turns again, in order of simulated time, and
each core is where its turns would have brought it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread

import numpy as np

from nmpsim.core.state import NEVER, CoreStatus, Int64s, Machine, Outcome
from nmpsim.core.stop_conditions import StopConditions, StopState

STEPS = 1 << 23
"""Instructions that a thread executes at once, which take some hundredths of a second."""
MIN_STEPS = 1 << 17
"""Minimum number of instructions of all cores that justifies starting threads."""
MAX_LEAD = 1 << 23
"""Maximum lead in cycles of one core over another: it may wait forever for the other's effects,
which only the contract check will detect.
"""
LONG_TURN = 1 << 9
"""Instructions of a core in a row without an observable effect after which none is expected soon.
"""
TURNS_BETWEEN = 2
"""Turns of each core between two parallel phases."""

Loop = Callable[[int, StopConditions], Outcome]
"""An engine's loop: executes at most so many turns under stop conditions."""


class ParallelCores:
    """Scheduler that runs cores in parallel while their order does not matter."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._should_start = False

    def begin_run(self) -> None:
        """Begin a new run: run cores in order until a parallel phase is worthwhile."""
        self._should_start = False

    def run(
        self,
        machine: Machine,
        stops: StopConditions,
        turns: int,
        loop: Loop,
    ) -> Outcome:
        """Run an engine's loop, with parallel phases where possible, and return its outcome."""
        is_checked = stops.access_cache.shape[1] > 0
        if stops.parallel.size == 0 or (self._threads == 1 and not is_checked):
            return loop(turns, stops)
        if self._should_start and self._run_parallel(machine, stops, loop):
            turns = min(turns, TURNS_BETWEEN * machine.cores.size)
        which = StopState.ROWS if is_checked else StopState.TURNS
        retired, taken = machine.cores.retired.sum(), stops.noted[which]
        outcome = loop(turns, stops)
        taken = stops.noted[which] - taken
        steps = machine.cores.retired.sum() - retired
        self._should_start |= bool(steps > LONG_TURN * max(taken, TURNS_BETWEEN))
        return outcome

    def _run_parallel(self, machine: Machine, stops: StopConditions, loop: Loop) -> bool:
        """Run all cores without turns; return False if only one could run."""
        cores = np.flatnonzero(machine.cores.status == CoreStatus.RUNNING)
        clocks = machine.cores.clock[cores]
        cores = cores[clocks <= clocks.min(initial=NEVER - MAX_LEAD) + MAX_LEAD]
        threads = min(self._threads, cores.size)
        if cores.size < 2:
            return False
        steps = STEPS // -(-cores.size // threads)
        asked = [stops._replace(parallel=_asked(steps, cores[i::threads])) for i in range(threads)]
        workers = [_Worker(loop, one) for one in asked[1:]]
        retired = machine.cores.retired.sum()
        stops.parallel[0] = 1
        try:
            for worker in workers:
                if not worker.begin():
                    break
            loop(1, asked[0])
            for worker in workers:
                worker.finish()
        finally:
            for worker in workers:
                worker.leave()
        self._should_start = bool(machine.cores.retired.sum() - retired >= MIN_STEPS)
        return True


class _Worker:
    """A thread that runs some of the cores."""

    def __init__(self, loop: Loop, asked: StopConditions) -> None:
        self._loop, self._asked = loop, asked
        self._thread = Thread(target=self._serve)
        self._has_begun = False
        self._is_wanted = True
        self._at_work = Lock()
        self._error: BaseException | None = None

    def begin(self) -> bool:
        """Start the thread; return False if the host allows no more threads."""
        try:
            self._thread.start()
        except RuntimeError:
            return False
        self._has_begun = True
        return True

    def finish(self) -> None:
        """Wait until the thread has finished; raise its exception."""
        if self._has_begun:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def leave(self) -> None:
        """Make sure that the thread changes nothing any more.

        Ctrl-C may come while a thread starts. Python does not wait for such a thread, which may yet
        begin its work, or be at it.
        """
        self._is_wanted = False
        with self._at_work:
            pass

    def _serve(self) -> None:
        with self._at_work:
            if self._is_wanted:
                try:
                    self._loop(1, self._asked)
                except BaseException as error:
                    self._error = error


def _asked(steps: int, cores: Int64s) -> Int64s:
    return np.array([steps, *cores], np.int64)
