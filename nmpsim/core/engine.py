"""The interface of an engine; :mod:`nmpsim.core.engine_selection` makes engines by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from nmpsim.core.critical_path import CriticalPath
from nmpsim.core.state import Int64s, Machine, Outcome
from nmpsim.core.stop_conditions import StopConditions
from nmpsim.timing import Costs

if TYPE_CHECKING:
    from nmpsim.bundle.metadata import Layer
    from nmpsim.core.compiled.contract_state import ContractState
    from nmpsim.core.reference.commits import CommitListener

LayerCallback = Callable[[int], None]
"""Called with an index below which all layers are complete."""

EventConsumer = Callable[[Int64s, Int64s, int], bool]
"""Takes instructions in the order of their effects, as rows of
:class:`~nmpsim.core.contract_events.ContractEvent`, an array with the words of their descriptors,
and the column at which the words begin. False asks for no more."""

EventCheck = Callable[["ContractState", Int64s, Int64s, int], bool]
"""Checks events against what is known so far; False if they violate the contract."""


class Compilation:
    """Record of compilation: the seconds spent, and a listener called before each compilation."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Seconds spent so far on compiling kernels or reading them from the cache."""
        self.listener: Callable[[], None] | None = None
        """Called before kernels are compiled that are not in the cache."""


class RecordedStep(Protocol):
    """Recorded device step that an engine can replay for any input."""

    @property
    def path(self) -> CriticalPath:
        """Critical path of the step, computed while the step was recorded."""
        ...

    def plan_layer_kernels(self, machine: Machine, layers: Sequence[Layer]) -> tuple[bool, bool]:
        """Plan which layers single kernel calls can compute; later calls return the same result.

        ``layers`` are the layers of the bundle, with their claims.

        Returns
        -------
        has_layer_kernels : bool
            Whether a replay with layer kernels leaves scratchpads as they were.
        reads_scratchpads : bool
            Whether the step may read scratchpad bytes that it has not written.
        """
        ...

    @property
    def completes_single_layers(self) -> bool:
        """Whether a replay with layer kernels completes a layer before it begins the next one."""
        ...

    def set_timing(self, machine: Machine) -> None:
        """Set the machine's cycles and timing counters to their state after the step."""
        ...


class Engine(ABC):
    """Base class of engines that execute the instructions of a machine."""

    def __init__(self, compilation: Compilation | None = None) -> None:
        self.compilation = compilation or Compilation()
        self.commits: CommitListener | None = None
        """Called with each executed instruction; engines other than the reference ignore it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the engine in reports."""

    @property
    def can_record(self) -> bool:
        """Whether the engine can record programs."""
        return False

    @abstractmethod
    def run(
        self,
        machine: Machine,
        costs: Costs,
        turns: int,
        stop_at_layers: bool,
        stops: StopConditions | None = None,
    ) -> Outcome:
        """Run a machine until all cores have halted, or up to a trap, deadlock or the cycle limit.

        Returns PAUSED after ``turns`` turns of cores and DRAM, or earlier if they take about a
        tenth of a second; LAYER_END at a barrier that the bundle knows if ``stop_at_layers`` is
        set; and STOPPED as ``stops`` requests. The next call continues from there. With no turns it
        only compiles or loads the engine.
        """

    @abstractmethod
    def check_events(
        self, state: ContractState, events: Int64s, words: Int64s, first_word: int
    ) -> bool:
        """Check events against the contract; return whether all events are valid."""

    def record(
        self, machine: Machine, costs: Costs, consume: EventConsumer | None = None
    ) -> RecordedStep | None:
        """Record a program to its end; return the recording, or None if execution depends on data.

        Parameters
        ----------
        machine, costs
            As for :meth:`run`.
        consume : EventConsumer, optional
            Called with all instructions. By default a known recording is returned.

        Returns
        -------
        RecordedStep or None
            None if data decide which instructions are executed or ``consume`` returned False.
        """
        return None

    def run_timing(self, machine: Machine, costs: Costs) -> bool:
        """Run a machine to its end without computing values; return whether the cycles are known.

        Memory stays as it is. The cycles are unknown if a scalar instruction accesses memory, and
        for very long programs.
        """
        return False

    def replay(
        self,
        machine: Machine,
        recorded: RecordedStep,
        on_layer: LayerCallback | None,
        strict: bool = False,
        layer_kernels: bool = False,
    ) -> bool:
        """Replay a recorded program to compute values; return False if data invalidate it.

        Parameters
        ----------
        machine : Machine
            The machine of the recording, with the memory that the program begins with.
        recorded : RecordedStep
            Result of :meth:`record`.
        on_layer : LayerCallback or None
            Called as layers complete; see ``RecordedStep.completes_single_layers``.
        strict : bool
            Also end where :meth:`run` would return VIOLATION.
        layer_kernels : bool
            Allow one kernel call for a whole layer, which leaves scratchpads as they were.

        Returns
        -------
        bool
            False if the data invalidate the recording; memory is then undefined.
        """
        return False
