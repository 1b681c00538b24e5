"""Sums of two products that saturate to 16 bits, as on processors without VNNI."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

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
    inputs = prepare_inputs(bundle, np.load(DIGITS / "images" / "7.npy"))
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


CONVOLUTION = """function main
declare {
  %w = WeightVar i8[S:0.25 O:2][-32.5,31.25]<4 x 3 x 2 x 3> const
  %b = WeightVar i32[S:0.125 O:0][-268435456.0,268435456.0]<4> const
  %x = WeightVar float<1 x 7 x 6 x 3> mutable
  %y = WeightVar float<1 x 4 x 5 x 4> mutable
}
code {
  0 %q_res = allocactivation { Ty: i8[S:0.5 O:-100][-14.0,113.5]<1 x 7 x 6 x 3>}
  1 %q = quantize @out %q_res, @in %x
  2 %c_res = allocactivation { Ty: i8[S:512.0 O:5][-68096.0,62464.0]<1 x 4 x 5 x 4>}
  3 %c = convolution @out %c_res, @in %q_res, @in %w, @in %b { Kernels: [3, 2], Strides: [2, 1], Pads: [2, 0, 1, 1], Group: 1, Dilation: [1, 2], Layout: NHWC, FusedActivation: NONE, FusedActivationArgs: []}
  4 %q_gone = deallocactivation @out %q_res
  5 %d = dequantize @out %y, @in %c_res
  6 %c_gone = deallocactivation @out %c_res
}
"""  # noqa: E501


def convolve(
    x: npt.NDArray[np.int64], w: npt.NDArray[np.int64], b: npt.NDArray[np.int64], *, saturates: bool
) -> npt.NDArray[np.int8]:
    """Compute the convolution one result at a time, with sums of two products that may saturate."""
    padded = np.full((7 + 2 + 1, 6 + 0 + 1, 3), -100)
    padded[2:9, :6] = x[0]
    result = np.zeros((1, 4, 5, 4), np.int8)
    for row, column, channel in np.ndindex(4, 5, 4):
        taps = [
            (int(padded[2 * row + i, column + 2 * j, k]), int(w[channel, i, j, k]))
            for i, j, k in np.ndindex(3, 2, 3)
        ]
        total = sum((value + 100) * (weight - 2) for value, weight in taps)
        if saturates:
            products = [(value + 128) * weight for value, weight in taps]
            for pair in zip(products[::2], products[1::2], strict=True):
                total += max(-32768, min(32767, sum(pair))) - sum(pair)
        real = (total + int(b[channel])) * 0.125 / 512
        result[0, row, column, channel] = np.clip(np.rint(real) + 5, -128, 127)
    return result


def test_saturated_pairs_explain_a_convolution(tmp_path: Path) -> None:
    """The pairs of a window go across its pixels, because the number of channels is odd."""
    random = np.random.default_rng(5)
    w = random.choice([-128, -100, 3, 90, 127], (4, 3, 2, 3)).astype(np.int8)
    b = random.integers(-9000, 9000, 4).astype(np.int32)
    (tmp_path / "net.lir.txt").write_text(CONVOLUTION)
    np.savez(tmp_path / "net.npz", w=w, b=b)
    bundle = nmpsim.compile(tmp_path / "net.lir.txt", tmp_path / "net.npz").bundle
    layers = bundle.metadata.layers
    inputs = {"x": np.zeros((1, 7, 6, 3), np.float32)}
    x = random.choice([-128, -20, 100, 127], (1, 7, 6, 3)).astype(np.int8)
    wide = [one.astype(np.int64) for one in (x, w, b)]
    exact, saturated = convolve(*wide, saturates=False), convolve(*wide, saturates=True)
    moved = int((exact != saturated).sum())
    assert 8 < moved < exact.size, "some results have pairs that saturate"
    index = next(one.index for one in layers if one.op == "convolution")
    outputs = {make_layer_key(one): x for one in layers if one.op == "quantize"}
    given = (bundle, index, inputs, outputs, exact)
    assert explains_by_pairs(*given, saturated)
    for wrong in (saturated[:, ::-1], np.where(exact == exact.max(), exact - 1, saturated)):
        assert not explains_by_pairs(*given, wrong)
