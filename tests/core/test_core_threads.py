"""Threads share the work of a run; nothing that can be seen depends on their number."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_machines import (
    HALT,
    IMAGE_BASE,
    RAM_BASE,
    SPM,
    Program,
    assert_same,
    descriptor_bytes,
    device,
    load_address,
    make_threaded_engine,
    record_and_replay,
    run_both,
    words,
)

import nmpsim
from nmpsim.cli.environment import get_numba_settings
from nmpsim.core.compiled import replay
from nmpsim.core.compiled.engine import CompiledEngine
from nmpsim.core.compiled.issue import IS_JIT_DISABLED
from nmpsim.core.state import Machine, Outcome
from nmpsim.timing import get_costs

CORES = 4
DIGITS = Path(nmpsim.__file__).parents[1] / "programs" / "digits"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("digits") / "net.bin"
    nmpsim.save(nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz"), file)
    return file


def seven() -> dict[str, Any]:
    return {"data": np.load(DIGITS / "images" / "7.npy")}


def machine_after(digits: Path, threads: int) -> tuple[Machine, nmpsim.RunReport]:
    bundle = nmpsim.load(digits)
    tested = nmpsim.Device(nmpsim.get_device(bundle), threads=threads)
    tested._engine = make_threaded_engine(threads)
    for _ in range(2):
        report = tested.run(bundle, seven())
    return tested.machine_after(bundle), report


@pytest.mark.parametrize("threads", [2, 3, 64])
def test_reports_do_not_depend_on_threads(digits: Path, threads: int) -> None:
    machine, report = machine_after(digits, 1)
    other, other_report = machine_after(digits, threads)
    assert_same(machine, other)
    assert [layer.saturation for layer in report.layers] == [
        layer.saturation for layer in other_report.layers
    ]
    assert report.cycles == other_report.cycles
    for key, values in report.outputs.items():
        np.testing.assert_array_equal(values, other_report.outputs[key])


def draw_transfer(rng: np.random.Generator) -> Mapping[str, int]:
    """Draw a transfer in a small part of DRAM: contiguous, or some channels of all pixels."""
    channels = int(rng.choice([24, 32]))
    run = int(rng.choice([8, 16, channels]))
    columns, rows = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    return {
        "layer": int(rng.integers(0, 3)),
        "dram": RAM_BASE + int(rng.integers(0, 12)) * 8,
        "spm": SPM + int(rng.integers(0, 8)) * 16,
        "run_bytes": run,
        "count_x": columns,
        "count_y": rows,
        "dram_stride_x": channels,
        "dram_stride_y": channels * int(rng.choice([3, 4])),
        "spm_stride_x": run,
        "spm_stride_y": run * columns,
    }


def core_program(rng: np.random.Generator, core: int) -> tuple[list[Any], list[bytes]]:
    """Draw the code of a core and the descriptors that the code uses."""
    code: list[Any] = []
    records: list[bytes] = []
    for _ in range(int(rng.integers(4, 12))):
        kind = str(rng.choice(["nmp.load", "nmp.store", "nmp.fill", "nmp.rescale", "slow"]))
        if kind == "slow":
            code += [("div", {"rd": 6, "rs1": 7, "rs2": 7})] * int(rng.integers(1, 9))
            continue
        values: Mapping[str, int] = draw_transfer(rng)
        if kind == "nmp.fill":
            start = SPM + int(rng.integers(0, 99))
            values = {"output": start, "count": 40, "value": int(rng.integers(-128, 128))}
        if kind == "nmp.rescale":
            values = {
                "layer": int(rng.integers(0, 3)),
                "input": SPM,
                "output": SPM,
                "count": 90,
                "in_low": -128,
                "in_high": 127,
                "out_mul": int(rng.integers(1, 5)),
                "clip_low": -20,
                "clip_high": 20,
            }
        code.append((kind, len(records)))
        records.append(descriptor_bytes(kind.removeprefix("nmp."), values))
    return code, records


def make_racing_program(seed: int) -> Program:
    """Build a program whose cores access the same DRAM without synchronization."""
    rng = np.random.default_rng(seed)
    cores = [core_program(rng, core) for core in range(CORES)]
    table = b""
    texts = []
    for code, records in cores:
        at = IMAGE_BASE + len(table) + np.cumsum([0, *map(len, records)])
        table += b"".join(records)
        text: list[Any] = []
        for kind, detail in code:
            if isinstance(detail, int):
                text += [*load_address(5, int(at[detail])), (kind, {"rs1": 5})]
            else:
                text.append((kind, detail))
        texts.append(words(*text, HALT))
    start: list[Any] = [("csrrs", {"rd": 10, "csr": 0xF14, "rs1": 0})]
    for core in range(CORES):
        target = 4 * (1 + 3 * CORES) + sum(map(len, texts[:core]))
        start += [
            ("addi", {"rd": 11, "rs1": 0, "imm": core}),
            ("bne", {"rs1": 10, "rs2": 11, "offset": 8}),
            ("jal", {"rd": 0, "offset": target - 4 * (len(start) + 2)}),
        ]
    return Program(
        image=table + words(*start) + b"".join(texts),
        entry=IMAGE_BASE + len(table),
        config=device(CORES),
        layer_channels=(4, 5),
        ram_bytes=1 << 12,
        ram=rng.integers(0, 256, 1 << 12, np.uint8).tobytes(),
    )


def test_racing_cores_give_the_same_result() -> None:
    for seed in range(120):
        run_both(make_racing_program(seed))


def test_pieces_of_a_run_give_the_same_result() -> None:
    program = make_racing_program(7)
    whole = run_both(program)
    machine, engine = program.machine(), make_threaded_engine(2)
    outcome = Outcome.PAUSED
    while outcome == Outcome.PAUSED:
        outcome = engine.run(machine, get_costs(program.config), 3, False)
    assert_same(whole, machine)


@pytest.mark.skipif(IS_JIT_DISABLED, reason="nothing is compiled")
def test_workers_start_for_long_runs() -> None:
    program = make_racing_program(7)
    engine = CompiledEngine(threads=2)
    for patience, expected in ((3600.0, 0), (0.0, 1)):
        engine._workers.min_seconds = patience
        assert record_and_replay(engine, program.machine(), get_costs(program.config))
        assert len(engine._workers._workers) == expected


class InterruptError(Exception):
    """Exception in place of ``KeyboardInterrupt``, which would end the tests."""


@pytest.mark.skipif(IS_JIT_DISABLED, reason="nothing is compiled")
def test_a_run_that_is_interrupted_leaves_no_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What workers counted for it is not added to the next run's."""

    def interrupt(*_: object) -> None:
        engine._workers._counters[0].layers.elements += 1
        raise InterruptError

    program, engine = make_racing_program(7), make_threaded_engine(2)
    costs, known = get_costs(program.config), run_both(program)
    for _ in range(2):
        assert record_and_replay(engine, program.machine(), costs)
    with monkeypatch.context() as patched, pytest.raises(InterruptError):
        patched.setattr(replay, "replay_epochs", interrupt)
        record_and_replay(engine, program.machine(), costs)
    machine = program.machine()
    assert record_and_replay(engine, machine, costs)
    assert_same(known, machine)
    assert not engine._workers._counters[0].layers.elements.any()


