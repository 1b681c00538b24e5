"""Execute programs in real arithmetic, in Glow's float32, and on their integers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from float_programs import float_form, layer_floats, recorded_module
from lir_draft import Draft, tensor_type
from shared_files import shared_folder, shared_names
from tiers import each_value, program_parts

from nmpsim.interpreter import execute_exact, execute_real
from nmpsim.quantization.calibrate import find_sum_orders
from nmpsim.quantization.graph import build_graph

REAL_NETS = [
    name
    for name in shared_names("lir_real/*/*/*.lir.txt")
    if "before_opt" not in name and "channelwise" not in name
]
NETS = ("lir/lenet", "lir/minires", "lir/minimob", "lir_real/mnist_cntk", "lir_real/resnet8")


@pytest.mark.parametrize("name", each_value(REAL_NETS, program_parts))
def test_float_weights_give_the_float_network(name, shared):
    """Through quantized types, hidden ReLUs included: what onnxruntime recorded, to 1e-4."""
    text = shared / name
    flavour = text.name.split(".")[0]
    module = recorded_module(text)
    with np.load(text.with_name("float_ref.npz")) as archive:
        reference = dict(archive)
    mapping = json.loads(text.with_name("float_map.json").read_text())[flavour]
    with np.load(text.with_name(f"{flavour}.npz")) as recorded:
        inputs = {k[6:]: recorded[k] for k in recorded.files if k.startswith("input/")}
    compared = 0
    for instruction, operand, values in execute_real(module, inputs, layer_floats(name)):
        key = f"act/{instruction.number:04d}:{instruction.name}:{operand}"
        if key in mapping:
            expected = reference[mapping[key]]
            assert np.abs(values - expected).max() <= 1e-4 * np.abs(expected).max()
            compared += 1
    assert compared == len(mapping)


@pytest.mark.parametrize("name", [n for n in REAL_NETS if "/cpumax" in n])
def test_integers_equal_glows_recording(name, shared):
    text = shared / name
    module = recorded_module(text)
    with np.load(text.with_name("cpumax.npz")) as recorded:
        inputs = {k[6:]: recorded[k] for k in recorded.files if k.startswith("input/")}
        steps = 0
        for instruction, operand, values in execute_exact(module, inputs):
            key = f"act/{instruction.number:04d}:{instruction.name}:{operand}"
            if key in recorded and values.dtype != np.float32:
                np.testing.assert_array_equal(values, recorded[key])
                steps += 1
    assert steps > 5


def profile(net: str) -> dict[str, tuple[float, float]]:
    lines = (shared_folder() / net / "profile.tsv").read_text().splitlines()
    rows = (line.split("\t") for line in lines)
    return {name.removesuffix(":0"): (float(low), float(high)) for name, low, high in rows}


@pytest.mark.parametrize("net", NETS)
def test_float32_ranges_equal_glows_profile(net, shared):
    module = float_form(f"{net}/i8_asym_b32/interp.lir.txt")
    with np.load(shared / net / "calibration_inputs.npz") as archive:
        samples = archive["data"]
    orders = find_sum_orders(build_graph(module))
    found: dict[str, tuple[float, float]] = {}
    for sample in samples:
        run = execute_real(module, {"data": sample[None]}, real=np.float32, sum_orders=orders)
        for instruction, _, values in run:
            low, high = found.get(instruction.name, (np.inf, -np.inf))
            found[instruction.name] = (
                min(low, float(values.min())),
                max(high, float(values.max())),
            )
    recorded, compared = profile(net), 0
    for name, limits in found.items():
        key = name if name in recorded else name.rpartition("__")[0]
        if key in recorded:
            printed = tuple(float(f"{value:.9g}") for value in limits)
            assert printed == recorded[key], name
            compared += 1
    assert compared >= 8


def float_type(*shape: int):
    return tensor_type("float", shape)


def test_buffers_are_shared_like_in_the_program():
    draft = Draft()
    x = draft.input(float_type(2, 3))
    buffer = draft.buffer(float_type(2, 3))
    draft.emit("copy", buffer, x)
    draft.emit("elementadd", buffer, buffer, buffer)  # in place
    row = draft.view(buffer, float_type(3), (1, 0))
    draft.emit("clip", row, row, Min=-1.0, Max=1.0)  # a part, in place
    out = draft.output(float_type(4, 3))
    draft.emit("splat", out, Value=7.0)
    draft.emit("inserttensor", out, buffer, Offsets=(1, 0), Count=1, Axis=0)
    module = draft.module()
    values = np.array([[1.0, 2.0, 3.0], [4.0, -5.0, 0.25]])
    run = execute_real(module, {x.name: values})
    written = [array.tolist() for _, _, array in run]
    assert written[2] == [1.0, -1.0, 0.5]
    assert run.copy_values(out.name).tolist() == [[7] * 3, [2, 4, 6], [1, -1, 0.5], [7] * 3]


def test_touched_buffers_contain_zeros():
    draft = Draft()
    x = draft.input(float_type(2))
    buffer = draft.buffer(float_type(4))
    draft.emit("splat", buffer, Value=9.0)
    draft.emit("touch", buffer)
    draft.emit("inserttensor", buffer, x, Offsets=(1,), Count=1, Axis=0)
    draft.emit("copy", draft.output(float_type(4)), buffer)
    (*_, last) = execute_real(draft.module(), {x.name: np.array([1.0, 2.0])})
    assert last[2].tolist() == [0, 1, 2, 0]


def test_constants_can_be_replaced():
    draft = Draft()
    x = draft.input(float_type(2))
    weight = draft.constant(np.array([1, 2], np.float32), "float")
    draft.emit("elementmul", draft.output(float_type(2)), x, weight)
    inputs = {x.name: np.array([3.0, 4.0])}
    (as_is,) = execute_real(draft.module(), inputs)
    (replaced,) = execute_real(draft.module(), inputs, {weight.name: np.array([0.5, 0.25])})
    assert as_is[2].tolist() == [3, 8]
    assert replaced[2].tolist() == [1.5, 1]
