"""Time lines of units' work."""

from pathlib import Path

import numpy as np
import pytest
from corpus import compiled

import nmpsim
from nmpsim.core.state import WORK

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


def work(*entries):
    """Return a work log of entries (core, unit, layer, begin, end)."""
    noted = np.zeros(len(entries), WORK).view(np.recarray)
    for place, name in enumerate(("core", "unit", "layer", "begin", "end")):
        noted[name] = [entry[place] for entry in entries]
    return noted


def spans(recorder, layers=9):
    timeline = recorder.timeline(layers)
    return timeline.resolution, [
        (s.core, s.unit, s.layer, s.begin, s.end, s.busy) for s in timeline.spans
    ]


def test_work_is_recorded_in_order():
    recorder = nmpsim.TimelineRecorder()
    recorder(work((1, 2, 0, 50, 60), (0, 0, 0, 10, 20)))
    recorder(work((0, 0, 9, 25, 30)))
    assert spans(recorder) == (
        0,
        [
            (0, "load", 0, 10, 20, 10),
            (0, "load", None, 25, 30, 5),
            (1, "mac", 0, 50, 60, 10),
        ],
    )


def test_grants_belong_to_their_transfers():
    recorder = nmpsim.TimelineRecorder()
    noted = work((0, 0, 0, 10, 20), (0, 0, 0, 12, 14))
    noted.is_grant[1] = 1
    recorder(noted)
    assert spans(recorder) == (0, [(0, "load", 0, 10, 20, 10)])


def test_many_spans_of_a_layer_are_joined():
    recorder = nmpsim.TimelineRecorder(most=4)
    begins = [0, 11, 22, 100, 111, 200]
    recorder(work(*((0, 3, int(b >= 200), b, b + 10) for b in begins)))
    assert spans(recorder) == (
        1,
        [
            (0, "vector", 0, 0, 32, 30),
            (0, "vector", 0, 100, 121, 20),
            (0, "vector", 1, 200, 210, 10),
        ],
    )


def test_layers_and_units_are_never_joined():
    recorder = nmpsim.TimelineRecorder(most=1)
    recorder(work((0, 0, 0, 0, 5), (0, 2, 0, 0, 5), (0, 2, 1, 9, 12), (1, 2, 1, 0, 3)))
    resolution, found = spans(recorder)
    assert len(found) == 4
    assert resolution >= 12


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_busy_cycles_equal_the_report(engine):
    bundle = compiled(DIGITS / "digits.lir.txt")
    recorder = nmpsim.TimelineRecorder()
    image = np.load(DIGITS / "images" / "7.npy")
    report = nmpsim.Device(engine=engine).run(bundle, {"data": image}, work=recorder)
    timeline = recorder.timeline(len(report.layers))
    assert max(span.end for span in timeline.spans) <= report.cycles
    for layer in report.layers:
        for unit in ("mac", "vector"):
            mine = [s.busy for s in timeline.spans if (s.unit, s.layer) == (unit, layer.index)]
            assert sum(mine) == layer.busy[unit], (layer.name, unit)
