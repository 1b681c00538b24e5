"""Recorded programs in other arithmetic than libjit's: Int16, Glow's Interpreter, the NMP.

Float operations of a program that was not quantized as a whole stay the host's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from corpus import compile_file, make_device, run_program
from recorded_programs import Recorded, Recording, are_same, programs
from tiers import each_value, parts_and_settings, program_parts, tiling

import nmpsim
from nmpsim.report.data import LayerReport, RunReport

INT16 = [name for name in programs(r"/i16_\w+/") if "resnet50" not in name]
INTERPRETER = [name for name in programs(r"/i8_\w+/interp") if "resnet50" not in name]
WITHOUT_VALUES = "lir/minimob/i16_pow2_b16/nmp.lir.txt"
"""Its recording ends at the first operation that Glow could not run."""
POWER_OF_TWO = [n for n in programs(r"/i8_pow2_b8/cpu") if "resnet50" not in n]
CORES = 4
HOSTS_OWN = {
    "quantize", "dequantize", "softmax", "localresponsenormalization", "elementcmplte",
    "elementselect", "elementdiv",
}  # fmt: skip
"""Operations that the device has no unit for."""


def check_recording(name: str, cores: int, fuse: bool, numerics: str) -> RunReport:
    """Assert that all recorded activations and outputs are reproduced, and return the report."""
    recording = Recording(Recorded(name))
    report = run_program(recording.program.text, cores, numerics=numerics, fuse=fuse, **tiling())
    assert report.trap is None
    taken_in = {n for layer in report.layers for n in layer.fused[:-1]}
    kept = {i.key for i in recording.instructions if i.name not in taken_in}
    assert set(report.layer_outputs) == kept
    expected = {k: v for k, v in recording.comparable().items() if k in kept}
    if name == WITHOUT_VALUES:
        expected = {k: v for k, v in expected.items() if v in recording.arrays}
        assert expected
    wrong = [
        key
        for key, recorded in expected.items()
        if not are_same(report.layer_outputs[key], recording.arrays[recorded])
    ]
    assert wrong == []
    outputs = recording.outputs()
    assert name == WITHOUT_VALUES or report.outputs.keys() == outputs.keys()
    assert all(are_same(report.outputs[key], values) for key, values in outputs.items())
    return report


def test_the_folder_has_the_programs(shared: Path) -> None:
    assert len(INT16) == 14
    assert len(INTERPRETER) == 18
    assert len(POWER_OF_TWO) == 14


def check_placement(layer: LayerReport) -> None:
    """Assert that the host runs only float layers and operations without a unit."""
    is_host = layer.placement == "host"
    assert bool(layer.reason) == is_host
    if is_host:
        assert layer.op in HOSTS_OWN or "is float" in layer.reason


@pytest.mark.parametrize(
    ("name", "numerics", "cores", "fuse"),
    each_value(
        (
            (name, *settings)
            for name in INT16
            for settings in (
                ("glow-int", 1, False),
                ("glow-float", 4, True),
                ("glow-int", 32, False),
            )
        ),
        parts_and_settings,
    ),
)
def test_int16_programs_equal_glows_recording(
    name: str, numerics: str, cores: int, fuse: bool
) -> None:
    """Glow's compiled kernels have no Int16, so both profiles are the Interpreter's."""
    for layer in check_recording(name, cores, fuse, numerics).layers:
        check_placement(layer)


@pytest.mark.parametrize(
    ("name", "cores", "fuse"),
    each_value(
        (
            (name, *settings)
            for name in INTERPRETER
            for settings in ((1, False), (4, True), (32, False))
        ),
        parts_and_settings,
    ),
)
def test_interpreter_programs_equal_glows_recording(name: str, cores: int, fuse: bool) -> None:
    for layer in check_recording(name, cores, fuse, "glow-float").layers:
        check_placement(layer)


REAL = [name for name in (*INT16, *INTERPRETER) if name.startswith("lir_real/")]


@pytest.mark.parametrize("name", each_value(REAL, program_parts))
def test_all_images_give_recorded_outputs(name: str) -> None:
    program, device = Recorded(name), make_device(CORES)
    options = {"device": device.config, "numerics": "glow-float", **tiling()}
    bundle = nmpsim.load(compile_file(program.text, **options))
    (tensor,) = bundle.metadata.inputs
    with np.load(program.text.with_name("outputs.npz")) as archive:
        images, outputs, top1 = (
            archive[key]
            for key in ("inputs", f"output/{program.flavour}", f"top1/{program.flavour}")
        )
    for image, output, best in zip(images, outputs, top1, strict=True):
        report = device.run(bundle, {tensor.name: image.reshape(tensor.shape)})
        (answer,) = report.outputs.values()
        assert are_same(answer.reshape(output.shape), output)
        assert int(answer.argmax()) == best


@pytest.mark.parametrize("name", each_value(POWER_OF_TWO, program_parts))
def test_the_nmps_bias_equals_a_rescaled_bias(name: str) -> None:
    """With shifts alone it does not matter whether the bias is added before or behind them."""
    recording = Recording(Recorded(name))
    reports = []
    for numerics in ("nmp", "glow-int"):
        options = {"numerics": numerics, "rescale_biases": True, **tiling()}
        reports.append(run_program(recording.program.text, CORES, **options))
    ours, theirs = reports
    assert list(ours.layer_outputs) == list(theirs.layer_outputs)
    for key, values in ours.layer_outputs.items():
        assert values.tobytes() == theirs.layer_outputs[key].tobytes(), key


@pytest.mark.parametrize("name", [*POWER_OF_TWO, *INT16])
def test_the_nmp_refuses_a_bias_on_another_scale(name: str) -> None:
    program = Recorded(name)
    with pytest.raises(nmpsim.UserError) as raised:
        nmpsim.compile(program.text, program.beside("npz"), numerics="nmp")
    (finding,) = raised.value.diagnostics
    assert finding.code == "COMP001"
    assert finding.hint is not None
    assert "--rescale-bias" in finding.hint