@pytest.mark.skipif(IS_JIT_DISABLED, reason="nothing is compiled")
def test_workers_of_an_interrupted_run_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise InterruptError

    program, engine = make_racing_program(7), make_threaded_engine(2)
    costs = get_costs(program.config)
    for _ in range(2):
        assert record_and_replay(engine, program.machine(), costs)
    before = threading.active_count()
    monkeypatch.setattr(engine._workers._workers[0], "begin", interrupt)
    with pytest.raises(InterruptError):
        record_and_replay(engine, program.machine(), costs)
    assert record_and_replay(engine, program.machine(), costs)
    deadline = time.monotonic() + 20
    while threading.active_count() > before:
        assert time.monotonic() < deadline, "a worker of the interrupted run still looks for work"
        time.sleep(0.01)


@pytest.mark.skipif(IS_JIT_DISABLED, reason="nothing is compiled")
def test_python_threads_can_share_a_device(digits: Path) -> None:
    bundle = nmpsim.load(digits)
    tested = nmpsim.Device(nmpsim.get_device(bundle), threads=2)
    tested._engine = make_threaded_engine(2)
    images = [np.load(DIGITS / "images" / f"{n}.npy") for n in range(8)]
    known = [tested.run(bundle, {"data": image}) for image in images]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda image: tested.run(bundle, {"data": image}), images * 8))
    for report, expected in zip(found, known * 8, strict=True):
        assert report.cycles == expected.cycles
        for key, values in report.outputs.items():
            np.testing.assert_array_equal(values, expected.outputs[key])


def test_fewer_threads_do_all_the_work(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refusing(thread: threading.Thread) -> None:
        if thread.name.startswith("nmpsim values 2"):
            raise RuntimeError("can't start new thread")
        start(thread)

    bundle = nmpsim.load(digits)
    image = {"data": np.load(DIGITS / "images" / "7.npy")}
    expected = nmpsim.Device(nmpsim.get_device(bundle)).run(bundle, image)
    monkeypatch.setattr(threading.Thread, "start", refusing)
    tested = nmpsim.Device(nmpsim.get_device(bundle), threads=4)
    tested._engine = make_threaded_engine(4)
    for _ in range(2):
        found = tested.run(bundle, image)
        assert found.cycles == expected.cycles
        for key, values in found.outputs.items():
            np.testing.assert_array_equal(values, expected.outputs[key])


def test_a_run_works_without_threads() -> None:
    with pytest.raises(nmpsim.UserError, match="ARG001"):
        nmpsim.Device(threads=0)


RUN = """
import json, sys, hashlib
import numpy as np, nmpsim
bundle = nmpsim.load(sys.argv[1])
report = nmpsim.Device(nmpsim.get_device(bundle)).run(
    bundle, {"data": np.load(sys.argv[2])}, save_layers=True
)
print(json.dumps([report.cycles, *(
    hashlib.sha256(values.tobytes()).hexdigest() for values in report.layer_outputs.values()
)]))
"""


@pytest.mark.slow
@pytest.mark.skipif(IS_JIT_DISABLED, reason="nothing is compiled")
def test_a_program_gives_the_same_result_on_all_kernels(digits: Path) -> None:
    answers = []
    for flavour in ("portable", ""):
        command = [sys.executable, "-c", RUN, str(digits), str(DIGITS / "images" / "7.npy")]
        asked = {**os.environ, "NMPSIM_KERNELS": flavour}
        environment = {**asked, **get_numba_settings(asked)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        answers.append(json.loads(done.stdout))
    assert len(answers[0]) > 3
    assert answers[0] == answers[1]
