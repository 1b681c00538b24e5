"""The record of work is the same however often the run is turned back."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import nmpsim
from nmpsim.bundle import Bundle
from nmpsim.core.state import WORK
from nmpsim.debugger import Debugger
from nmpsim.debugger.work_log import SPAN

STEPS = st.tuples(st.sampled_from(["layer", "tile", "tensor", "instruction"]), st.booleans())


def record_log(bundle: Bundle, inputs: dict[str, Any], steps: list[tuple[Any, bool]]) -> Any:
    debugger = Debugger(bundle, inputs)
    debugger.record_work()
    for unit, back in steps:
        debugger.step(unit, 3, back=back)
    debugger.run()
    return np.sort(debugger.get_work_log().get_spans())


@examples(12)
@given(steps=st.lists(STEPS, max_size=6))
def test_going_back_adds_nothing(
    steps: list[tuple[Any, bool]], digits: Bundle, seven: dict[str, Any]
) -> None:
    assert np.array_equal(record_log(digits, seven, steps), record_log(digits, seven, []))


def test_the_log_has_all_work_of_a_plain_run(digits: Bundle, seven: dict[str, Any]) -> None:
    found: list[Any] = []
    nmpsim.Device().run(digits, seven, work=found.append)
    assert found and all(work.dtype.names == WORK.names for work in found)
    straight = np.concatenate(found)
    expected = np.zeros(len(straight), SPAN)
    for name in SPAN.names or ():
        expected[name] = straight[name]
    assert np.array_equal(record_log(digits, seven, []), np.sort(expected))
