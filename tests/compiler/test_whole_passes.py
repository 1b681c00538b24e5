"""Passes: layers whose parts share no memory are done without a meeting in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_whole_layers import DEEP, network
from whole_recordings import make_plan, needs_recordings, record

from nmpsim.core.compiled.epochs import Epochs
from nmpsim.core.compiled.kernel_arguments import LAYER
from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.planning import ThreadTask, make_passes, make_thread_task, pack_plan
from nmpsim.core.layer_kernels.proof import RecordedInstruction
from nmpsim.core.layer_kernels.tasks import replace_words
from nmpsim.isa.words import LOAD, RESCALE

A, B, C, ROW = 1000, 2000, 3000, 100
"""Tensors of rows."""


def rescale(layer: int, source: int, target: int, count: int = ROW) -> ThreadTask:
    """Return a part that computes a row of one tensor from a row of another."""
    words = {"input": source, "output": target, "count": count}
    d = replace_words([0] * len(RESCALE), RESCALE, words)
    return make_thread_task([RecordedInstruction(OP.nmp_rescale, layer, d)])


def rows(layer: int, source: int, target: int, count: int = 4) -> list[ThreadTask]:
    return [rescale(layer, source + ROW * i, target + ROW * i) for i in range(count)]


def layers(part: ThreadTask) -> list[int]:
    return [one.layer for one in part.instructions]


def test_independent_rows_run_in_one_pass() -> None:
    (only,) = make_passes([rows(0, A, B), rows(1, B, C), rows(2, C, C)])
    assert [layers(part) for part in only] == [[0, 1, 2]] * 4


def test_two_rows_feed_one_row() -> None:
    (only,) = make_passes(
        [rows(0, A, B, 8), [rescale(1, B + i, C + i, 200) for i in range(0, 800, 200)]]
    )
    assert [layers(part) for part in only] == [[0, 0, 1]] * 4


@pytest.mark.parametrize(
    "after",
    [
        [rescale(1, B + i, C + i, ROW + 1) for i in range(0, 400, ROW)],  # a byte of the next row
        [rescale(1, B + i, A + i + 1, ROW) for i in range(0, 400, ROW)],  # onto what others read
        [rescale(1, C + i, B + i + 1, ROW) for i in range(0, 400, ROW)],  # onto what others write
        rows(1, B, C, 3),
        [rescale(1, B, C, 200), *rows(1, B + 200, C + 200, 6)],
        [
            *rows(1, B, C, 3),
            make_thread_task([RecordedInstruction(OP.nmp_load, 1, [0] * len(LOAD))]),
        ],
    ],
    ids=["halo", "read", "write", "few", "uneven", "load"],
)
def test_dependent_parts_wait(after: list[ThreadTask]) -> None:
    before = rows(0, A, B, 3 if len(after) == 3 else 8 if len(after) == 7 else 4)
    assert [len(together) for together in make_passes([before, after])] == [len(before), len(after)]


class CountingList(list[tuple[int, int]]):
    """List of spans that counts how often one is looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        CountingList.looks += 1
        return super().__getitem__(at)


def test_the_search_for_dependencies_is_linear() -> None:
    """A layer of tensors with gaps has an instruction for each row."""
    count = 1000
    spans = [CountingList((2 * i + n, 2 * i + n + 1) for i in range(count)) for n in range(2)]
    far = CountingList([(1 << 40, 1 << 41)])
    parts = [ThreadTask([], [], one) for one in spans]
    parts.append(ThreadTask([], CountingList([*spans[0], *far]), far))
    CountingList.looks = 0
    assert not parts[0].conflicts_with(parts[1])
    assert not parts[1].conflicts_with(parts[2])
    assert parts[2].conflicts_with(parts[0])
    assert 0 < CountingList.looks < 20 * count


def test_random_parts_have_correct_passes() -> None:
    """Of a pass, no two parts share memory; each does its layers one after the other."""
    random, joined = np.random.default_rng(1), 0
    for _ in range(200):
        given = []
        for layer in range(4):
            order = random.permutation(5)
            places = random.permutation([A + 50 * random.integers(2), B, C])
            source, target = map(int, places[:2])
            given.append(
                [rescale(layer, source + 200 * int(order[i]), target + 200 * i) for i in range(5)]
            )
        made = list(make_passes(given))
        joined += len(made) < len(given)
        done = [one for together in made for part in together for one in part.instructions]
        expected = [one for layer in given for part in layer for one in part.instructions]
        assert sorted(map(id, done)) == sorted(map(id, expected))
        assert sorted({one.layer for one in done}) == [0, 1, 2, 3]
        for together in made:
            assert all(layers(part) == sorted(layers(part)) for part in together)
            if len({layer for part in together for layer in layers(part)}) > 1:
                touched = [list_bytes(part) for part in together]
                for i, (_, writes) in enumerate(touched):
                    others = [r | w for j, (r, w) in enumerate(touched) if j != i]
                    assert not writes & set().union(*others)
    assert joined > 20


def list_bytes(part: ThreadTask) -> tuple[set[int], set[int]]:
    """Return the bytes that a part reads and the bytes that it writes."""
    reads: set[int] = set()
    writes: set[int] = set()
    for one in part.instructions:
        count = one.words[RESCALE.count]
        reads |= set(range(one.words[RESCALE.input], one.words[RESCALE.input] + count))
        writes |= set(range(one.words[RESCALE.output], one.words[RESCALE.output] + count))
    return reads, writes


@needs_recordings
def test_a_sum_and_its_rescale_share_one_pass() -> None:
    recorded = record(network(), DEEP)
    plan = make_plan(recorded)
    assert len(list_epoch_layers(pack_plan(recorded.machine, plan))) == len(plan.steps) - 1
    separate = pack_plan(recorded.machine, plan, joins_layers=False)
    assert list_epoch_layers(separate) == [[step.layer] for step in plan.steps]


def list_epoch_layers(epochs: Epochs) -> list[list[int]]:
    """Return the layers of each epoch, all of which consist of layer kernels."""
    assert epochs.is_whole.all()
    return [
        sorted({int(epochs.items[begin + LAYER]) for begin, _, _ in epochs.parts[first:last]})
        for first, last in zip(epochs.firsts, epochs.firsts[1:], strict=False)
    ]
