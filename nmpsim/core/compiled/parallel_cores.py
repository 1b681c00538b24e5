"""Cores that go on apart from each other, on several threads of the host.

What a core computes in its scratchpad nobody else sees, and it sees nobody. The same is true of
what it does again in DRAM that the check of the contract has seen it do. So cores that do much of
that go on as far as they can without a turn, at the same time; then all take turns again, in order
of simulated time, which finds each core as it would have brought it there itself.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread

import numpy as np

from nmpsim.core.state import NEVER, CoreStatus, Int64s, Machine, Outcome
from nmpsim.core.stop_conditions import StopConditions, StopState

STEPS = 1 << 23
"""Instructions that a thread does at once, which takes some hundredths of a second."""
WORTH = 1 << 17
"""Instructions of all cores at once that are worth beginning threads for."""
AHEAD = 1 << 23
"""Cycles by which a core may be ahead of another one and yet go on: it may wait without end for
what the other one does, which only the check of the contract will tell."""
LONG_TURN = 1 << 9
"""Instructions of a core in a row, if it does nothing that others see, or that the check of the
contract has not seen: it will not do so soon."""
TURNS_BETWEEN = 2
"""Turns that each core may take before all are apart again."""

Loop = Callable[[int, StopConditions], Outcome]
"""An engine's loop: at most so many turns of what is asked for."""


class ParallelCores:
    """Looks whether cores can go on apart, and lets them."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._is_due = False
        self.has_been = False
        """Have cores gone on apart since the run began?"""

    def begin(self) -> None:
        """A run begins."""
        self._is_due = self.has_been = False

    def run(
        self,
        machine: Machine,
        stops: StopConditions,
        turns: int,
        loop: Loop,
    ) -> Outcome:
        """Do as ``loop``, with fewer turns where cores can be apart."""
        is_checked = stops.seen.shape[1] > 0
        if stops.parallel.size == 0 or (self._threads == 1 and not is_checked):
            return loop(turns, stops)
        if self._is_due and self._go_on(machine, stops, loop):
            turns = min(turns, TURNS_BETWEEN * machine.cores.size)
        which = StopState.ROWS if is_checked else StopState.TURNS
        retired, taken = machine.cores.retired.sum(), stops.noted[which]
        outcome = loop(turns, stops)
        taken = stops.noted[which] - taken
        steps = machine.cores.retired.sum() - retired
        self._is_due |= bool(steps > LONG_TURN * max(taken, TURNS_BETWEEN))
        return outcome

    def _go_on(self, machine: Machine, stops: StopConditions, loop: Loop) -> bool:
        """Let all cores go on without turns; False if only one may."""
        cores = np.flatnonzero(machine.cores.status == CoreStatus.RUNNING)
        clocks = machine.cores.clock[cores]
        cores = cores[clocks <= clocks.min(initial=NEVER - AHEAD) + AHEAD]
        threads = min(self._threads, cores.size)
        if cores.size < 2:
            return False
        steps = STEPS // -(-cores.size // threads)
        asked = [stops._replace(parallel=_asked(steps, cores[i::threads])) for i in range(threads)]
        workers = [_Worker(loop, one) for one in asked[1:]]
        retired = machine.cores.retired.sum()
        self.has_been = True
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
        self._is_due = bool(machine.cores.retired.sum() - retired >= WORTH)
        return True


class _Worker:
    """Goes on with some cores in a thread of its own."""

    def __init__(self, loop: Loop, asked: StopConditions) -> None:
        self._loop, self._asked = loop, asked
        self._thread = Thread(target=self._serve)
        self._has_begun = False
        self._is_wanted = True
        self._at_work = Lock()
        self._error: BaseException | None = None

    def begin(self) -> bool:
        """False if the host allows no more threads: these cores take turns."""
        try:
            self._thread.start()
        except RuntimeError:
            return False
        self._has_begun = True
        return True

    def finish(self) -> None:
        """Wait until it has gone on."""
        if self._has_begun:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def leave(self) -> None:
        """It changes nothing any more.

        Ctrl-C may come while a thread begins. Python does not wait for such a one, which may yet
        come to its work, or be at it.
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
    """``StopConditions.parallel`` of a thread."""
    return np.array([steps, *cores], np.int64)
