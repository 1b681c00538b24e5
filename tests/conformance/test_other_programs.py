"""Programs in other arithmetic than the device's: they compile, run, and the host's part is right.

Int16 and float operations are the host's, so Int16 programs answer as recorded. Int8 programs of
Glow's Interpreter run too, but by the device's own rounding, which is Glow's CPU backend's.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import attrs
import pytest
from recorded_programs import Recorded, Recording, programs, same

import nmpsim
from nmpsim.report.data import RunReport

INT16 = [name for name in programs(r"/i16_\w+/") if "resnet50" not in name]
INTERPRETER = [name for name in programs(r"/i8_\w+/interp") if "resnet50" not in name]
WITHOUT_VALUES = "lir/minimob/i16_pow2_b16/nmp.lir.txt"
"""Its recording ends at the first operation that Glow could not run."""


@cache
def device() -> nmpsim.Device:
    return nmpsim.Device(attrs.evolve(nmpsim.default_device(), cores_count=4))


def run(recording: Recording, folder: Path) -> RunReport:
    program = recording.program
    compiled = nmpsim.compile(
        program.text, program.beside("npz"), device=device().config, fuse=False
    )
    nmpsim.save(compiled, folder / "net.bin")
    bundle = nmpsim.load(folder / "net.bin")
    report = device().run(bundle, recording.inputs(), save_layers=True)
    assert report.trap is None
    assert set(report.layer_outputs) == {i.key for i in recording.instructions}
    return report


def test_the_folder_has_the_programs(shared: Path) -> None:
    assert len(INT16) == 14
    assert len(INTERPRETER) == 18


@pytest.mark.parametrize("name", INT16)
def test_int16_program(name: str, tmp_path: Path) -> None:
    recording = Recording(Recorded(name))
    report = run(recording, tmp_path)
    expected = {k: v for k, v in recording.comparable().items() if v in recording.arrays}
    if name != WITHOUT_VALUES:
        assert len(expected) == len(recording.instructions) - len(recording.incomplete)
        assert report.outputs.keys() == recording.outputs().keys()
    wrong = [
        key
        for key, recorded in expected.items()
        if not same(report.layer_outputs[key], recording.arrays[recorded])
    ]
    assert wrong == []
    for key, values in recording.outputs().items():
        assert same(report.outputs[key], values)


@pytest.mark.parametrize("name", INT16)
def test_int16_arithmetic_is_the_hosts(name: str, tmp_path: Path) -> None:
    for layer in run(Recording(Recorded(name)), tmp_path).layers:
        moves = layer.op in ("transpose", "copy", "inserttensor", "extracttensor")
        assert layer.placement == ("device" if moves else "host")
        assert bool(layer.reason) == (layer.placement == "host")


@pytest.mark.parametrize("name", INTERPRETER)
def test_interpreter_program(name: str, tmp_path: Path) -> None:
    recording = Recording(Recorded(name))
    report = run(recording, tmp_path)
    for key, recorded in recording.comparable().items():
        actual, expected = report.layer_outputs[key], recording.arrays[recorded]
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        if report.layers[0].name == key[5:]:
            assert same(actual, expected)
