"""Recorded networks, quantized again from their float form: what Glow made of them, to the bit.

Programs of Glow's CPU backend with ReLU as a maximum, and those of an Int16 accelerator, have the
structure that nmpsim gives: types, constants and, as the arithmetic is Glow's, outputs are equal.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from float_programs import float_form, recorded_module
from lir_oracle import run_module
from shared_files import shared_folder, shared_names
from tiers import each_value, program_parts

from nmpsim.lir.nodes import Module, TensorType
from nmpsim.quantization import CalibratedProgram, Settings, read_profile

NAMES = [
    name
    for flavour in ("cpumax", "cpuold", "nmp", "nmpold")
    for name in shared_names(f"lir*/*/*/{flavour}.lir.txt")
    if "channelwise" not in name
    and "resnet50" not in name
    and (shared_folder() / name).with_name(f"{flavour}.npz").exists()
]
SCHEMAS = {
    "asym": "asymmetric",
    "sym": "symmetric",
    "pow2": "symmetric-with-power2-scale",
}
NARROWED = {"conv0__2", "dw1__2", "dil__2", "dw2__2", "pw2__2", "fc1__1_bias"}
"""Results with the range of the activation behind them where Glow rescales in between: before a
clip (in minimob; Glow's fused form is as ours) and between ``batchedadd`` and ReLU (in lenet)."""


@cache
def calibrate(name: str, by: str = "samples") -> CalibratedProgram:
    net = (shared_folder() / name).parents[1]
    if by == "profile":
        return CalibratedProgram.from_samples(
            float_form(name), None, read_profile(net / "profile.tsv")
        )
    with np.load(net / "calibration_inputs.npz") as archive:
        return CalibratedProgram.from_samples(float_form(name), {"data": archive["data"]})


def parse_settings(name: str) -> Settings:
    elem, schema, bias = name.split("/")[2].split("_")[:3]
    return Settings(
        schema=SCHEMAS[schema],
        elem=elem,
        bias_elem=f"i{bias[1:]}",
        per_channel=name.count("channelwise") > 0,
    )


def get_result_types(module: Module) -> dict[str, TensorType]:
    """Return the type of each result of an instruction."""
    types = {w.name: w.type for w in module.weights}
    types |= {i.name: i.attributes["Ty"] for i in module.instructions if "Ty" in i.attributes}
    return {
        i.name: types[i.operands[0].name]
        for i in module.instructions
        if i.operands and i.opcode not in ("deallocactivation", "tensorview")
    }


@pytest.mark.parametrize("by", ["samples", "profile"])
@pytest.mark.parametrize("name", each_value(NAMES, program_parts))
def test_types_and_constants_equal_glow(name, by, shared):
    net = name.split("/")[1]
    glow = recorded_module(shared / name)
    ours = calibrate(name, by).quantize(parse_settings(name)).module
    expected, actual = get_result_types(glow), get_result_types(ours)
    narrowed = NARROWED if net == "minimob" or "lenet/i8_asym_b32/cpuold" in name else ()
    compared = 0
    for instruction in expected.keys() & actual.keys():
        a, b = actual[instruction], expected[instruction]
        if a.quant is None or b.quant is None or instruction in narrowed:
            continue
        assert (a.elem, a.quant.scale, a.quant.offset) == (
            b.elem,
            b.quant.scale,
            b.quant.offset,
        )
        compared += 1
    assert compared >= 6
    glow_types = {w.name: w.type for w in glow.weights if w.constant}
    for weight in (w for w in ours.weights if w.constant):
        other = glow_types[weight.name]
        assert (weight.type.quant.scale, weight.type.quant.offset) == (
            other.quant.scale,
            other.quant.offset,
        )
        np.testing.assert_array_equal(ours.constants[weight.name], glow.constants[weight.name])


@pytest.mark.parametrize(
    "name", each_value((n for n in NAMES if "minimob" not in n), program_parts)
)
def test_outputs_equal_glow(name, shared):
    ours = calibrate(name).quantize(parse_settings(name)).module
    with np.load((shared / name).with_name(f"{name.split('/')[-1].split('.')[0]}.npz")) as recorded:
        inputs = {k[6:]: recorded[k] for k in recorded.files if k.startswith("input/")}
        outputs = {k[7:]: recorded[k] for k in recorded.files if k.startswith("output/")}
    _, actual = run_module(ours, inputs)
    assert outputs
    for output, expected in outputs.items():
        if name == "lir/lenet/i8_asym_b32/cpuold.lir.txt":  # one rescale less
            np.testing.assert_allclose(actual[output], expected, atol=2e-3)
        else:
            np.testing.assert_allclose(actual[output], expected, rtol=1e-6)


@pytest.mark.parametrize("net", ["mnist_cntk", "resnet8"])
def test_channel_scales_equal_glow(net, shared):
    """Filters, rows of weights, biases: on all images what Glow recorded."""
    folder = shared / "lir_real" / net / "i8_asym_b32_channelwise"
    program = calibrate(f"lir_real/{net}/i8_asym_b32/cpumax.lir.txt")
    ours = program.quantize(parse_settings(f"lir_real/{net}/i8_asym_b32_channelwise/x")).module
    opcodes = {instruction.opcode for instruction in ours.instructions}
    assert {"channelwisequantizedconvolution", "rowwisequantizedfullyconnected"} <= opcodes
    assert opcodes.isdisjoint({"convolution", "fullyconnected"})
    (output,) = program.graph.outputs
    shape = ours.weights[-1].type.shape
    with np.load(folder / "outputs.npz") as recorded:
        images, expected = recorded["inputs"], recorded["output/cpumax"]
    (data,) = (value.type.shape for value in program.graph.inputs)
    assert shape
    for image, answer in zip(images, expected, strict=True):
        _, actual = run_module(ours, {"data": image.reshape(data)})
        np.testing.assert_allclose(actual[output].ravel(), answer.ravel(), rtol=1e-6)
