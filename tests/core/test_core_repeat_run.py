"""Runs that repeat another one give what a device gives that has run nothing before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import Bundle
from nmpsim.core.batch import BatchResult
from nmpsim.core.compiled.issue import IS_JIT_DISABLED
from nmpsim.core.counters import get_saturation_totals
from nmpsim.core.device import RUNS_BEFORE_PROOF
from nmpsim.core.memory_demand import MAX_PROOF_BYTES
from nmpsim.core.repeat_run import RepeatedRun
from nmpsim.core.run import RunTimeoutError
from nmpsim.core.run_modes import ModeEvent, RestartError
from nmpsim.core.state import Machine
from nmpsim.diagnostics import fail
from nmpsim.report.data import RunReport

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


@pytest.fixture(scope="module")
def digits() -> Bundle:
    files = DIGITS / "digits.lir.txt", DIGITS / "digits.npz"
    return nmpsim.compile(*files, tiling="layer").bundle


DIVERGED = RestartError(ModeEvent.DIVERGED)


def image(number: int) -> dict[str, np.ndarray]:
    return {"data": np.load(DIGITS / "images" / f"{number}.npy")}


def comparable_fields(report: RunReport) -> Any:
    """Return a report and its output bytes without the host's seconds."""
    layers = tuple(report.layers)
    return attrs.evolve(report, host_seconds=0, layers=layers, outputs={}), [
        values.tobytes() for values in report.outputs.values()
    ]


def copy_memory(machine: Machine) -> list[bytes]:
    return [np.asarray(array).tobytes() for array in machine]


