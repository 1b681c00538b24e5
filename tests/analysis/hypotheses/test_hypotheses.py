"""Causes that are found by trying changes of a layer, for faults planted in random networks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from _pytest.mark import ParameterSet
from layer_faults import FAULTS, try_fault
from layer_networks import CONFIG, make_network
from lir_draft import Draft, int8

from nmpsim.analysis.hypotheses import search_hypotheses
from nmpsim.bundle import parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.core.run import make_layer_key
from nmpsim.session import Device

TOO_FEW = "the wrong elements are too few to distinguish causes"
QUICK = {
    ("kernel transposed", "conv"),
    ("O and I swapped", "channelwise"),
    ("bias zero", "conv relu"),
    ("bias doubled", "fc"),
    ("one bias", "conv"),
    ("input zero point +1", "depthwise"),
    ("padding on the other side", "conv"),
    ("ReLU missing or extra", "conv"),
    ("channel scale", "depthwise"),
    ("stale input", "maxpool"),
    ("subtraction", "add"),
    ("strides", "conv"),
    ("padding value", "conv int16"),
    ("input channels permuted", "grouped"),
    ("weights' outputs permuted", "depthwise"),
    ("outputs permuted", "conv unpadded"),
    ("three weights", "grouped"),
    ("offset of a part", "concat"),
    ("random weights", "depthwise"),
    ("zero channel", "conv"),
    ("swapped scales", "add"),
    ("weights' inputs permuted", "rowwise"),
}
"""Faults and structures of the standard tier."""


@pytest.fixture(scope="module")
def device() -> Device:
    return Device(CONFIG)


def list_cases() -> Iterator[ParameterSet]:
    """Yield a few structures of each fault, which is in the program or in the reference."""
    for name, fault in FAULTS.items():
        some = fault.structures[:: len(fault.structures) // 4 + 1]
        quick = [one for one in fault.structures if (name, one) in QUICK]
        for structure in dict.fromkeys((*quick, *some)):
            for in_program in (False,) if fault.only_in_reference else (True, False):
                is_quick = structure in quick and in_program is not fault.only_in_reference
                marks = [] if is_quick else [pytest.mark.slow]
                yield pytest.param(name, structure, in_program, marks=marks)


@pytest.mark.parametrize(("name", "structure", "in_program"), [*list_cases()])
def test_a_planted_fault_is_named(
    name: str, structure: str, in_program: bool, device: Device
) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        trial = try_fault(
            make_network(structure, rng), FAULTS[name], rng, device, in_program=in_program
        )
        if trial is not None and trial.results.problem != TOO_FEW:
            break
    else:
        pytest.skip("the fault changes no or too few results of this structure")
    assert trial.is_named
    assert not trial.false_causes


@pytest.mark.parametrize("count", [1, 3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_few_wrong_elements_have_no_explanation(count: int, device: Device) -> None:
    rng = np.random.default_rng(count)
    network = make_network("conv", rng)
    bundle = network.compile()
    outputs = dict(device.run(bundle, network.inputs, save_layers=True).layer_outputs)
    key = make_layer_key(bundle.metadata.layers[-1])
    wrong = outputs[key].copy()
    places = rng.choice(wrong.size, count, replace=False)
    wrong.reshape(-1)[places] ^= rng.integers(1, 100, count).astype(np.int8)
    index = len(bundle.metadata.layers) - 1
    found = search_hypotheses(bundle, index, network.inputs, outputs, wrong, device=device)
    assert found.explanations == ()
    assert found.tried["weights"] > 20


def test_a_difference_near_a_tie_has_no_explanation(device: Device) -> None:
    """Many small changes correct a few elements that differ by one."""
    network = make_network("conv", np.random.default_rng(7))
    bundle = network.compile()
    outputs = dict(device.run(bundle, network.inputs, save_layers=True).layer_outputs)
    key = make_layer_key(bundle.metadata.layers[-1])
    wrong = outputs[key].copy()
    wrong.reshape(-1)[:3] ^= 1
    index = len(bundle.metadata.layers) - 1
    found = search_hypotheses(bundle, index, network.inputs, outputs, wrong, device=device)
    assert found.problem == TOO_FEW


@pytest.mark.parametrize("rule", ["accumulator", pytest.param("floor", marks=pytest.mark.slow)])
def test_other_arithmetic_of_a_reference_is_named(rule: str, device: Device) -> None:
    """The reference is NumPy's: a matrix product on narrow sums, or rounded down."""
    rng = np.random.default_rng(1)
    draft = Draft()
    source = draft.input(int8((40, 64), 0.05, 3))
    weights = draft.constant(rng.integers(-100, 100, (64, 8)).astype(np.int8), "i8", 2**-7)
    bias = draft.constant(np.zeros(8, np.int32), "i32", source.type.quant.scale * 2**-7)
    draft.emit("fullyconnected", draft.output(int8((40, 8), 0.4)), source, weights, bias)
    bundle = parse_bundle(compile_module(draft.module(), CONFIG, numerics="q31"))
    inputs = {source.name: rng.integers(-128, 128, source.shape).astype(np.int8)}
    outputs = device.run(bundle, inputs, save_layers=True).layer_outputs
    sums = (inputs[source.name].astype(np.int64) - 3) @ draft.constants[weights.name]
    real = np.clip(sums, -(1 << 15), (1 << 15) - 1) if rule == "accumulator" else sums
    real = real * (np.float32(0.05) * 2.0**-7 / np.float32(0.4))
    rounded = np.floor(real + 0.5 * (rule == "accumulator"))
    expected = np.clip(rounded, -128, 127).astype(np.int8)
    (found,) = search_hypotheses(bundle, 0, inputs, outputs, expected, device=device).explanations
    text = "the accumulator of 16 bits saturates" if rule == "accumulator" else "down; "
    assert text in found.change


@pytest.mark.parametrize(
    ("opcode", "causes"),
    [
        ("avgpool", ["the padding counted in the mean"]),
        (
            "maxpool",
            ["0 as padding, not the lowest integer", "a clip at the integer 0 after the layer"],
        ),
    ],
)
def test_a_cause_is_reported_with_the_causes_that_look_equal(
    opcode: str, causes: list[str], device: Device
) -> None:
    """Profile q31 has no mean that counts padding; each window of the maximum has padding."""
    draft, kind = Draft(), int8((1, 2, 2, 64), 0.05, 3)
    source, result = draft.input(kind), draft.output(kind)
    more = {"CountIncludePads": 0} if opcode == "avgpool" else {}
    window = {"Kernels": (3, 3), "Strides": (1, 1), "Pads": (1, 1, 1, 1), "Layout": 0}
    draft.emit(opcode, result, source, **more, **window)
    bundle = parse_bundle(compile_module(draft.module(), CONFIG, numerics="q31"))
    inputs = {source.name: np.random.default_rng(2).integers(-128, 0, source.shape).astype(np.int8)}
    outputs = device.run(bundle, inputs, save_layers=True).layer_outputs
    expected = np.zeros(source.shape, np.int8)
    if opcode == "avgpool":
        padded = np.pad(inputs[source.name], ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=3)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
        expected = np.rint(windows.mean((-2, -1))).astype(np.int8)
    found = search_hypotheses(bundle, 0, inputs, outputs, expected, device=device).explanations
    assert [one.change for one in found] == causes
