"""Counters of a trace: exact means, however long a run is."""

import numpy as np
import pytest

from nmpsim.analysis.trace.events import WINDOWS, ActivityCounters
from nmpsim.core.state import WORK
from nmpsim.isa.table import Unit


def work(*entries):
    """Return a work log of entries (unit, is_grant, begin, end)."""
    made = np.zeros(len(entries), WORK)
    for row, (unit, is_grant, begin, end) in zip(made, entries, strict=True):
        row["unit"], row["is_grant"], row["begin"], row["end"] = unit, is_grant, begin, end
    return made


def test_windows_have_exact_means():
    counters = ActivityCounters()
    counters(work((Unit.LOAD, 0, 0, 24), (Unit.LOAD, 0, 8, 16), (Unit.LOAD, 1, 4, 8)))
    counters(work())
    counters(work((Unit.MAC, 0, 20, 32), (Unit.STORE, 0, 33, 36)))
    means = list(counters.compute_mean_activity(36))
    assert [begin for begin, _ in means] == [0, 16, 32]
    assert [one["load"] for _, one in means] == [1.5, 0.5, 0]
    assert [one["busy"] for _, one in means] == [0.25, 0, 0]
    assert [one["MAC arrays"] for _, one in means] == [0, 0.75, 0]
    assert means[2][1]["store"] == 0.75  # of the four cycles that are left


@pytest.mark.parametrize("cycles", [5_000, 1_000_003, 70_000_000])
def test_a_long_run_equals_a_count_cycle_by_cycle(cycles):
    random = np.random.default_rng(cycles)
    begins = np.sort(random.integers(0, cycles - 1, 400))
    ends = np.minimum(begins + random.integers(1, cycles // 9, 400), cycles)
    counters = ActivityCounters()
    for part in np.array_split(np.arange(400), 7):
        counters(work(*((Unit.VECTOR, 0, int(begins[n]), int(ends[n])) for n in part)))
    means = list(counters.compute_mean_activity(cycles))
    assert len(means) <= WINDOWS
    edges = np.array([begin for begin, _ in means] + [cycles])
    overlaps = np.clip(ends[:, None], edges[:-1], edges[1:]) - np.clip(
        begins[:, None], edges[:-1], edges[1:]
    )
    given = [one["vector units"] for _, one in means]
    assert given == pytest.approx(overlaps.sum(axis=0) / np.diff(edges), abs=1e-3)
