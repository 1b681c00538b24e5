"""The engine that users run: the loop, or the course of a program that was planned with it."""

from __future__ import annotations

from collections.abc import Callable

from nmpsim.core.compiled.apart import APART, Apart
from nmpsim.core.compiled.beside import Beside
from nmpsim.core.compiled.contract import check_events, compile_check
from nmpsim.core.compiled.course import (
    STEPS_PER_TURN,
    Course,
    Courses,
    plan_course,
    put_timing,
)
from nmpsim.core.compiled.follow import follow
from nmpsim.core.compiled.loop import GIVEN_UP, Calls, run
from nmpsim.core.compiled.perform import IS_PLAIN
from nmpsim.core.compiled.plan import Plan, make_plan
from nmpsim.core.compiled.pure import register_pure_functions
from nmpsim.core.compiled.team import Team, compile_follow
from nmpsim.core.compiled.workplace import places_of
from nmpsim.core.engine import CourseLeftError, Reached, ShowInstructions
from nmpsim.core.state import Machine, Outcome
from nmpsim.core.stops import Stops, make_stops, no_stops
from nmpsim.kernels.jit import CACHE, is_cached, uncollected
from nmpsim.timing import Costs


class CompiledEngine:
    """The engine that users run."""

    name = "compiled"

    def __init__(self, threads: int = 1) -> None:
        register_pure_functions()
        self._code = Apart()
        self._team = Team(self._code, threads)
        self._courses = Courses()
        self._is_compiled = IS_PLAIN

    @property
    def compiling_seconds(self) -> float:
        """Seconds that runs have spent so far on compiling kernels, or on reading them."""
        return self._code.seconds

    def when_compiling(self, listener: Callable[[], None] | None) -> None:
        """Call ``listener`` before kernels are compiled that no process has kept."""
        self._code.when_compiling = listener

    def is_ready(self) -> bool:
        """False if the first run will have to compile the engine itself."""
        return is_cached(run)

    def is_complete(self) -> bool:
        """True if no program will have to wait for kernels to be compiled."""
        compiled: tuple[Callable[..., object], ...] = (run, follow, check_events, *APART.values())
        return all(map(is_cached, compiled))

    def compile_all(self) -> None:
        """Compile the kernels of all tensor instructions."""
        for number in APART:
            self._code.compile(number)
        compile_check()

    def run(
        self,
        machine: Machine,
        costs: Costs,
        turns: int,
        stop_at_layers: bool,
        stops: Stops | None = None,
    ) -> Outcome:
        """Run for at most ``turns`` turns; see :class:`~nmpsim.core.engine.Engine`."""
        asked = no_stops(machine.cores.size) if stops is None else stops
        self._compile_once(machine, costs)
        calls = self._calls(machine, make_plan(machine.cores.size, 0))
        outcome = self._loop(machine, costs, calls, turns, stop_at_layers, asked)
        assert outcome is not None  # only plans are given up
        return outcome

    def prove(self, machine: Machine, costs: Costs, show: ShowInstructions) -> bool:
        """Plan the course from where the machine is; see :class:`~nmpsim.core.engine.Engine`."""
        if IS_PLAIN or not self._courses.may_have(machine, costs):
            return False
        self._compile_once(machine, costs)
        self._code.announce(check_events)
        return self._plan(machine, costs, show) is not None

    def run_at_once(
        self, machine: Machine, costs: Costs, reached: Reached, strict: bool = False
    ) -> bool:
        """Run to the end where neither cycles nor the order of instructions depend on data."""
        if IS_PLAIN or not self._courses.may_have(machine, costs):
            return False
        self._compile_once(machine, costs)
        course = self._courses.find(machine) or self._plan(machine, costs)
        return course is not None and self._follow(machine, course, reached, strict)

    def _loop(
        self,
        machine: Machine,
        costs: Costs,
        calls: Calls,
        turns: int,
        stop_at_layers: bool,
        asked: Stops,
    ) -> Outcome | None:
        """The loop's outcome; None if it gave a plan up."""
        outcome = run(machine, costs, calls, turns, stop_at_layers, asked)
        if outcome != GIVEN_UP:
            return Outcome(outcome)
        failure, self._code.failure = self._code.failure, None
        if failure:
            raise failure
        return None

    def _plan(
        self, machine: Machine, costs: Costs, show: ShowInstructions | None = None
    ) -> Course | None:
        """Plan the course from where a machine is; None if there is none."""
        stops = make_stops(machine.cores.size, steps_per_turn=STEPS_PER_TURN)

        def loop(ahead: Machine, plan: Plan, turns: int) -> Outcome | None:
            calls = self._calls(ahead, plan)
            return self._loop(ahead, costs, calls, turns, False, stops)

        course = plan_course(machine, loop, show)
        if course is None or self._courses.find(machine) is None:
            self._courses.keep(course)
        return course

    def _follow(self, machine: Machine, course: Course, reached: Reached, strict: bool) -> bool:
        """Follow a course to its end; False, and nothing is done, if it was left the first time."""
        if course.is_tried:
            if not self._team.follow(machine, course, reached, strict):
                self._courses.keep(None)
                raise CourseLeftError
        else:
            memories = (machine.ram, machine.scratchpad, machine.layers, machine.channel_cut)
            before = [memory.copy() for memory in memories]
            if not self._team.follow(machine, course, reached, strict):
                for memory, known in zip(memories, before, strict=True):
                    memory[...] = known
                self._courses.keep(None)
                return False
            course.is_tried = True
        put_timing(machine, course.after)
        return True

    def _calls(self, machine: Machine, plan: Plan) -> Calls:
        bench = self._team.bench_for(machine)
        places = places_of(machine, machine.layers, machine.channel_cut, bench)
        return Calls(self._code.addresses, self._code.prepare, places, *plan)

    def _compile_once(self, machine: Machine, costs: Costs) -> None:
        """Compile the loop, or read it from the cache."""
        if self._is_compiled:
            return
        self._code.announce(run)
        if CACHE is not None and not is_cached(run):
            beside = Beside()
            beside.start()
            self._code.wait_beside = beside.wait
        calls = self._calls(machine, make_plan(machine.cores.size, 0))
        with uncollected():
            run(machine, costs, calls, 0, False, no_stops(machine.cores.size))
            if not is_cached(follow) or not is_cached(check_events):
                self._code.wait_beside()
            compile_follow()
        self._is_compiled = True
