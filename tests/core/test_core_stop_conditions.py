"""Going one instruction at a time, stopping where asked, writing down: nothing changes."""

from __future__ import annotations

import numpy as np
from core_machines import ENGINES, Program, assert_same, engine, from_text, run_both
from hypothesis import given
from hypothesis import strategies as st
from test_core_random_cores import programs
from tiers import examples

from nmpsim.core.state import NEVER, Machine, Outcome
from nmpsim.core.stop_conditions import (
    ANY_INSTRUCTION,
    StopConditions,
    StopState,
    TraceColumn,
    make_stop_conditions,
)
from nmpsim.isa.table import INSTRUCTIONS, Unit
from nmpsim.timing import get_costs

TRACE_ROWS = 4096
WENT_ON = (Outcome.PAUSED, Outcome.LAYER_END, Outcome.STOPPED)


def finish(
    name: str, program: Program, turns: int, stops: StopConditions
) -> tuple[Outcome, Machine]:
    """Run a program to its end, resuming it each time the engine returns."""
    machine, costs = program.machine(), get_costs(program.config)
    outcome = Outcome.PAUSED
    while outcome in WENT_ON:
        outcome = engine(name).run(machine, costs, turns, True, stops)
    return outcome, machine


@given(
    programs(),
    st.integers(1, 40),
    st.sampled_from([0, ANY_INSTRUCTION, 1 << Unit.MAC, 0b0011]),
    st.lists(st.integers(0, 2), unique=True),
)
@examples(60)
def test_single_steps_change_nothing(
    program: Program, turns: int, after: int, of_cores: list[int]
) -> None:
    straight = run_both(program, expect=None)
    traces = []
    for name in ENGINES:
        stops = make_stop_conditions(3, after=after, of_cores=of_cores, trace_rows=TRACE_ROWS)
        _, machine = finish(name, program, turns, stops)
        assert_same(machine, straight)
        traces.append(stops.trace[: stops.noted[StopState.ROWS]])
    np.testing.assert_array_equal(traces[0], traces[1])


@given(programs(), st.integers(0, 3000))
@examples(30)
def test_no_step_begins_at_or_after_the_stop_cycle(program: Program, cycle: int) -> None:
    costs, states = get_costs(program.config), []
    for name in ENGINES:
        machine, stops = program.machine(), make_stop_conditions(3, until_cycle=cycle)
        outcome = engine(name).run(machine, costs, 1 << 40, False, stops)
        if outcome == Outcome.STOPPED:
            begins = [*machine.cores.clock[machine.cores.status == 0], *machine.cores.request.flat]
            assert min(begins) >= cycle
        states.append(machine)
        later = stops._replace(until_cycle=NEVER)
        engine(name).run(machine, costs, 1 << 40, False, later)
    assert_same(*states)
    assert_same(states[0], run_both(program, expect=None))


LOOP = """
_start: li t0, 3
again: addi t0, t0, -1
 bnez t0, again
 nmp.halt
"""


def test_an_address_stops_each_time_it_is_reached() -> None:
    program = from_text(LOOP)
    again = program.entry + 4
    for name in ENGINES:
        machine, costs = program.machine(), get_costs(program.config)
        cores = machine.cores.size
        stops, seen = make_stop_conditions(cores, addresses=[(0, again)]), []
        while engine(name).run(machine, costs, 1 << 40, False, stops) == Outcome.STOPPED:
            core = int(stops.noted[StopState.CORE])
            assert (core, machine.cores[core].pc) == (0, again)
            seen.append(int(machine.cores[0].registers[5]))
            stops.passed[core] = machine.cores[core].retired
        assert seen == [3, 2, 1]
        assert (machine.cores.registers[:, 5] == 0).all()


def test_the_trace_lists_instructions_with_cycles() -> None:
    text = """
    put: .descriptor fill, output=0x20000000, count=160, value=1
    _start: la t0, put
     nmp.fill t0
     nmp.wait vector, 0
     nmp.halt
    """
    program = from_text(text)
    for name in ENGINES:
        stops = make_stop_conditions(program.config.cores_count, trace_rows=TRACE_ROWS)
        finish(name, program, 1 << 40, stops)
        rows = stops.trace[: stops.noted[StopState.ROWS]]
        of_core = rows[rows[:, TraceColumn.CORE] == 0]
        names = [INSTRUCTIONS[number].mnemonic for number in of_core[:, TraceColumn.NUMBER]]
        assert names == ["nmp.fill", "nmp.wait", "nmp.halt"]
        fill, wait, _ = of_core
        assert fill[TraceColumn.JOB] == 0
        assert fill[TraceColumn.FINISHED] > fill[TraceColumn.END]
        assert wait[TraceColumn.END] == fill[TraceColumn.FINISHED] + 1
        assert wait[TraceColumn.BEGIN] == fill[TraceColumn.END]
