"""The engine that users run: the event loop, or the replay of what it has recorded."""

from __future__ import annotations

from collections.abc import Callable

from nmpsim.core.compiled.context_row import context_row
from nmpsim.core.compiled.contract_state import Contract
from nmpsim.core.compiled.dispatch import KernelTable
from nmpsim.core.compiled.entries import (
    KERNELS,
    PARTS,
    check_events,
    prepare_check,
    run,
)
from nmpsim.core.compiled.parallel_cores import ParallelCores
from nmpsim.core.compiled.recorder_rows import NO_RESULT, LoopContext, Recorder, make_recorder
from nmpsim.core.compiled.recording import (
    STEPS_PER_TURN,
    Epochs,
    Recording,
    Recordings,
    put_timing,
    record,
)
from nmpsim.core.compiled.replay import Workers, prepare_replay
from nmpsim.core.compiled.warmup import Warmup
from nmpsim.core.engine import (
    Engine,
    LayerCallback,
    ReplayDivergedError,
    Replayed,
    ShowInstructions,
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


class CompiledEngine(Engine):
    """The engine that users run."""

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
        """Seconds that runs have spent so far on compiling kernels, or on reading them."""
        return self._kernels.seconds

    def when_compiling(self, listener: Callable[[], None] | None) -> None:
        """Call ``listener`` before kernels are compiled that no process has kept."""
        self._kernels.when_compiling = listener

    def is_ready(self) -> bool:
        """False if the first run will have to compile the engine itself."""
        return run.is_cached()

    def is_complete(self) -> bool:
        """True if no program will have to wait for kernels to be compiled."""
        return all(one.is_cached() for one in (run, *PARTS, *KERNELS.values()))

    def compile_all(self) -> None:
        """Compile the kernels of all tensor instructions."""
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
        context = self._context(machine, make_recorder(machine.cores.size, 0))
        if turns == 0:
            self.begin()
        elif not self.has_scratchpads:  # an earlier part of the program has left them out
            self._recordings.keep(None)
            raise ReplayDivergedError

        def loop(turns: int, asked: StopConditions) -> Outcome:
            outcome = self._loop(machine, costs, context, turns, stop_at_layers, asked)
            assert outcome is not None  # only recordings are given up
            return outcome

        return self._parallel.run(machine, asked, turns, loop)

    def begin(self) -> None:
        """A run begins; see :class:`~nmpsim.core.engine.Engine`."""
        self.has_scratchpads = True
        self._parallel.begin()

    @property
    def has_run_in_parallel(self) -> bool:
        """Have cores gone on without turns since the run began?"""
        return self._parallel.has_been

    def prove(self, machine: Machine, costs: Costs, show: ShowInstructions) -> bool:
        """Record from the machine's state on; see :class:`~nmpsim.core.engine.Engine`."""
        if IS_JIT_DISABLED or not self._recordings.may_have(machine, costs):
            return False
        self._compile_once(machine, costs)
        self._kernels.announce(check_events)
        return self._record(machine, costs, show) is not None

    def check_events(self, known: Contract, events: Int64s, words: Int64s, first_word: int) -> bool:
        """The check of the contract, compiled; see :class:`~nmpsim.core.engine.Engine`."""
        return bool(check_events(known, events, words, first_word))

    def replay(
        self,
        machine: Machine,
        costs: Costs,
        reached: LayerCallback,
        strict: bool = False,
        whole_layers: bool = False,
        is_last: bool = True,
    ) -> Replayed | None:
        """Run to the end where neither cycles nor the order of instructions depend on data."""
        if IS_JIT_DISABLED or not self._recordings.may_have(machine, costs):
            return None
        self._compile_once(machine, costs)
        recording = self._recordings.find(machine) or self._record(machine, costs)
        if recording is None:
            return None
        if not self._replay(machine, recording, reached, strict, whole_layers, is_last):
            return None

        def again(reached: LayerCallback, whole_layers: bool) -> None:
            self._put_values(machine, recording, reached, strict, whole_layers, is_last)

        return Replayed(recording.path, again)

    def _loop(
        self,
        machine: Machine,
        costs: Costs,
        context: LoopContext,
        turns: int,
        stop_at_layers: bool,
        asked: StopConditions,
    ) -> Outcome | None:
        """The loop's outcome; None if recording was given up."""
        outcome = run(machine, costs, context, turns, stop_at_layers, asked)
        if outcome != NO_RESULT:
            return Outcome(outcome)
        failure, self._kernels.failure = self._kernels.failure, None
        if failure:
            raise failure
        return None

    def _record(
        self, machine: Machine, costs: Costs, show: ShowInstructions | None = None
    ) -> Recording | None:
        """Record from a machine's state on; None if data decides what happens."""
        stops = make_stop_conditions(machine.cores.size, steps_per_turn=STEPS_PER_TURN)

        def loop(ahead: Machine, recorder: Recorder, turns: int) -> Outcome | None:
            context = self._context(ahead, recorder)
            return self._loop(ahead, costs, context, turns, False, stops)

        recording = record(machine, costs, loop, show)
        if recording is None or self._recordings.find(machine) is None:
            self._recordings.keep(recording)
        return recording

    def _replay(
        self,
        machine: Machine,
        recording: Recording,
        reached: LayerCallback,
        strict: bool,
        whole_layers: bool,
        is_last: bool,
    ) -> bool:
        """Replay to the end; False, and nothing is changed, if a first replay diverges."""
        if recording.is_tried:
            self._put_values(machine, recording, reached, strict, whole_layers, is_last)
        else:
            epochs = self._epochs(machine, recording, False, is_last)
            memories = (machine.ram, machine.scratchpad, machine.layers, machine.channel_saturated)
            before = [memory.copy() for memory in memories]
            if not self._workers.replay(machine, epochs, reached, strict):
                for memory, known in zip(memories, before, strict=True):
                    memory[...] = known
                self._recordings.keep(None)
                return False
            recording.is_tried = True
        put_timing(machine, recording.after)
        return True

    def _put_values(
        self,
        machine: Machine,
        recording: Recording,
        reached: LayerCallback,
        strict: bool,
        whole_layers: bool,
        is_last: bool,
    ) -> None:
        """Compute the values of a recording that was replayed before."""
        epochs = self._epochs(machine, recording, whole_layers, is_last)
        if not self._workers.replay(machine, epochs, reached, strict):
            self._recordings.keep(None)
            raise ReplayDivergedError

    def _epochs(
        self, machine: Machine, recording: Recording, whole_layers: bool, is_last: bool
    ) -> Epochs:
        """What is replayed, with whole layers where nobody misses what scratchpads hold."""
        if self.has_scratchpads and not whole_layers:
            return recording.epochs
        from nmpsim.core.layer_kernels.planned import (  # who runs once needs neither
            judge,
            whole_epochs,
        )

        epochs = recording.epochs
        if whole_layers and (is_last or not self._recordings.need_scratchpads):
            epochs = whole_epochs(machine, recording)
        if not self.has_scratchpads:
            judge(machine, recording)
            if recording.reads_scratchpads:
                self._recordings.need_scratchpads = True
                raise ReplayDivergedError
        self.has_scratchpads &= epochs is recording.epochs
        return epochs

    def _context(self, machine: Machine, recorder: Recorder) -> LoopContext:
        workspace = self._workers.workspace_for(machine)
        row = context_row(machine, machine.layers, machine.channel_saturated, workspace)
        return LoopContext(self._kernels.addresses, self._kernels.prepare, row, *recorder)

    def _compile_once(self, machine: Machine, costs: Costs) -> None:
        """Compile what is missing of the engine itself, and load the loop."""
        if self._is_compiled:
            return
        self._kernels.announce(run)
        is_part_missing = not all(part.is_cached() for part in PARTS)
        if CACHE is not None and not run.is_cached() and is_part_missing:
            warmup = Warmup()
            warmup.start()
            self._kernels.wait_for_warmup = warmup.wait
        context = self._context(machine, make_recorder(machine.cores.size, 0))
        with pause_garbage_collection():
            run.prepare(
                machine, costs, context, 0, False, default_stop_conditions(machine.cores.size)
            )
            if is_part_missing:
                self._kernels.wait_for_warmup()
                prepare_replay()
        self._is_compiled = True
