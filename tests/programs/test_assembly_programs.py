"""The assembly programs of programs/assembly on the device."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble

FOLDER = Path(__file__).parents[2] / "programs" / "assembly"


@pytest.fixture(scope="module")
def expected() -> ModuleType:
    spec = importlib.util.spec_from_file_location("assembly_expected", FOLDER / "expected.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("program", sorted(p.stem for p in FOLDER.glob("*.s")))
def test_programs_give_their_outputs(program: str, engine: str, expected: ModuleType) -> None:
    config = attrs.evolve(nmpsim.default_device(), cores_count=2)
    path = FOLDER / f"{program}.s"
    assembled = assemble(path.read_text(encoding="utf-8"), str(path), config.settings())
    bundle = parse_bundle(assembled.build_bundle(), str(path))
    inputs = expected.example_inputs(program)

    report = nmpsim.Device(config, engine=engine).run(bundle, inputs)

    assert report.trap is None
    assert report.cycles > 0
    answers = expected.EXPECTED[program](inputs)
    assert set(report.outputs) == set(answers)
    for name, values in answers.items():
        np.testing.assert_array_equal(report.outputs[name], values)


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_an_int16_program_equals_results_by_hand(engine: str) -> None:
    """The numbers that the program's comment works out."""
    config = attrs.evolve(nmpsim.default_device(), cores_count=2)
    text = (FOLDER / "int16_conv.s").read_text(encoding="utf-8")
    bundle = parse_bundle(assemble(text, device=config.settings()).build_bundle())
    image = np.array([[[10_000] * 4, [0] * 4]], np.int16)

    report = nmpsim.Device(config, engine=engine).run(bundle, {"image": image})

    assert report.outputs["result"].tolist() == [[[32043, -23041], [22888, -22888]]]
    layer = report.layers[0]
    assert layer.macs == 16
    assert layer.utilization == 16 / (layer.cycles * 2 * 32)  # half of 64 a cycle
    assert layer.saturation == ()
