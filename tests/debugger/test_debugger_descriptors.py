"""A program may overwrite a descriptor as soon as it is issued: what it said then counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from small_sessions import HALT, ONLY_0, PUT, USE, WAIT_LOAD, WAIT_VECTOR, make_debugger, make_shell

from nmpsim.bundle import Bundle
from nmpsim.debugger import Debugger
from nmpsim.debugger.breakpoints import AccessCondition
from nmpsim.debugger.explanation import explain_element
from nmpsim.debugger.instructions import read_descriptor
from nmpsim.debugger.tracing import trace_layer
from nmpsim.isa.table import DESCRIPTORS

MADE = 0x2000_1000
"""Scratchpad address of a descriptor that the program makes."""
LOAD = DESCRIPTORS["load"]
SPM = 4 * [word.name for word in LOAD].index("spm")
COPY = f"""
copy: .descriptor load, dram=get, spm={MADE:#x}, run_bytes={LOAD.nbytes}, count_x=1, count_y=1
"""
BRING = " la t0, copy\n nmp.load t0\n"
ISSUE = f" li t0, {MADE:#x}\n nmp.load t0\n"
OVERWRITE = f" li t2, 0x20000400\n sw t2, {SPM}(t0)\n"
START = ONLY_0 + BRING + WAIT_LOAD + ISSUE + OVERWRITE
END = WAIT_VECTOR + PUT + " nmp.wait store, 0\nother:" + HALT


def test_a_race_with_a_descriptor_is_found() -> None:
    shell = make_shell(START + USE + END, COPY)
    shell.execute("until end")
    (found,) = shell.execute("hazards").data["hazards"]
    assert "no nmp.wait load between them" in found["what"]


def test_an_ordered_descriptor_has_no_hazard() -> None:
    shell = make_shell(START + WAIT_LOAD + USE + END, COPY)
    shell.execute("until end")
    assert "no hazards" in shell.execute("hazards").text


@pytest.mark.parametrize(("address", "is_met"), [(0x2000_0020, True), (0x2000_0420, False)])
def test_watchpoints_stop_at_descriptor_fetches(address: int, is_met: bool) -> None:
    debugger = make_debugger(START + WAIT_LOAD + USE + END, COPY)
    debugger.add_breakpoint(AccessCondition(address, address + 1, "write", 0), "there")
    stopped = debugger.run()
    assert (stopped.reason == "breakpoint") == is_met
    assert "nmp.load" in stopped.hits[0].text if is_met else not stopped.hits


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_a_shown_descriptor_equals_memory_at_the_fetch(
    digits: Bundle, seven: Mapping[str, Any], engine: str
) -> None:
    """Where nothing overwrites it."""
    debugger = Debugger(digits, seven, engine=engine)
    debugger.run_to_end()
    machine, known = debugger.machine, 0
    for layer in debugger.layers:
        for done in trace_layer(debugger, layer.index):
            name = done.instruction.descriptor
            if name is not None:
                assert done.words == read_descriptor(machine, done.core, name, done.rs1)
                known += 1
    assert known > 50


def test_a_fetch_is_an_access() -> None:
    debugger = make_debugger(START + WAIT_LOAD + USE + END, COPY)
    debugger.add_breakpoint(AccessCondition(MADE, MADE + 4, "read", 0), "there")
    assert "nmp.load at 0x80000220 reads descriptor" in debugger.run().hits[0].text


def test_why_finds_the_load_of_an_element() -> None:
    debugger = make_debugger(START + WAIT_LOAD + USE + END, COPY)
    debugger.run()
    found = explain_element(debugger, debugger.layers[0], (5,))
    assert [event.what for event in found.events] == ["load", "compute", "store"]
    assert found.terms[0].input == "from[37]"
