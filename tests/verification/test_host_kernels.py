"""Sums of two products that saturate to 16 bits, as on processors without VNNI."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import nmpsim
from nmpsim.core.inputs import prepare_inputs
from nmpsim.core.run import make_layer_key
from nmpsim.verification.host_kernels import explains_by_pairs, sum_pair_loss

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


def test_only_sums_beyond_16_bits_lose_something() -> None:
    rows = np.array([[255, 255, 255, 10, 255]])
    matrix = np.array([[127, 127, -128, -128, 127], [64, 64, 1, 1, 1]])
    assert sum_pair_loss(rows, matrix).tolist() == [[32767 - 64770 + -32768 + 33920, 0]]


def test_saturated_pairs_explain_a_fully_connected_layer() -> None:
    """The expected values come from a product with saturation that shares no code."""
    bundle = nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz").bundle
    module, layers = bundle.module(), bundle.metadata.layers
    inputs = prepare_inputs(bundle.metadata, np.load(DIGITS / "images" / "7.npy"))
    report = nmpsim.Device(threads=1).run(bundle, inputs, save_layers=True)
    outputs = {key: values.copy() for key, values in report.layer_outputs.items()}
    index = next(one.index for one in layers if one.op == "fullyconnected")
    source, layer = layers[index - 1], layers[index]
    x = np.full(source.output.shape, -128, np.int8)  # 0 as uint8
    x.reshape(-1)[40:60] = 127
    outputs[make_layer_key(source)] = x
    operation = next(one for one in module.instructions if one.name == layer.name)
    names = [operand.name for operand in operation.operands]
    types = {one.name: one.type.quant for one in module.weights}
    weights, bias = (module.constants[name].astype(np.int64) for name in names[2:])
    factor, shift = types[names[2]], types[names[3]]
    src, dest = source.output, layer.output
    assert src.scale and dest.scale and factor is not None and shift is not None
    results = []
    for is_saturated in (False, True):
        flat = x.reshape(-1).astype(np.int64)
        sums = (flat - (src.offset or 0)) @ (weights - factor.offset)
        if is_saturated:
            products = (flat + 128)[:, None] * weights
            pairs = products[0::2] + products[1::2]
            sums -= (pairs - np.minimum(np.maximum(pairs, -32768), 32767)).sum(0)
        real = (sums * src.scale * factor.scale + bias * shift.scale) / dest.scale
        rounded = np.rint(real) + (dest.offset or 0)
        results.append(np.clip(rounded, -128, 127).astype(np.int8)[None])
    exact, saturated = results
    assert not np.array_equal(exact, saturated), "the weights are large enough"
    given = (bundle, index, inputs, outputs, exact)
    assert explains_by_pairs(*given, saturated)
    assert not explains_by_pairs(*given, np.where(saturated == saturated.min(), 3, saturated))
