"""Forwards and backwards: every way to a position leads to the same state."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import compiled
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import nmpsim
from nmpsim.bundle import Bundle
from nmpsim.debugger import Debugger
from nmpsim.debugger.breakpoints import (
    AddressCondition,
    CycleCondition,
    LayerCondition,
    StallCondition,
)
from nmpsim.debugger.snapshots import list_pages, list_small_arrays
from nmpsim.report.json import to_json

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


@cache
def program() -> Bundle:
    return compiled(DIGITS / "digits.lir.txt")


@cache
def image() -> Any:
    return np.load(DIGITS / "images" / "7.npy")


def start_debugger(engine: str = "compiled", budget_mib: int = 512) -> Debugger:
    return Debugger(program(), {"data": image()}, engine=engine, budget_mib=budget_mib)


def state(debugger: Debugger) -> list[bytes]:
    machine = debugger.machine
    return [array.tobytes() for array in (*list_pages(machine), *list_small_arrays(machine))]


NOT_KNOWN = ("host_seconds", "contract")


def report(debugger: Debugger) -> Any:
    return remove_differing_fields(to_json(debugger.report()))


def remove_differing_fields(told: Any) -> Any:
    """Return a report without the host's time and the contract, which debuggers do not check."""
    return {key: value for key, value in told.items() if key not in NOT_KNOWN}


@cache
def straight() -> tuple[Any, list[bytes]]:
    device = nmpsim.Device(nmpsim.get_device(program()))
    told = remove_differing_fields(to_json(device.run(program(), {"data": image()})))
    debugger = start_debugger()
    debugger.run()
    assert report(debugger) == told
    return told, state(debugger)


MOVES = st.tuples(
    st.sampled_from(["layer", "tile", "tensor", "instruction"]),
    st.integers(1, 7),
    st.sampled_from([None, None, 0, 3, 31]),
    st.booleans(),
)


@given(st.lists(MOVES, max_size=8), st.sampled_from([0, 512]))
@examples(25)
def test_any_sequence_of_moves_ends_like_a_straight_run(moves: list[Any], budget: int) -> None:
    debugger = start_debugger(budget_mib=budget)
    for unit, count, core, back in moves:
        debugger.step(unit, count, core=core, back=back)
    stopped = debugger.run()
    assert stopped.reason == "end"
    assert (report(debugger), state(debugger)) == straight()


@given(st.lists(st.integers(0, 12_000), min_size=1, max_size=6))
@examples(25)
def test_a_position_determines_the_state(positions: list[int]) -> None:
    wanderer, direct = start_debugger(), start_debugger()
    for position in positions:
        wanderer.go_to(position)
    direct.go_to(positions[-1])
    assert wanderer.position == direct.position
    assert state(wanderer) == state(direct)


@pytest.mark.parametrize("unit", ["layer", "tile", "tensor", "instruction"])
def test_a_step_back_undoes_a_step(debugger: Debugger, unit: Any) -> None:
    debugger.step("layer", 2)
    for _ in range(3):
        debugger.step(unit, core=None)
    here, before = debugger.position, state(debugger)
    debugger.step(unit)
    assert debugger.position > here
    stopped = debugger.step(unit, back=True)
    assert stopped.reason == "step"
    assert (debugger.position, state(debugger)) == (here, before)


def test_both_engines_stop_at_the_same_places() -> None:
    places = []
    for engine in nmpsim.core.engine_selection.ENGINES:  # type: ignore[attr-defined]
        debugger = start_debugger(engine)
        seen = [debugger.step("tensor", 5) for _ in range(4)]
        seen += [debugger.step("instruction", 3, core=2), debugger.step("layer")]
        places.append([one.location for one in seen])
    assert places[0] == places[1]


def test_breakpoints_stop_a_run_and_a_run_back(debugger: Debugger) -> None:
    debugger.add_breakpoint(LayerCondition(3), "layer 3")
    debugger.add_breakpoint(CycleCondition(1000), "cycle 1000")
    stops = [debugger.run() for _ in range(3)]
    found = [(one.reason, [hit.breakpoint for hit in one.hits]) for one in stops]
    assert sorted(found[:2]) == [("breakpoint", [1]), ("breakpoint", [2])]
    assert found[2] == ("end", [])
    back = [debugger.run(back=True) for _ in range(3)]
    assert [one.location for one in back[:2]] == [one.location for one in stops[1::-1]]
    assert back[2].reason == "begin"


