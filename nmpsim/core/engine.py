"""The interface of an engine; :mod:`nmpsim.core.engine_selection` makes engines by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from nmpsim.core.critical_path import CriticalPath
from nmpsim.core.state import Int64s, Machine, Outcome
from nmpsim.core.stop_conditions import StopConditions
from nmpsim.timing import Costs

if TYPE_CHECKING:
    from nmpsim.core.compiled.contract_state import ContractState

LayerCallback = Callable[[int], None]
"""Called now and then with an index below which all layers are complete."""

EventConsumer = Callable[[Int64s, Int64s, int], bool]
"""Takes instructions in the order of their effects, as rows of
:class:`~nmpsim.core.contract_events.ContractEvent`, an array with the words of their descriptors,
and the column at which the words begin. False asks for no more."""

EventCheck = Callable[["ContractState", Int64s, Int64s, int], bool]
"""Checks events against what is known so far; False if they violate the contract."""


class ReplayResult(NamedTuple):
    """Result of a replay."""

    path: CriticalPath
    repeat: Callable[[LayerCallback, bool], None]
    """Compute the values of a next run that begins as this one did; timing stays as it is.

    The arguments are ``on_layer`` and ``layer_kernels`` of :meth:`Engine.replay`.
    """


class Engine(ABC):
    """Executes instructions of a machine; all state is in the machine.

    The defaults suit an engine that compiles, proves and replays nothing.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the engine in reports."""

    @property
    def can_prove(self) -> bool:
        """False if :meth:`prove` returns False for every program."""
        return False

    @property
    def has_scratchpads(self) -> bool:
        """Whether all replays since :meth:`begin_run` left scratchpads as the program does."""
        return True

    @property
    def has_run_in_parallel(self) -> bool:
        """Whether cores have run in parallel, and may be further ahead than in order."""
        return False

    def begin_run(self) -> None:  # noqa: B027 - there may be nothing to do
        """Begin a run; its scratchpads hold what the run may find there."""

    @property
    def compiling_seconds(self) -> float:
        """Seconds that runs have spent so far on compiling kernels or reading them."""
        return 0.0

    def when_compiling(  # noqa: B027 - there may be nothing to compile
        self, listener: Callable[[], None] | None
    ) -> None:
        """Call ``listener`` before kernels are compiled that are not in the cache."""

    def is_ready(self) -> bool:
        """Return False if the first run must compile the engine itself."""
        return True

    def is_complete(self) -> bool:
        """Return whether the kernels of all programs are in the cache."""
        return True

    def compile_all(self) -> None:  # noqa: B027 - there may be nothing to compile
        """Compile the kernels of all programs, except those that the first run compiles."""

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

        Returns PAUSED after ``turns`` turns of cores and DRAM, or earlier if they take about a
        tenth of a second; LAYER_END at a barrier that the bundle knows if ``stop_at_layers`` is
        set; and STOPPED as ``stops`` requests. The next call continues from there. With no turns it
        only begins a run, and compiles or loads the engine.
        """

    def prove(self, machine: Machine, costs: Costs, consume: EventConsumer) -> bool:
        """Pass all instructions to ``consume``, leaving the machine as it is.

        Returns
        -------
        bool
            False if data decide which instructions are executed.

        Raises
        ------
        ContractViolationError
            If ``consume`` returned False.
        """
        return False

    @abstractmethod
    def check_events(
        self, state: ContractState, events: Int64s, words: Int64s, first_word: int
    ) -> bool:
        """Check events against the contract; see :func:`nmpsim.core.compiled.contract.check`."""

    def replay(
        self,
        machine: Machine,
        costs: Costs,
        on_layer: LayerCallback,
        strict: bool = False,
        layer_kernels: bool = False,
        is_last: bool = True,
    ) -> ReplayResult | None:
        """Run to the end by replaying a recording; None if only :meth:`run` can do it.

        Parameters
        ----------
        machine, costs
            As for :meth:`run`.
        on_layer : LayerCallback
            Called as layers complete.
        strict : bool
            Leave programs to :meth:`run` for which it would return VIOLATION.
        layer_kernels : bool
            Allow one kernel call for a whole layer, which leaves scratchpads as they were.
        is_last : bool
            Whether no later part of the program reads scratchpads.

        Raises
        ------
        ReplayDivergedError
            If the run must begin again.
        """
        return None


class RestartRunError(Exception):
    """The run must begin again in another mode."""


class ContractViolationError(RestartRunError):
    """The program violates the contract: the run must end where it does."""


class DataDependentError(RestartRunError):
    """The contract cannot be proved in advance: each run must be checked."""


class OrderDependentError(RestartRunError):
    """The run ends early after cores ran in parallel: it must be done in order."""


class ReplayDivergedError(RestartRunError):
    """The data invalidate what was recorded of an earlier run."""
