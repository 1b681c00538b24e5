"""Compare each layer of every recorded Int8 program with Glow's CPU backend."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import compile_image, make_device, run_program
from recorded_programs import CPU_FLAVOURS, Recorded, Recording, are_same, int8_programs, programs
from tiers import (
    each_value,
    parts_and_settings,
    program_and_networks_settings,
    program_parts,
    tiling,
)

import nmpsim
from nmpsim.bundle import Bundle
from nmpsim.report.data import RunReport

CORES = (1, 4, 32)
Array = np.ndarray[Any, Any]


def compile_program(program: Recorded, cores: int, fuse: bool, folder: Path) -> Bundle:
    """Return the compiled program, loaded from a file as a user does."""
    path = folder / "net.bin"
    path.write_bytes(
        compile_image(program.text, device=make_device(cores).config, fuse=fuse, **tiling())
    )
    return nmpsim.load(path)


def find_differences(report: RunReport, recording: Recording, keys: dict[str, str]) -> list[str]:
    """Return the given layers whose outputs differ from the recording."""
    return [
        key
        for key, recorded in keys.items()
        if not are_same(report.layer_outputs[key], recording.arrays[recorded])
    ]


def test_the_folder_has_the_programs(shared: Path) -> None:
    names = int8_programs()
    assert len(names) == 42
    flavours = {Recorded(name).flavour for name in names}
    assert flavours == set(CPU_FLAVOURS)
    assert sum("channelwise" in name for name in names) == 6


@pytest.mark.parametrize(
    ("name", "cores", "fuse"),
    each_value(product(int8_programs(), CORES, (False, True)), parts_and_settings),
)
def test_int8_programs_equal_glows_recording(name: str, cores: int, fuse: bool) -> None:
    recording = Recording(Recorded(name))
    expected = recording.comparable()
    defined = set(expected.values())
    incomplete = {k for k in recording.activations() if k not in defined}
    assert len(recording.incomplete) == len(incomplete) == (1 if "minimob" in name else 0)
    report = run_program(recording.program.text, cores, fuse=fuse, **tiling())
    assert report.trap is None
    taken_in = {n for layer in report.layers for n in layer.fused[:-1]}
    assert fuse or not taken_in
    left = {key: value for key, value in expected.items() if key[5:] not in taken_in}
    assert len(left) == len(expected) - len(taken_in)
    assert set(report.layer_outputs) == set(left) | recording.incomplete
    assert find_differences(report, recording, left) == []
    outputs = recording.outputs()
    assert report.outputs.keys() == outputs.keys()
    assert all(are_same(report.outputs[n], outputs[n]) for n in outputs)


@pytest.mark.parametrize("name", each_value(int8_programs(), program_parts))
def test_a_second_run_takes_the_same_cycles(name: str, tmp_path: Path) -> None:
    recording = Recording(Recorded(name))
    bundle = compile_program(recording.program, 32, True, tmp_path)
    runs = [
        make_device(32).run(bundle, recording.inputs(), save_layers=s) for s in (True, False, False)
    ]
    fresh = nmpsim.Device(make_device(32).config).run(bundle, recording.inputs())
    for report in (*runs[1:], fresh):
        assert report.cycles == runs[0].cycles
        assert report.layers == runs[0].layers


REAL = [name for name in int8_programs() if name.startswith("lir_real/")]


ALL_IMAGES = [(name, *settings) for name in REAL for settings in ((4, False), (32, True))]


@pytest.mark.parametrize(
    ("name", "cores", "fuse"), each_value(ALL_IMAGES, program_and_networks_settings)
)
def test_all_images_give_recorded_outputs(
    name: str, cores: int, fuse: bool, tmp_path: Path
) -> None:
    program = Recorded(name)
    bundle = compile_program(program, cores, fuse, tmp_path)
    with np.load(program.text.with_name("outputs.npz")) as archive:
        images, outputs, top1 = (
            archive[key]
            for key in ("inputs", f"output/{program.flavour}", f"top1/{program.flavour}")
        )
    assert len(images) == {"mnist_cntk": 14, "resnet8": 8}[name.split("/")[1]]
    for image, output, best in zip(images, outputs, top1, strict=True):
        report = run_image(bundle, cores, image)
        (answer,) = report.outputs.values()
        assert are_same(answer.reshape(output.shape), output)
        assert int(answer.argmax()) == best


def run_image(bundle: Bundle, cores: int, image: Array) -> RunReport:
    (tensor,) = bundle.metadata.inputs
    return make_device(cores).run(bundle, {tensor.name: image.reshape(tensor.shape)})


def test_real_programs_exist(shared: Path) -> None:
    assert len(REAL) == 18
    assert programs(r"lir_real/\w+/i8_\w+/cpu") == REAL
