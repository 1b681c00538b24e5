"""The compiled engine, which runs the event loop or replays recordings."""

from __future__ import annotations

from nmpsim.core.compiled.contract_state import ContractState
from nmpsim.core.compiled.dispatch import KernelTable
from nmpsim.core.compiled.entries import KERNELS, PARTS, check_events, prepare_contract_check, run
from nmpsim.core.compiled.kernel_arguments import (
    NO_RESULT,
    LoopContext,
    RecordingBuffers,
    make_context,
    make_recording_buffers,
)
from nmpsim.core.compiled.parallel_cores import ParallelCores
from nmpsim.core.compiled.recording import (
    STEPS_PER_TURN,
    Recording,
    Recordings,
    RecordTurns,
    record_program,
    run_timing,
)
from nmpsim.core.compiled.replay import Workers, prepare_replay
from nmpsim.core.compiled.warmup import Warmup
from nmpsim.core.engine import Compilation, Engine, EventConsumer, LayerCallback, RecordedStep
from nmpsim.core.state import Int64s, Machine, Outcome
from nmpsim.core.stop_conditions import (
    StopConditions,
    make_default_stop_conditions,
    make_stop_conditions,
)
from nmpsim.kernels.entries import CACHE, pause_garbage_collection
from nmpsim.kernels.numba_settings import IS_JIT_DISABLED
from nmpsim.timing import Costs


class CompiledEngine(Engine):
    """Engine that executes programs in compiled code and replays recordings on several threads."""

    name = "compiled"
    can_record = not IS_JIT_DISABLED

    def __init__(self, threads: int = 1, compilation: Compilation | None = None) -> None:
        super().__init__(compilation)
        self._kernels = KernelTable(self.compilation)
        self._workers = Workers(self._kernels, threads)
        self._recordings = Recordings()
        self._parallel = ParallelCores(1 if IS_JIT_DISABLED else threads)
        self._is_compiled = IS_JIT_DISABLED

    def is_ready(self) -> bool:
        """Return whether the event loop is in the kernel cache."""
        return run.is_cached()

    def is_complete(self) -> bool:
        """Return whether all kernels are in the kernel cache."""
        return all(one.is_cached() for one in (run, *PARTS, *KERNELS.values()))

    def compile_all(self) -> None:
        """Compile the kernels of all tensor instructions, and the contract check."""
        for number in KERNELS:
            self._kernels.compile(number)
        prepare_contract_check()

    def run(
        self,
        machine: Machine,
        costs: Costs,
        turns: int,
        stop_at_layers: bool,
        stops: StopConditions | None = None,
    ) -> Outcome:
        """Run a machine for at most ``turns`` turns of cores and the DRAM; see ``Engine.run``."""
        asked = make_default_stop_conditions(machine.cores.size) if stops is None else stops
        self._compile_once(machine, costs)
        context = self._make_context(machine, make_recording_buffers(machine.cores.size, 0))
        if turns == 0:
            self._parallel.begin_run()

        def loop(turns: int, asked: StopConditions) -> Outcome:
            outcome = self._run_loop(machine, costs, context, turns, stop_at_layers, asked)
            assert outcome is not None  # only recordings are given up
            return outcome

        return self._parallel.run(machine, asked, turns, loop)

    def check_events(
        self, state: ContractState, events: Int64s, words: Int64s, first_word: int
    ) -> bool:
        """Check events in compiled code; return whether all are valid. See ``Engine``."""
        return bool(check_events(state, events, words, first_word))

    def record(
        self, machine: Machine, costs: Costs, consume: EventConsumer | None = None
    ) -> Recording | None:
        """Record a program to its end, or return None if it depends on data. See ``Engine``."""
        if IS_JIT_DISABLED or not self._recordings.can_record(machine, costs):
            return None
        self._compile_once(machine, costs)
        known = self._recordings.find(machine)
        if consume is None and known is not None:
            return known
        is_accepted = True

        def pass_on(events: Int64s, words: Int64s, first_word: int) -> bool:
            nonlocal is_accepted
            is_accepted = consume is None or consume(events, words, first_word)
            return is_accepted

        if consume is not None:
            self._kernels.notify_compiling(check_events)
        found = record_program(machine, costs, self._make_recording_loop(machine, costs), pass_on)
        if is_accepted and (found is None or known is None):
            self._recordings.add(found)
        return found and (known or found)

    def run_timing(self, machine: Machine, costs: Costs) -> bool:
        """Run a machine to its end without computing values. See ``Engine``."""
        if IS_JIT_DISABLED:
            return False
        self._compile_once(machine, costs)
        return run_timing(machine, self._make_recording_loop(machine, costs))

    def replay(
        self,
        machine: Machine,
        recorded: RecordedStep,
        on_layer: LayerCallback | None,
        strict: bool = False,
        layer_kernels: bool = False,
    ) -> bool:
        """Replay a recorded program; return False if data invalidate it. See ``Engine``."""
        assert isinstance(recorded, Recording)
        epochs = recorded.get_epochs(machine, layer_kernels, on_layer is not None)
        is_valid = self._workers.replay(machine, epochs, on_layer, strict)
        if not is_valid:
            self._recordings.add(None)
        return is_valid

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

    def _make_recording_loop(self, machine: Machine, costs: Costs) -> RecordTurns:
        """Return a function that records some turns of the program in a machine."""
        stops = make_stop_conditions(machine.cores.size, steps_per_turn=STEPS_PER_TURN)

        def loop(ahead: Machine, recorder: RecordingBuffers, turns: int) -> Outcome | None:
            context = self._make_context(ahead, recorder)
            return self._run_loop(ahead, costs, context, turns, False, stops)

        return loop

    def _make_context(self, machine: Machine, recorder: RecordingBuffers) -> LoopContext:
        workspace = self._workers.get_workspace(machine)
        context = make_context(machine, machine.layers, machine.channel_saturated, workspace)
        return LoopContext(self._kernels.addresses, self._kernels.prepare, context, *recorder)

    def _compile_once(self, machine: Machine, costs: Costs) -> None:
        """Compile the missing parts of the engine, and load the event loop."""
        if self._is_compiled:
            return
        self._kernels.notify_compiling(run)
        is_part_missing = not all(part.is_cached() for part in PARTS)
        if CACHE is not None and not run.is_cached() and is_part_missing:
            warmup = Warmup()
            warmup.start()
            self._kernels.wait_for_warmup = warmup.wait
        context = self._make_context(machine, make_recording_buffers(machine.cores.size, 0))
        stops = make_default_stop_conditions(machine.cores.size)
        with pause_garbage_collection():
            run.compile_for(machine, costs, context, 0, False, stops)
            if is_part_missing:
                self._kernels.wait_for_warmup()
                prepare_replay()
        self._is_compiled = True
