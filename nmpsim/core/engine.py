"""What an engine does; ``engines.py`` makes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from nmpsim.core.critical_path import CriticalPath
from nmpsim.core.state import Int64s, Machine, Outcome
from nmpsim.core.stop_conditions import StopConditions
from nmpsim.timing import Costs

if TYPE_CHECKING:
    from nmpsim.core.compiled.contract_state import Contract

LayerCallback = Callable[[int], None]
"""Told now and then that all layers below one are done."""


ShowInstructions = Callable[[Int64s, Int64s, int], bool]
"""Shown instructions in the order of their effects, as rows of
:class:`~nmpsim.core.contract_events.ContractEvent`; an array that holds the words of their
descriptors in its rows, and the column at which they begin. False ends it."""

CheckEvents = Callable[["Contract", Int64s, Int64s, int], bool]
"""What the contract check knows so far, and shown instructions; False where it is broken."""


class Replayed(NamedTuple):
    """What a replay tells."""

    path: CriticalPath
    again: Callable[[LayerCallback, bool], None]
    """Computes the values of a next run that begins as this one did; timing stays as it is.

    ``reached`` and ``whole_layers`` are those of :meth:`Engine.replay`.
    """


class Engine(ABC):
    """Advances a machine; all state is in the machine.

    What is not overridden suits an engine that compiles, proves and replays nothing.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """As reports have it."""

    @property
    def can_prove(self) -> bool:
        """False if :meth:`prove` is False of every program."""
        return False

    @property
    def has_scratchpads(self) -> bool:
        """Do the replays since :meth:`begin` leave in scratchpads what the program does?"""
        return True

    @property
    def has_run_in_parallel(self) -> bool:
        """Have cores gone on without turns since the run began? Where a run ends early, they have
        come further than they would have."""
        return False

    def begin(self) -> None:  # noqa: B027 - there may be nothing to do
        """A run begins, as one of no turns does; scratchpads hold what it may find there."""

    @property
    def compiling_seconds(self) -> float:
        """Seconds that runs have spent so far on compiling kernels, or on reading them."""
        return 0.0

    def when_compiling(  # noqa: B027 - there may be nothing to compile
        self, listener: Callable[[], None] | None
    ) -> None:
        """Call ``listener`` before kernels are compiled that no process has kept."""

    def is_ready(self) -> bool:
        """False if the first run will have to compile the engine itself."""
        return True

    def is_complete(self) -> bool:
        """True if no program will have to wait for kernels to be compiled."""
        return True

    def compile_all(self) -> None:  # noqa: B027 - there may be nothing to compile
        """Compile the kernels of all programs, but for those that the first run will compile."""

    @abstractmethod
    def run(
        self,
        machine: Machine,
        costs: Costs,
        turns: int,
        stop_at_layers: bool,
        stops: StopConditions | None = None,
    ) -> Outcome:
        """Run until all cores have halted, a trap, a deadlock or the cycle limit.

        Comes back with PAUSED after ``turns`` turns of cores and DRAM, or earlier if that takes
        about a tenth of a second, with LAYER_END when a barrier was passed that the bundle knows
        and ``stop_at_layers`` is set, and with STOPPED for what ``stops`` asks; calling again goes
        on where it was.
        """

    def prove(self, machine: Machine, costs: Costs, show: ShowInstructions) -> bool:
        """Show all instructions to the end; False if data decides which these are.

        The machine stays as it is.

        Raises:
            ContractBrokenError: ``show`` did not want to see more.
        """
        return False

    @abstractmethod
    def check_events(self, known: Contract, events: Int64s, words: Int64s, first_word: int) -> bool:
        """Check what cores and host do, see :func:`nmpsim.core.compiled.contract.check`."""

    def replay(
        self,
        machine: Machine,
        costs: Costs,
        reached: LayerCallback,
        strict: bool = False,
        whole_layers: bool = False,
        is_last: bool = True,
    ) -> Replayed | None:
        """Run to the end, with the outcome DONE; None if that must be done by ``run``.

        ``strict`` asks it to leave to ``run`` what comes back from there with VIOLATION. With
        ``whole_layers`` it may do each layer at once, which leaves scratchpads as they were:
        ``has_scratchpads`` says whether that was not done since the run began. ``is_last`` says
        that nothing comes after it in the program that could read them.

        Raises:
            ReplayDivergedError: the run must begin again.
        """
        return None


class ContractBrokenError(Exception):
    """Who looks at the instructions of a program has found one that breaks the contract."""


class OrderDependentError(Exception):
    """The run ends early, and some cores have gone on: it must begin again, all in order."""


class ReplayDivergedError(Exception):
    """An earlier run showed what this one would do, but its data decided otherwise."""
