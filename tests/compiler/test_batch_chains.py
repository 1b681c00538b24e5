"""Test that complete images on each core give the results of one image on all cores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lir_draft import random_values
from program_writer import Program, Size
from random_programs import image_networks
from tiers import examples
from tiling_runs import digits

import nmpsim
from nmpsim.analysis.program import compile_without_chains
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.metadata import list_chains
from nmpsim.compiler.driver import compile_module
from nmpsim.config import DeviceConfig, default_device
from nmpsim.core.device import Device
from nmpsim.diagnostics import UserError


def compile_bundle(program: Program, config: DeviceConfig, images: int) -> Bundle:
    options: dict[str, Any] = {"numerics": program.numerics, "tiling": "simple"}
    file = compile_module(program.module, config, images_per_core=images, **options)
    return parse_bundle(file)


def run_strictly(bundle: Bundle, inputs: dict[str, Any], device: Device) -> Any:
    report = device.run(bundle, inputs, strict=True)
    assert report.trap is None, report.trap
    assert report.contract.violation is None, report.contract.violation
    return report


def check_each_image(single: Bundle, batch: Bundle, config: DeviceConfig, seed: int) -> Any:
    """Assert that three images of a batch equal single images; return the report of the batch."""
    rng, device = np.random.default_rng(seed), Device(config, "compiled")
    types = {weight.name: weight.type for weight in batch.module().weights}
    inputs = {one.name: random_values(rng, types[one.name]) for one in batch.metadata.inputs}
    images = batch.metadata.inputs[0].shape[0]
    report = run_strictly(batch, inputs, device)
    for image in {0, images // 2, images - 1}:
        own = {name: values[image : image + 1] for name, values in inputs.items()}
        for name, expected in run_strictly(single, own, device).outputs.items():
            actual = report.outputs[name][image : image + 1]
            np.testing.assert_array_equal(actual, expected, err_msg=f"{name}, image {image}")
    return report


def check_images_refusal(error: UserError, config: DeviceConfig) -> None:
    """Assert that images are too large for a scratchpad, or that an operand is a constant."""
    (finding,) = error.diagnostics
    if finding.code == "COMP001":
        assert "each image separately" in finding.message
        return
    assert finding.code == "COMP002"
    assert finding.found and int(finding.found.split()[0]) > config.scratchpad_bytes
    assert finding.hint and finding.place and finding.place.line


@examples(12)
@given(
    image_networks(),
    st.sampled_from((1, 2, 5)),
    st.integers(1, 3),
    st.sampled_from((16, 48, 128)),
    st.integers(0, 999),
)
def test_random_networks_give_the_results_of_single_images(
    program: Program, cores: int, images: int, kib: int, seed: int
) -> None:
    config = Size(cores, kib * 1024).config
    try:
        single = compile_bundle(program, config, 0)
        batch = compile_bundle(program, config, images)
    except UserError as error:
        check_images_refusal(error, config)
        return
    check_each_image(single, batch, config, seed)


@pytest.mark.parametrize(("images", "cycles"), [(1, 540), (16, 90)])
def test_digits_on_each_core_takes_few_cycles_for_an_image(images: int, cycles: int) -> None:
    program, config = digits(), default_device()
    single, batch = (compile_bundle(program, config, count) for count in (0, images))
    report = check_each_image(single, batch, config, images)
    assert report.throughput.batch == 32 * images
    assert report.device_cycles < cycles * report.throughput.batch
    (chain,) = list_chains(batch.metadata.layers)
    assert [layer.name for layer in chain if not layer.in_scratchpads] == ["fc__1"]
    assert report.layers[1].macs == 32 * images * single.metadata.layers[1].macs
    assert not any(layer.repeated_macs for layer in report.layers)


def test_both_engines_count_the_same_cycles_and_saturation() -> None:
    config = attrs.evolve(default_device(), cores_count=2)
    batch = compile_bundle(digits(), config, 2)
    inputs = {"data": np.random.default_rng(1).uniform(0, 40, (4, 1, 8, 8)).astype(np.float32)}
    reports = [
        run_strictly(batch, inputs, Device(config, engine)) for engine in ("compiled", "reference")
    ]
    for one, other in zip(*(report.layers for report in reports), strict=True):
        assert (one.cycles, one.saturation) == (other.cycles, other.saturation)
    assert np.array_equal(*(report.outputs["prob__1"] for report in reports))


def test_layers_of_a_batch_are_in_dram_after_compiling_without_chains() -> None:
    program, config = digits(), default_device()
    batch = compile_bundle(program, config, 1)
    unchained = compile_without_chains(batch)
    inputs = {"data": np.random.default_rng(2).uniform(0, 16, (32, 1, 8, 8)).astype(np.float32)}
    device = Device(config)
    report = device.run(unchained, inputs, save_layers=True)
    assert len(report.layer_outputs) == len(batch.metadata.layers)
    expected = device.run(batch, inputs).outputs["prob__1"]
    assert np.array_equal(report.outputs["prob__1"], expected)


def test_keyword_spotting_equals_recorded_results_at_less_than_2700_cycles(shared: Path) -> None:
    folder = shared / "models" / "dscnn_kws_int8"
    bundle = nmpsim.compile(folder / "model.tflite", images_per_core=4).bundle
    values = np.load(folder / "inputs.npy")[:4]
    expected = np.load(folder / "expected.npz")["expected_litert_ref"][:4]
    report = run_strictly(bundle, [np.tile(values, (32, 1, 1, 1))], Device())
    (outputs,) = report.outputs.values()
    assert np.array_equal(outputs.reshape(32, -1), np.tile(expected.reshape(1, -1), (32, 1)))
    assert report.device_cycles < 2700 * 128


def test_network_larger_than_a_scratchpad_is_refused_with_its_bytes() -> None:
    config = Size(2, 4096).config
    with pytest.raises(UserError) as caught:
        compile_bundle(digits(), config, 1)
    check_images_refusal(caught.value, config)
    needed = int(caught.value.diagnostics[0].found.split()[0])
    enough = -(-needed // 64) * 64
    compile_bundle(digits(), Size(2, enough).config, 1)
    with pytest.raises(UserError, match="COMP002"):
        compile_bundle(digits(), Size(2, enough - 64).config, 1)


@pytest.mark.parametrize("options", [{"images_per_core": 257}, {"images_per_core": -1}])
def test_invalid_number_of_images_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="out of range"):
        compile_module(digits().module, default_device(), **options)


def test_complete_images_are_not_divided_by_chains() -> None:
    module, config = digits().module, default_device()
    chain, layer = (
        parse_bundle(compile_module(module, config, tiling=one, images_per_core=1))
        for one in ("chain", "layer")
    )
    assert chain.digest == layer.digest
