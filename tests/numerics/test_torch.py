"""Test single layers in PyTorch's four engines, and every activation of a small network."""

import json
from pathlib import Path

import numpy as np
import pytest
from oracles import page
from tally import Tally
from vectors import Array, Case, pair, torch_files

ENGINES = ("fbgemm", "x86", "qnnpack", "onednn")
F32 = np.float32


def compute_sum(x: Array, x_zero: int, w: Array, layer: Case) -> Array:
    """Return the sums of a layer, channels last; PyTorch's inputs have channels second."""
    if w.ndim == 2:
        return (x.astype(np.int64) - x_zero) @ w.T.astype(np.int64)
    (top, left), stride, dilation = layer["pad"], layer["stride"], layer["dil"]
    x, w = np.moveaxis(x, 1, -1), np.moveaxis(w, 1, -1)
    pads = (top, left, top, left)
    return page.convolution_sum(x, w, x_zero, 0, stride, pads, dilation, layer["groups"])


def product(engine: str, acc: Array, bias: Array, scales: tuple[Array, ...], zero: int) -> Array:
    """Return the result of a sum; ``scales`` are those of input, weights and result."""
    x_scale, w_scale, y_scale = scales
    bias = bias if bias.size else page.f32(np.zeros(acc.shape[-1]))
    if engine == "qnnpack":
        acc = acc + page.qnnpack_bias(bias, x_scale, w_scale)
        return page.float_product(acc, page.qnnpack_factor(*scales), zero)
    if engine == "onednn":
        function = page.onednn if acc.ndim == 4 else page.onednn_connected
        return function(acc, bias, *scales, zero)
    return page.fbgemm(acc, bias, page.f32(x_scale * w_scale), y_scale, zero)


def relu_clip(y: Array, zero: int, relu: bool) -> Array:
    """Clip values to PyTorch's quint8, or from the zero point on for a ReLU."""
    return np.clip(y, zero if relu else 0, 255)


@pytest.mark.parametrize("engine", ENGINES)
def test_convolution_and_linear_equal_pytorch(shared: Path, engine: str) -> None:
    tally = Tally()
    for case in torch_files(shared, engine, {"conv", "linear"}):
        meta, zero = case["meta"], int(case["y_zp"])
        layer = {k: pair(meta.get(k, 1)) for k in ("stride", "pad", "dil")}
        layer["groups"] = meta.get("groups", 1)
        acc = compute_sum(case["x"], int(case["x_zp"]), case["w"], layer)
        scales = tuple(page.f32(case[k]) for k in ("x_scale", "w_scale", "y_scale"))
        y = relu_clip(product(engine, acc, case["bias"], scales, zero), zero, meta["relu"])
        expected = np.moveaxis(case["y"], 1, -1)
        tally.assert_equal(f"torch, {engine}, conv and linear", y, expected, case["name"])
    tally.assert_matches_page()


def add(engine: str, a: Array, b: Array, scales: tuple[object, ...]) -> Array:
    """Add two tensors; ``scales`` are scale and zero point of a, b and the result."""
    a_scale, a_zero, b_scale, b_zero, y_scale, y_zero = scales
    if engine == "qnnpack":
        left, right = a.astype(np.int64) - a_zero, b.astype(np.int64) - b_zero
        return page.qnnpack_add(left, right, a_scale, b_scale, y_scale, y_zero)
    whole = a.size // 64 * 64
    operands = (a.reshape(-1), b.reshape(-1))
    body = page.torch_add(*(o[:whole] for o in operands), *scales)
    tail = page.torch_add_tail(*(o[whole:].astype(np.int64) for o in operands), *scales)
    return np.concatenate([body, tail]).reshape(a.shape)


