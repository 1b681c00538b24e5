"""Laws of quantization on random networks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_float_nets import FloatNet, float_nets
from tiers import examples

from nmpsim.bundle import parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.config import default_device
from nmpsim.core.device import Device
from nmpsim.diagnostics import UserError
from nmpsim.interpreter import execute_exact, execute_real
from nmpsim.lir.nodes import Module
from nmpsim.lir.verify import verify
from nmpsim.quantization import (
    SCHEMAS,
    CalibratedProgram,
    QuantizedProgram,
    Settings,
    ValueRange,
    compare_schemas,
)
from nmpsim.quantization.graph import build_graph
from nmpsim.quantization.parameters import RANGE_METHODS
from nmpsim.quantization.rewrite import rewrite_program
from nmpsim.quantization.scales import ValueScales

CHOICES = st.builds(
    Settings,
    schema=st.sampled_from(SCHEMAS),
    elem=st.sampled_from(["i8", "i16"]),
    per_channel=st.booleans(),
    keep_float=st.sampled_from([frozenset(), frozenset({"convolution"})]),
)


def get_outputs(run, module: Module) -> dict[str, np.ndarray]:
    """Return the values of the mutable weights after a run."""
    for _ in run:
        pass
    return {w.name: run.copy_values(w.name) for w in module.weights if not w.constant}


def sample(net: FloatNet, number: int = 0) -> dict[str, np.ndarray]:
    return {
        name: values[number : number + 1].reshape(values.shape[1:])
        for name, values in net.samples.items()
    }


def quantize(net: FloatNet, choices: Settings) -> QuantizedProgram | None:
    """Return the quantized program, or None if there is nothing to quantize."""
    try:
        return CalibratedProgram.from_samples(net.module, net.samples).quantize(choices)
    except UserError as error:
        assert error.diagnostics[0].code in ("QUANT003", "QUANT004"), error
        return None


@examples(150)
@given(float_nets())
def test_separate_buffers_give_the_same_values(net):
    graph = build_graph(net.module)
    module = rewrite_program(ValueScales(graph, frozenset(), {}, Settings()), {}).module
    verify(module)
    inputs = sample(net)
    expected = get_outputs(execute_real(net.module, inputs), net.module)
    actual = get_outputs(execute_real(module, inputs), module)
    for name, values in expected.items():
        assert actual[name].tobytes() == values.tobytes(), name


@examples(150)
@given(float_nets(), CHOICES)
def test_every_choice_gives_a_sound_program(net, choices):
    program = quantize(net, choices)
    if program is None:
        return
    verify(program.module)
    assert any(result.quantized for result in program.results)
    for result in program.results:
        assert result.quantized != bool(result.reason)
    actual = get_outputs(execute_exact(program.module, sample(net)), program.module)
    assert all(np.isfinite(values).all() for values in actual.values())


@examples(60)
@given(float_nets(), CHOICES)
def test_a_profile_of_the_same_ranges_gives_the_same_program(net, choices):
    program = quantize(net, choices)
    if program is None:
        return
    profile = {
        v.name: r for v, r in CalibratedProgram.from_samples(net.module, net.samples).ranges.items()
    }
    profile |= {name: ValueRange.from_values(array) for name, array in net.module.constants.items()}
    module = CalibratedProgram.from_samples(net.module, None, profile).quantize(choices).module
    assert module.instructions == program.module.instructions
    assert module.weights == program.module.weights


@examples(100)
@given(float_nets(), st.sampled_from(SCHEMAS))
def test_int16_is_near_float(net, schema):
    calibrated = CalibratedProgram.from_samples(net.module, net.samples)
    program = quantize(net, Settings(schema=schema, elem="i16"))
    if program is None:
        return
    largest = max((max(-r.low, r.high) for r in calibrated.ranges.values()), default=0.0)
    inputs = sample(net)
    expected = get_outputs(execute_real(net.module, inputs), net.module)
    actual = get_outputs(execute_exact(program.module, inputs), program.module)
    for name, values in expected.items():
        assert np.abs(actual[name] - values).max() <= 0.01 * largest + 1e-6, name


@examples(15)
@given(float_nets(), CHOICES)
def test_the_device_runs_random_networks(net, choices):
    program = quantize(net, choices)
    if program is None:
        return
    bundle = parse_bundle(compile_module(program.module, default_device()))
    inputs = sample(net)
    report = Device(default_device()).run(bundle, inputs)
    expected = get_outputs(execute_exact(program.module, inputs), program.module)
    assert report.trap is None
    for name, values in report.outputs.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


INT16 = pytest.param(Settings(elem="i16"), marks=pytest.mark.slow, id="int16")


@pytest.mark.parametrize("choices", [pytest.param(Settings(), id="int8"), INT16])
@examples(60)
@given(float_nets())
def test_quantized_layers_run_on_the_device(choices, net):
    program = quantize(net, choices)
    if program is None:
        return
    bundle = parse_bundle(compile_module(program.module, default_device()))
    placed = {layer.operand: layer.placement for layer in bundle.metadata.layers}
    for layer in bundle.metadata.layers:
        if layer.op not in ("quantize", "dequantize") and layer.output.elem in ("i8", "i16"):
            assert placed[layer.operand] == "device", (layer.name, layer.reason)


@examples(40)
@given(float_nets())
def test_comparing_sees_every_result(net):
    calibrated = CalibratedProgram.from_samples(net.module, net.samples)
    program = calibrated.quantize_unchecked(Settings())
    try:
        comparisons = compare_schemas(calibrated, Settings())
    except UserError as error:
        assert error.diagnostics[0].code == "QUANT003"
        assert not any(result.quantized for result in program.computed)
        return
    assert len(comparisons) == 2 * len(SCHEMAS) + len(RANGE_METHODS) - 1
    names = {result.name for result in program.results if not result.narrowed}
    for comparison in comparisons:
        assert comparison.quantized + comparison.staying_float >= len(comparison.layers)
        assert {layer.name for layer in comparison.layers} <= names | {
            result.name for result in program.results
        }
        assert all(output.sqnr_db > -60 for output in comparison.outputs if output.sqnr_db > -1e300)