@pytest.fixture
def repeated_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that receives one entry for each repeated run."""
    seen: list[int] = []
    report = RepeatedRun.run

    def counted(*given: Any) -> RunReport:
        seen.append(1)
        return report(*given)

    monkeypatch.setattr(RepeatedRun, "run", counted)
    return seen


def test_a_repeated_run_equals_a_single_run(digits: Bundle, repeated_runs: list[int]) -> None:
    device = nmpsim.Device(threads=1)
    for number in (0, 7, 3, 7, 8):
        alone = nmpsim.Device(threads=1)
        expected = alone.run(digits, image(number))
        found = device.run(digits, image(number))
        assert repr(comparable_fields(found)) == repr(comparable_fields(expected))
        assert get_saturation_totals(found.layers) == [
            (o.elements, o.saturated) for o in expected.layers
        ]
        if number in (3, 8):  # a replay of tiles, after which the next run repeats again
            assert copy_memory(device.machine_after(digits)) == copy_memory(
                alone.machine_after(digits)
            )
    assert len(repeated_runs) >= 4


OTHER_RUNS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"save_layers": True},
    {},
    {"strict": False},
    {"limits": nmpsim.Limits(max_cycles=1000)},
    {},
    {"limits": nmpsim.Limits(timeout=1e6)},
    {"limits": nmpsim.Limits(timeout=1e6)},
    {"repeat": 2},
    {},
    {},
)


def test_other_runs_in_between_change_nothing(digits: Bundle, repeated_runs: list[int]) -> None:
    device = nmpsim.Device(threads=1, whole_layers=False)
    for number, options in enumerate(OTHER_RUNS):
        given = image(number % 10)
        alone = nmpsim.Device(threads=1, whole_layers=False)
        expected = alone.run(digits, given, **options)
        assert repr(comparable_fields(device.run(digits, given, **options))) == repr(
            comparable_fields(expected)
        ), options
        assert copy_memory(device.machine_after(digits)) == copy_memory(alone.machine_after(digits))
    assert len(repeated_runs) == 3


def test_work_listeners_receive_the_same_work(digits: Bundle, repeated_runs: list[int]) -> None:
    device = nmpsim.Device(threads=1)
    heard: list[list[Any]] = []
    for number in range(3):
        heard.append([])
        device.run(digits, image(number), progress=heard[-1].append)
    layers = [[one for one in each if one.kind == "layer"] for each in heard]
    assert layers[0] == layers[1] == layers[2]
    assert [one.done for one in layers[0]] == list(range(1, len(digits.metadata.layers) + 1))
    assert len(repeated_runs) == 2


@pytest.mark.parametrize("error", [RunTimeoutError(), fail("HOST001", "it is no number")])
def test_an_unfinished_run_starts_again_from_rest(
    digits: Bundle, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(self: RepeatedRun, *_: object) -> None:
        self._machine.ram[...] = 7
        self._machine.layers.worst[...] = 9
        raise error

    device, alone = nmpsim.Device(threads=1), nmpsim.Device(threads=1)
    device.run(digits, image(3))
    monkeypatch.setattr(RepeatedRun, "_compute", broken)
    assert repr(comparable_fields(device.run(digits, image(5)))) == repr(
        comparable_fields(alone.run(digits, image(5)))
    )
    assert copy_memory(device.machine_after(digits)) == copy_memory(alone.machine_after(digits))


def summarize_runs(reports: Sequence[RunReport]) -> Any:
    """Return outputs, cycles and total saturation counts of several runs."""
    counted = np.array([get_saturation_totals(report.layers) for report in reports]).sum(axis=0)
    outputs = [[one.tobytes() for one in report.outputs.values()] for report in reports]
    return outputs, [report.cycles for report in reports], counted.tolist()


def list_parts(answers: BatchResult) -> Any:
    outputs = [[one.values.tobytes() for one in run.outputs] for run in answers.runs]
    assert all(run.trap is None for run in answers.runs)
    return outputs, [run.cycles for run in answers.runs], np.array(answers.layers).tolist()


@pytest.mark.parametrize("whole_layers", [True, False])
def test_a_batch_equals_single_runs(digits: Bundle, whole_layers: bool) -> None:
    device, alone = (nmpsim.Device(threads=1, whole_layers=whole_layers) for _ in range(2))
    images = [image(number) for number in (3, 7, 0, 3, 9)]
    expected = summarize_runs([alone.run(digits, one) for one in images])
    for _ in range(2):
        assert list_parts(device.run_batch(digits, images)) == expected
        assert copy_memory(device.machine_after(digits)) == copy_memory(alone.machine_after(digits))
        assert repr(comparable_fields(device.run(digits, image(5)))) == repr(
            comparable_fields(alone.run(digits, image(5)))
        )
        alone.run(digits, images[-1])
    assert device.run_batch(digits, []) == BatchResult()


@pytest.mark.parametrize("error", [RunTimeoutError(), fail("HOST001", "it is no number"), DIVERGED])
def test_an_unfinished_batch_is_repeated_run_by_run(
    digits: Bundle, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    compute = RepeatedRun._compute

    def broken(self: RepeatedRun, *given: Any) -> Any:
        if tried:
            return compute(self, *given)
        self._machine.ram[...] = 7
        self._machine.layers.worst[...] = 9
        tried.append(1)
        raise error

    tried: list[int] = []
    device, alone = nmpsim.Device(threads=1), nmpsim.Device(threads=1)
    images = [image(number) for number in (3, 7, 0)]
    expected = summarize_runs([alone.run(digits, one) for one in images])
    monkeypatch.setattr(RepeatedRun, "_compute", broken)
    assert list_parts(device.run_batch(digits, images)) == expected
    assert len(tried) == 1
    limits = nmpsim.Limits(max_cycles=1000)
    ended = device.run_batch(digits, images[:2], limits=limits)
    assert [run.trap and run.trap.kind for run in ended.runs] == ["cycle_limit"] * 2
    assert ended.layers == ()


def test_a_run_stopped_by_data_is_not_repeated(digits: Bundle) -> None:
    """Its program runs again from rest, with events."""

    def diverged(*_: object) -> bool:
        return False

    device, alone = nmpsim.Device(threads=1), nmpsim.Device(threads=1)
    device.run(digits, image(3))
    device._engine._workers.replay = diverged  # type: ignore[attr-defined]
    for number in (5, 6):
        found, expected = (one.run(digits, image(number)) for one in (device, alone))
        assert [o.tobytes() for o in found.outputs.values()] == [
            o.tobytes() for o in expected.outputs.values()
        ]
        assert tuple(found.layers) == tuple(expected.layers)


@pytest.mark.skipif(IS_JIT_DISABLED, reason="nothing is compiled, so nothing is recorded")
@pytest.mark.parametrize("room", [MAX_PROOF_BYTES, 0])
def test_whole_layers_are_proved_late_or_never(
    digits: Bundle, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """A run of whole layers leaves out what scratchpads hold."""
    monkeypatch.setattr("nmpsim.core.memory_demand.MAX_PROOF_BYTES", room)
    device = nmpsim.Device(engine="compiled", threads=1)
    for number in range(RUNS_BEFORE_PROOF + 2):
        device.run(digits, image(number))
        is_whole = room > 0 and number >= RUNS_BEFORE_PROOF
        assert (device._loaded.inputs is None) == (not is_whole)  # type: ignore[union-attr]


@pytest.mark.skipif(IS_JIT_DISABLED, reason="runs are not recorded")
@pytest.mark.parametrize("tiling", ["layer", "chain"])
def test_runs_with_layers_repeat_one_layer_after_the_other(
    tiling: str, repeated_runs: list[int]
) -> None:
    program = nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz", tiling=tiling).bundle
    images = [image(number) for number in range(4)]
    found = list(nmpsim.Device(threads=1).run_layers(program, images))
    assert len(repeated_runs) == len(images)
    for given, report in zip(images, found, strict=True):
        expected = nmpsim.Device(whole_layers=False).run(program, given, save_layers=True)
        assert report.layer_outputs.keys() == expected.layer_outputs.keys()
        for name, values in expected.layer_outputs.items():
            np.testing.assert_array_equal(report.layer_outputs[name], values, name)