def test_a_breakpoint_at_an_address_can_name_a_core(debugger: Debugger) -> None:
    debugger.step("layer")
    debugger.step("instruction", 10)
    pc = int(debugger.machine.cores[5].pc)
    debugger.restart()
    debugger.add_breakpoint(AddressCondition(pc, 5), "there")
    stopped = debugger.run()
    assert stopped.reason == "breakpoint"
    assert (stopped.location.core, stopped.location.pc) == (5, pc)
    assert debugger.run().reason == "end", "each instruction of the program is done once"


def test_a_run_can_be_interrupted(debugger: Debugger) -> None:
    debugger.is_interrupted = lambda: True
    assert debugger.run().reason == "interrupted"
    debugger.is_interrupted = lambda: False
    assert debugger.run().reason == "end"
    assert (report(debugger), state(debugger)) == straight()


def test_snapshots_keep_their_budget(debugger: Debugger) -> None:
    small = start_debugger(budget_mib=5)
    small.run()
    debugger.run()
    assert small.snapshots.nbytes < debugger.snapshots.nbytes
    assert len(small.snapshots) >= 2


@cache
def find_layer_ends() -> list[tuple[int, int]]:
    """Return the cycle and the next address of core 0 at each snapshot."""
    debugger, found = start_debugger(), list[tuple[int, int]]()
    while debugger.step("layer").reason == "step":
        core = debugger.machine.cores[0]
        found.append((debugger.cycle, int(core.pc)))
    return found


@given(st.lists(st.integers(1, 2400), max_size=3), st.sampled_from([0, 512]), st.data())
@examples(8)
def test_a_run_back_stops_where_the_run_did(
    cycles: list[int], budget: int, data: st.DataObject
) -> None:
    at_snapshots = data.draw(st.lists(st.sampled_from(find_layer_ends()), min_size=1, max_size=3))
    debugger = start_debugger(budget_mib=budget)
    for cycle in {*cycles, *(cycle for cycle, _ in at_snapshots)}:
        debugger.add_breakpoint(CycleCondition(cycle), f"cycle {cycle}")
    for address in {pc for _, pc in at_snapshots if pc}:
        debugger.add_breakpoint(AddressCondition(address, 0), f"address {address:#x}")
    forth = []
    while (stopped := debugger.run()).reason == "breakpoint":
        forth.append((stopped.location.position, {hit.breakpoint for hit in stopped.hits}))
    back = []
    while (stopped := debugger.run(back=True)).reason == "breakpoint":
        back.append((stopped.location.position, {hit.breakpoint for hit in stopped.hits}))
    assert back == forth[::-1]


def test_a_condition_is_evaluated_at_the_stop(debugger: Debugger) -> None:
    places = []
    debugger.add_breakpoint(StallCondition(20), "all")
    while debugger.run().reason == "breakpoint":
        places.append(debugger.position)
    debugger.delete_breakpoint(1)
    third = places[len(places) // 3 :: 3]
    asked = []

    def holds() -> bool:
        asked.append(debugger.position)
        return debugger.position in third

    debugger.restart()
    debugger.add_breakpoint(StallCondition(20), "some", holds)
    met = []
    while debugger.run().reason == "breakpoint":
        met.append(debugger.position)
    assert met == third
    assert sorted(set(asked)) == places
    back = []
    while debugger.run(back=True).reason == "breakpoint":
        back.append(debugger.position)
    assert back == third[::-1]
    assert debugger.run().reason == "breakpoint"
    debugger.delete_breakpoint(2)
    assert debugger.run().reason == "end"
    assert (report(debugger), state(debugger)) == straight()


@given(st.sampled_from(["tile", "tensor", "instruction"]), st.integers(1, 5), st.data())
@examples(8)
def test_false_conditions_change_no_step(unit: Any, count: int, data: st.DataObject) -> None:
    debugger, other = start_debugger(), start_debugger()
    layers = data.draw(st.integers(1, 4))
    for one in (debugger, other):
        one.step("layer", layers)
    pcs = {int(core.pc) for core in debugger.machine.cores if core.pc}
    for pc in sorted(pcs)[:6]:
        for address in (pc, pc + 4, pc + 8):
            debugger.add_breakpoint(AddressCondition(address), "never", lambda: False)
    cycle = debugger.cycle
    for later in range(1, 200, 13):
        debugger.add_breakpoint(CycleCondition(cycle + later), "never", lambda: False)
    for _ in range(4):
        assert debugger.step(unit, count).location == other.step(unit, count).location
    assert (
        debugger.run_until_cycle(cycle + 300).location
        == other.run_until_cycle(cycle + 300).location
    )
    assert debugger.run().location == other.run().location