@pytest.mark.parametrize("engine", ENGINES)
def test_add_and_mul_equal_pytorch(shared: Path, engine: str) -> None:
    tally = Tally()
    for case in torch_files(shared, engine, {"add", "add_relu", "mul"}):
        kind = case["meta"]["kind"]
        scales = tuple(
            F32(case[f"{n}_scale"]) if part == "scale" else int(case[f"{n}_zp"])
            for n in "aby"
            for part in ("scale", "zero")
        )
        if kind == "mul":
            left, right = (case[n].astype(np.int64) - int(case[f"{n}_zp"]) for n in "ab")
            y = page.torch_mul(left, right, scales[0], scales[2], *scales[4:])
        else:
            y = add(engine, case["a"], case["b"], scales)
        y = relu_clip(y, scales[5], kind == "add_relu")
        tally.assert_equal(f"torch, {engine}, {kind.split('_')[0]}", y, case["y"], case["name"])
    tally.assert_matches_page()


@pytest.mark.parametrize("engine", ["fbgemm", "qnnpack"])
def test_every_activation_of_a_network_equals_pytorch(shared: Path, engine: str) -> None:
    z = np.load(shared / "golden" / "torch_digits" / f"digits_cnn_{engine}.npz")
    info, tally = json.loads(str(z["info"])), Tally()
    row = f"torch_digits, {engine}"

    def act(name: str) -> Array:
        return z[f"act_{name}"]

    def types(name: str) -> tuple[np.float32, int]:
        scale, zero, _ = info[f"act_{name}"]
        return F32(scale), zero

    def layer(name: str, source: str) -> None:
        about, (x_scale, x_zero) = info[f"layer_{name}"], types(source)
        sizes = {"stride": about["stride"], "pad": about["padding"], "dil": (1, 1)}
        x, w = act(source), z[f"w_{name}"]
        x = x.reshape(len(x), -1) if w.ndim == 2 else x
        acc = compute_sum(x, x_zero, w, {**sizes, "groups": about["groups"]})
        scales = (x_scale, page.f32(z[f"ws_{name}"]), F32(about["scale"]))
        y = product(engine, acc, z[f"b_{name}"], scales, about["zp"])
        y = relu_clip(y, about["zp"], "ReLU" in about["type"])
        tally.assert_equal(row, y, np.moveaxis(act(name), 1, -1), name)

    q = np.clip(page.quantize_torch(z["input_f32"], *types("q")), 0, 255)
    tally.assert_equal(row, q, act("q"), "quantize")
    layer("c1", "q")
    layer("blk.dw", "c1")
    layer("blk.pw", "blk.dw")
    scales = (*types("blk.pw"), *types("c1"), *types("blk"))
    y = relu_clip(add(engine, act("blk.pw"), act("c1"), scales), scales[5], True)
    tally.assert_equal(row, y, act("blk"), "add")
    tally.assert_equal(row, y, act("blk.add.activation_post_process"), "add")
    for same, as_one in {"b1": "c1", "r1": "c1", "blk.bn1": "blk.dw", "blk.r1": "blk.dw"}.items():
        tally.assert_equal(row, act(as_one), act(same), same)
    tally.assert_equal(row, act("blk.pw"), act("blk.bn2"), "blk.bn2")

    window = ((2, 2), (2, 2), (0, 0, 0, 0))
    y = page.max_pool(np.moveaxis(act("blk"), 1, -1), types("blk")[1], *window)
    tally.assert_equal(row, y, np.moveaxis(act("mp"), 1, -1), "mp")
    layer("c2", "mp")
    for same in ("b2", "r2"):
        tally.assert_equal(row, act("c2"), act(same), same)
    scale, zero = types("c2")
    window = ((4, 4), (1, 1), (0, 0, 0, 0))
    s, n = page.average_pool_sum(np.moveaxis(act("c2"), 1, -1), zero, *window, True)
    average = page.average_late if engine == "qnnpack" else page.average_early
    y = np.clip(average(s, n, scale, *types("ap")), 0, 255)
    tally.assert_equal(row, y, np.moveaxis(act("ap"), 1, -1), "ap")
    layer("fc", "ap")
    tally.assert_equal(row, page.dequantize(act("fc"), *types("fc")), z["logits"], "logits")
    tally.assert_matches_page()
