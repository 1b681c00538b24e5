"""The engine that users run: the event loop, or the replay of what it has recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nmpsim.core.compiled.contract_state import ContractState
from nmpsim.core.compiled.dispatch import KernelTable
from nmpsim.core.compiled.entries import KERNELS, PARTS, check_events, prepare_check, run
from nmpsim.core.compiled.kernel_arguments import (
    NO_RESULT,
    LoopContext,
    Recorder,
    make_context_row,
    make_recorder,
)
from nmpsim.core.compiled.parallel_cores import ParallelCores
from nmpsim.core.compiled.recording import (
    STEPS_PER_TURN,
    Epochs,
    Recording,
    Recordings,
    record,
    set_timing,
)
from nmpsim.core.compiled.replay import Workers, prepare_replay
from nmpsim.core.compiled.warmup import Warmup
from nmpsim.core.engine import (
    Engine,
    EventConsumer,
    LayerCallback,
    ReplayDivergedError,
    ReplayResult,
)
from nmpsim.core.state import Int64s, Machine, Outcome
from nmpsim.core.stop_conditions import (
    StopConditions,
    default_stop_conditions,
    make_stop_conditions,
)
from nmpsim.kernels.entries import CACHE, pause_garbage_collection
from nmpsim.kernels.numba_settings import IS_JIT_DISABLED
from nmpsim.timing import Costs


class _ReplayOptions(NamedTuple):
    """Options of a replay; see :meth:`nmpsim.core.engine.Engine.replay`."""

    strict: bool
    layer_kernels: bool
    is_last: bool


class CompiledEngine(Engine):
    """Runs the compiled event loop, or replays recordings of it on several threads."""

    name = "compiled"
    can_prove = not IS_JIT_DISABLED
    has_scratchpads = True

    def __init__(self, threads: int = 1) -> None:
        self._kernels = KernelTable()
        self._workers = Workers(self._kernels, threads)
        self._recordings = Recordings()
        self._parallel = ParallelCores(1 if IS_JIT_DISABLED else threads)
        self._is_compiled = IS_JIT_DISABLED

    @property
    def compiling_seconds(self) -> float:
        """Seconds that runs have spent so far on compiling kernels or reading them."""
        return self._kernels.seconds

    def when_compiling(self, listener: Callable[[], None] | None) -> None:
        """Call ``listener`` before kernels are compiled that are not in the cache."""
        self._kernels.when_compiling = listener

    def is_ready(self) -> bool:
        """Return False if the first run must compile the event loop."""
        return run.is_cached()

    def is_complete(self) -> bool:
        """Return whether the kernels of all programs are in the cache."""
        return all(one.is_cached() for one in (run, *PARTS, *KERNELS.values()))

    def compile_all(self) -> None:
        """Compile the kernels of all tensor instructions, and the contract check."""
        for number in KERNELS:
            self._kernels.compile(number)
        prepare_check()

    def run(
        self,
        machine: Machine,
        costs: Costs,
        turns: int,
        stop_at_layers: bool,
        stops: StopConditions | None = None,
    ) -> Outcome:
        """Run for at most ``turns`` turns; see :class:`~nmpsim.core.engine.Engine`."""
        asked = default_stop_conditions(machine.cores.size) if stops is None else stops
        self._compile_once(machine, costs)
        context = self._make_context(machine, make_recorder(machine.cores.size, 0))
        if turns == 0:
            self.begin_run()
        elif not self.has_scratchpads:  # an earlier part of the program has left them out
            self._recordings.keep(None)
            raise ReplayDivergedError

        def loop(turns: int, asked: StopConditions) -> Outcome:
            outcome = self._run_loop(machine, costs, context, turns, stop_at_layers, asked)
            assert outcome is not None  # only recordings are given up
            return outcome

        return self._parallel.run(machine, asked, turns, loop)

    def begin_run(self) -> None:
        """Begin a run; see :class:`~nmpsim.core.engine.Engine`."""
        self.has_scratchpads = True
        self._parallel.begin_run()

    @property
    def has_run_in_parallel(self) -> bool:
        """Whether cores have run in parallel since the run began."""
        return self._parallel.has_run

    def prove(self, machine: Machine, costs: Costs, consume: EventConsumer) -> bool:
        """Record from the machine's state on; see :class:`~nmpsim.core.engine.Engine`."""
        if IS_JIT_DISABLED or not self._recordings.can_record(machine, costs):
            return False
        self._compile_once(machine, costs)
        self._kernels.announce(check_events)
        return self._record(machine, costs, consume) is not None

    def check_events(
        self, state: ContractState, events: Int64s, words: Int64s, first_word: int
    ) -> bool:
        """Check events in compiled code; see :class:`~nmpsim.core.engine.Engine`."""
        return bool(check_events(state, events, words, first_word))

    def replay(
        self,
        machine: Machine,
        costs: Costs,
        on_layer: LayerCallback,
        strict: bool = False,
        layer_kernels: bool = False,
        is_last: bool = True,
    ) -> ReplayResult | None:
        """Run to the end if neither cycles nor the order of instructions depend on data."""
        if IS_JIT_DISABLED or not self._recordings.can_record(machine, costs):
            return None
        self._compile_once(machine, costs)
        recording = self._recordings.find(machine) or self._record(machine, costs)
        if recording is None:
            return None
        options = _ReplayOptions(strict, layer_kernels, is_last)
        if recording.is_tried:
            self._compute_values(machine, recording, on_layer, options)
        elif not self._try_replay(machine, recording, on_layer, options):
            return None
        set_timing(machine, recording.after)

        def repeat(on_layer: LayerCallback, layer_kernels: bool) -> None:
            changed = options._replace(layer_kernels=layer_kernels)
            self._compute_values(machine, recording, on_layer, changed)

        return ReplayResult(recording.path, repeat)

    def _run_loop(
        self,
        machine: Machine,
        costs: Costs,
        context: LoopContext,
        turns: int,
        stop_at_layers: bool,
        asked: StopConditions,
    ) -> Outcome | None:
        """Return the outcome of the event loop; None if recording was given up."""
        outcome = run(machine, costs, context, turns, stop_at_layers, asked)
        if outcome != NO_RESULT:
            return Outcome(outcome)
        failure, self._kernels.failure = self._kernels.failure, None
        if failure:
            raise failure
        return None

    def _record(
        self, machine: Machine, costs: Costs, consume: EventConsumer | None = None
    ) -> Recording | None:
        """Record from a machine's state on; None if data decide what happens."""
        stops = make_stop_conditions(machine.cores.size, steps_per_turn=STEPS_PER_TURN)

        def loop(ahead: Machine, recorder: Recorder, turns: int) -> Outcome | None:
            context = self._make_context(ahead, recorder)
            return self._run_loop(ahead, costs, context, turns, False, stops)

        recording = record(machine, costs, loop, consume)
        if recording is None or self._recordings.find(machine) is None:
            self._recordings.keep(recording)
        return recording

    def _try_replay(
        self,
        machine: Machine,
        recording: Recording,
        on_layer: LayerCallback,
        options: _ReplayOptions,
    ) -> bool:
        """Replay for the first time; return False, and undo it, if it diverges."""
        epochs = self._choose_epochs(machine, recording, options._replace(layer_kernels=False))
        memories = (machine.ram, machine.scratchpad, machine.layers, machine.channel_saturated)
        before = [memory.copy() for memory in memories]
        recording.is_tried = self._workers.replay(machine, epochs, on_layer, options.strict)
        if not recording.is_tried:
            for memory, known in zip(memories, before, strict=True):
                memory[...] = known
            self._recordings.keep(None)
        return recording.is_tried

    def _compute_values(
        self,
        machine: Machine,
        recording: Recording,
        on_layer: LayerCallback,
        options: _ReplayOptions,
    ) -> None:
        """Compute the values of a recording that was replayed before."""
        epochs = self._choose_epochs(machine, recording, options)
        if not self._workers.replay(machine, epochs, on_layer, options.strict):
            self._recordings.keep(None)
            raise ReplayDivergedError

    def _choose_epochs(
        self, machine: Machine, recording: Recording, options: _ReplayOptions
    ) -> Epochs:
        """Return what to replay: with layer kernels if nothing later reads the scratchpads."""
        if self.has_scratchpads and not options.layer_kernels:
            return recording.epochs
        # Programs that run once need neither.
        from nmpsim.core.layer_kernels.planning import epochs_with_layer_kernels, prove_once

        epochs = recording.epochs
        if options.layer_kernels and (options.is_last or not self._recordings.need_scratchpads):
            epochs = epochs_with_layer_kernels(machine, recording)
        if not self.has_scratchpads:
            prove_once(machine, recording)
            if recording.reads_scratchpads:
                self._recordings.need_scratchpads = True
                raise ReplayDivergedError
        self.has_scratchpads &= epochs is recording.epochs
        return epochs

    def _make_context(self, machine: Machine, recorder: Recorder) -> LoopContext:
        workspace = self._workers.workspace_for(machine)
        row = make_context_row(machine, machine.layers, machine.channel_saturated, workspace)
        return LoopContext(self._kernels.addresses, self._kernels.prepare, row, *recorder)

    def _compile_once(self, machine: Machine, costs: Costs) -> None:
        """Compile the missing parts of the engine, and load the event loop."""
        if self._is_compiled:
            return
        self._kernels.announce(run)
        is_part_missing = not all(part.is_cached() for part in PARTS)
        if CACHE is not None and not run.is_cached() and is_part_missing:
            warmup = Warmup()
            warmup.start()
            self._kernels.wait_for_warmup = warmup.wait
        context = self._make_context(machine, make_recorder(machine.cores.size, 0))
        stops = default_stop_conditions(machine.cores.size)
        with pause_garbage_collection():
            run.prepare(machine, costs, context, 0, False, stops)
            if is_part_missing:
                self._kernels.wait_for_warmup()
                prepare_replay()
        self._is_compiled = True
