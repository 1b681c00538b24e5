"""Programs whose cycles and order do not depend on data are recorded once; the others never are."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
import pytest
from core_machines import (
    HALT,
    IMAGE_BASE,
    RAM_BASE,
    SPM,
    Program,
    assert_same,
    from_descriptors,
    from_text,
    make_threaded_engine,
    record_and_replay,
    run,
    words,
)
from core_tensors import scale_records

from nmpsim.core.compiled import recording
from nmpsim.core.compiled.issue import IS_JIT_DISABLED
from nmpsim.core.engine_selection import make_engine
from nmpsim.core.state import Machine, Outcome
from nmpsim.timing import get_costs

pytestmark = pytest.mark.skipif(IS_JIT_DISABLED, reason="nothing is compiled")
RECORD_BYTES = 28
CONV: Mapping[str, int | str] = {
    "input": SPM,
    "weights": SPM + 64,
    "channels": SPM + 2048,
    "scales": SPM + 4096,
    "output": SPM + 1024,
    "groups": 1,
    "in_channels": 4,
    "out_channels": 1,
    "out_pixel_stride": 1,
    **dict.fromkeys(("kernel_h", "kernel_w", "stride_h", "stride_w", "out_h", "out_w"), 1),
    **dict.fromkeys(("dilation_h", "dilation_w", "clip_high"), 1),
}
LOAD = {"dram": RAM_BASE, "spm": SPM + 4096, "run_bytes": RECORD_BYTES, "count_x": 1, "count_y": 1}


def make_data_scaled_program(shift: int) -> Program:
    """Build a program with a convolution whose scale comes from read-write DRAM."""
    zero = np.zeros(1, np.int32)
    record = scale_records(zero, (zero,) * 3, (zero, zero, zero + shift))
    return from_descriptors(("nmp.load", LOAD), ("nmp.conv", CONV), ram=record.tobytes())


def reset_machine(machine: Machine, program: Program) -> None:
    """Reset all arrays of a machine except the image."""
    for mine, new in zip(machine, program.machine(), strict=True):
        if mine is not machine.image:
            mine[...] = new


def test_a_late_dependence_on_data_ends_the_replay() -> None:
    program, engine = make_data_scaled_program(3), make_threaded_engine(1)
    machine, costs = program.machine(), get_costs(program.config)
    for _ in range(2):
        assert record_and_replay(engine, machine, costs)
        assert_same(machine, run("reference", program)[1])
        reset_machine(machine, program)
    impossible = make_data_scaled_program(99)
    reset_machine(machine, impossible)
    assert not record_and_replay(engine, machine, costs)
    reset_machine(machine, impossible)
    assert not record_and_replay(engine, machine, costs)
    assert engine.run(machine, costs, 1 << 40, False) == Outcome.TRAP
    assert_same(machine, run("reference", impossible)[1])


def test_an_early_dependence_on_data_prevents_the_recording() -> None:
    program, engine = make_data_scaled_program(99), make_threaded_engine(1)
    assert not record_and_replay(engine, program.machine(), get_costs(program.config))


@pytest.mark.parametrize(
    "text",
    ["lw a0, 0(a1)\nnmp.halt", "sb a0, 0(a1)\nnmp.halt", "ebreak", "loop: j loop"],
)
def test_unsupported_programs_are_not_recorded(text: str) -> None:
    program = from_text(f"_start: lui a1, {RAM_BASE >> 12}\n{text}")
    machine = program.machine()
    assert not record_and_replay(make_threaded_engine(1), machine, get_costs(program.config))
    assert_same(machine, program.machine())


def test_writable_code_and_descriptors_prevent_the_recording() -> None:
    code = words(HALT)
    program = Program(image=code, entry=RAM_BASE, ram=code)
    assert not record_and_replay(
        make_threaded_engine(1), program.machine(), get_costs(program.config)
    )
    text = f"lui a1, {RAM_BASE >> 12}\nnmp.fill a1\nnmp.halt"
    program = from_text(text)
    assert not record_and_replay(
        make_threaded_engine(1), program.machine(), get_costs(program.config)
    )


def test_a_long_program_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    program = from_descriptors(*[("nmp.fill", {"output": SPM, "count": 3, "value": 7})] * 3)
    machine = program.machine()
    monkeypatch.setattr(recording, "ROWS", 1)
    assert record_and_replay(make_threaded_engine(1), machine, get_costs(program.config))
    assert_same(machine, run("reference", program)[1])
    monkeypatch.setattr(recording, "MAX_ITEMS", 1)
    assert not record_and_replay(
        make_threaded_engine(1), program.machine(), get_costs(program.config)
    )


def test_two_machines_have_separate_recordings() -> None:
    engine = make_threaded_engine(1)
    for value in (7, 8):
        fill = {"output": SPM, "count": 3, "value": value}
        program = from_descriptors(("nmp.fill", fill))
        machine = program.machine()
        assert record_and_replay(engine, machine, get_costs(program.config))
        assert_same(machine, run("reference", program)[1])


def test_machines_of_one_image_share_no_recording() -> None:
    load = {"dram": RAM_BASE, "spm": SPM, "run_bytes": 100, "count_x": 1, "count_y": 1}
    program = from_descriptors(("nmp.load", load))
    engine, costs, machine = make_threaded_engine(1), get_costs(program.config), program.machine()
    assert record_and_replay(engine, machine, costs)
    other = attrs.evolve(program, ram_bytes=64).machine()._replace(image=machine.image)
    assert not record_and_replay(engine, other, costs)
    assert engine.run(other, costs, 1 << 40, False) == Outcome.TRAP


def test_the_reference_engine_never_replays() -> None:
    program = Program(image=words(HALT), entry=IMAGE_BASE)
    machine = program.machine()
    assert not record_and_replay(make_engine("reference"), machine, get_costs(program.config))
