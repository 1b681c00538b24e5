"""Record results of the runtimes on near-ties, where similar formulas differ.

Run by hand, beside this file, where torch 2.13.0 (on a processor with AVX512-VNNI), onnx and
onnxruntime 1.31.1 are installed: ``python record_near_ties.py``. Factors are near powers of two
and biases near multiples of half a step, so that many sums fall on or next to a half.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(20)
F32 = np.float32
Case = dict[str, Any]
CHANNELS = 64
ENGINES = ("fbgemm", "qnnpack", "onednn")


def near(base: float, count: int) -> np.ndarray[Any, Any]:
    """Return ``base`` times powers of two, each at most one unit in the last place off."""
    steps = 1 + RNG.integers(-1, 2, count) * 2.0**-23
    return (base * 2.0 ** RNG.integers(-2, 3, count) * steps).astype(F32)


def quantize(values: np.ndarray[Any, Any], scale: Any, zero: int) -> torch.Tensor:
    tensor = torch.from_numpy(values.astype(np.uint8))
    return torch._make_per_tensor_quantized_tensor(tensor, float(scale), zero)


def layer_types(one_scale: bool = False) -> Case:
    """Return scales and zero points of a layer, and a bias for it."""
    base, x_scale = np.exp(RNG.uniform(-9, -3)), F32(np.exp(RNG.uniform(-6, -1)))
    w_scale = near(base, 1 if one_scale else CHANNELS)
    step = float(x_scale) * w_scale.astype(np.float64)
    ratio = 2.0 ** RNG.integers(3, 7) * RNG.choice([1, 1.5, 1 / 3])
    x_zp, y_zp = (int(zero) for zero in RNG.integers(0, 128, 2))
    return {
        "x_scale": x_scale,
        "w_scale": w_scale,
        "y_scale": F32(float(x_scale) * base * ratio),
        "x_zp": x_zp,
        "y_zp": y_zp,
        "bias": (RNG.integers(-400, 400, CHANNELS) * step / RNG.choice([1, 2, 3])).astype(F32),
    }


def torch_layer(engine: str, connected: bool, one_scale: bool) -> Case:
    torch.backends.quantized.engine = engine
    case = layer_types(one_scale)
    x = RNG.integers(0, 128, (64, 1) if connected else (1, 1, 8, 8))
    w = RNG.integers(-20, 21, (CHANNELS, 1) if connected else (CHANNELS, 1, 1, 1)).astype(np.int8)
    if one_scale:
        weights = torch._make_per_tensor_quantized_tensor(
            torch.from_numpy(w), float(case["w_scale"][0]), 0
        )
    else:
        scales = torch.from_numpy(case["w_scale"].astype(np.float64))
        weights = torch._make_per_channel_quantized_tensor(
            torch.from_numpy(w), scales, torch.zeros(CHANNELS, dtype=torch.int64), 0
        )
    given, bias = quantize(x, case["x_scale"], case["x_zp"]), torch.from_numpy(case["bias"])
    to = (float(case["y_scale"]), case["y_zp"])
    ops = torch.ops.quantized
    if connected:
        y = ops.linear(given, ops.linear_prepack(weights, bias), *to)
    else:
        packed = ops.conv2d_prepack(weights, bias, [1, 1], [0, 0], [1, 1], 1)
        y = ops.conv2d(given, packed, *to)
    kind = "one_scale" if one_scale else "layer"
    found = y.int_repr().numpy()
    return {**case, "kind": kind, "engine": engine, "x": x.astype(np.uint8), "w": w, "y": found}


def pair_types(product: bool) -> tuple[Case, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    a_scale = F32(RNG.uniform(0.02, 0.1))
    b_scale = F32(a_scale * RNG.choice([1, 2, 0.5, 1.25]))
    y_scale = a_scale * (b_scale * RNG.choice([16, 32, 50]) if product else RNG.choice([1, 2, 3]))
    zeros = {f"{name}_zp": int(RNG.integers(20, 120)) for name in "aby"}
    scales = {"a_scale": a_scale, "b_scale": b_scale, "y_scale": F32(y_scale)}
    a, b = RNG.integers(0, 256, (2, 300))
    return {**scales, **zeros, "a": a.astype(np.uint8), "b": b.astype(np.uint8)}, a, b


def torch_pair(engine: str, operation: str) -> Case:
    torch.backends.quantized.engine = engine
    case, a, b = pair_types(operation == "mul")
    left = quantize(a, case["a_scale"], case["a_zp"])
    right = quantize(b, case["b_scale"], case["b_zp"])
    function = getattr(torch.ops.quantized, operation)
    y = function(left, right, float(case["y_scale"]), case["y_zp"]).int_repr().numpy()
    return {**case, "kind": operation, "engine": engine, "y": y}


def torch_average(engine: str, form: str) -> Case:
    torch.backends.quantized.engine = engine
    x, scale, zero = RNG.integers(0, 256, (1, 16, 4, 4)), F32(RNG.uniform(0.02, 0.1)), 77
    given = quantize(x, scale, zero)
    if form == "adaptive":
        y = torch.nn.functional.adaptive_avg_pool2d(given, 2)
    else:
        given = given.contiguous(memory_format=torch.channels_last)
        y = torch.nn.functional.avg_pool2d(given, 2)
    case = {"kind": form, "engine": engine, "x": x.astype(np.uint8), "x_scale": scale, "x_zp": zero}
    return {**case, "y": y.int_repr().numpy()}


def torch_quantize() -> Case:
    scale, zero = F32(RNG.uniform(0.01, 0.3)), int(RNG.integers(0, 255))
    x = (RNG.integers(-200, 500, 300) * F32(0.5) * scale).astype(F32)
    y = torch.quantize_per_tensor(torch.from_numpy(x), float(scale), zero, torch.quint8)
    case = {"kind": "quantize", "engine": "", "x": x, "y_scale": scale, "y_zp": zero}
    return {**case, "y": y.int_repr().numpy()}


def run_onnx(operation: str, domain: str, operands: list[Any], **attributes: Any) -> Any:
    names = [f"i{place}" for place in range(len(operands))]
    arrays = [np.asarray(operand) for operand in operands]
    first = helper.make_tensor_value_info(
        "i0", helper.np_dtype_to_tensor_dtype(arrays[0].dtype), arrays[0].shape
    )
    last = helper.make_tensor_value_info("y", TensorProto.UINT8, None)
    constants = [numpy_helper.from_array(a, n) for a, n in zip(arrays[1:], names[1:], strict=True)]
    node = helper.make_node(operation, names, ["y"], domain=domain, **attributes)
    graph = helper.make_graph([node], "g", [first], [last], constants)
    versions = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"i0": arrays[0]})[0]


def onnx_pair(operation: str) -> Case:
    case, _, _ = pair_types(operation == "QLinearMul")
    types = [v for n in "ab" for v in (case[n], case[f"{n}_scale"], np.uint8(case[f"{n}_zp"]))]
    types += [case["y_scale"], np.uint8(case["y_zp"])]
    y = run_onnx(operation, "com.microsoft", types)
    return {**case, "kind": operation, "engine": "onnx", "y": y}


def onnx_layer() -> Case:
    case, zeros = layer_types(), np.zeros(CHANNELS, np.int8)
    x = RNG.integers(0, 256, (1, 1, 8, 8)).astype(np.uint8)
    w = RNG.integers(-20, 21, (CHANNELS, 1, 1, 1)).astype(np.int8)
    bias = RNG.integers(-400, 400, CHANNELS).astype(np.int32)
    types = [x, case["x_scale"], np.uint8(case["x_zp"]), w, case["w_scale"], zeros]
    types += [case["y_scale"], np.uint8(case["y_zp"]), bias]
    y = run_onnx("QLinearConv", "", types)
    return {**case, "kind": "layer", "engine": "onnx", "x": x, "w": w, "bias": bias, "y": y}


def onnx_average(operation: str, **attributes: Any) -> Case:
    scale, zero = F32(RNG.uniform(0.02, 0.1)), 77
    to = F32(scale * RNG.choice([1, 1.5, 0.5]))
    x = RNG.integers(0, 256, (1, 64, 4, 4)).astype(np.uint8)
    types = [x, scale, np.uint8(zero), to, np.uint8(50)]
    y = run_onnx(operation, "com.microsoft", types, **attributes)
    named = {"x": x, "x_scale": scale, "x_zp": zero, "y_scale": to, "y_zp": 50}
    return {**named, "kind": operation, "engine": "onnx", "y": y}


def cases() -> Iterator[Case]:
    for engine in ENGINES:
        for repeat in range(4):
            yield torch_layer(engine, connected=False, one_scale=False)
            yield torch_layer(engine, connected=True, one_scale=False)
            if engine == "fbgemm":
                yield torch_layer(engine, connected=bool(repeat % 2), one_scale=True)
            yield torch_pair(engine, "add")
            yield torch_pair(engine, "mul")
        yield torch_average(engine, "adaptive")
        yield torch_average(engine, "blocks")
    for _ in range(3):
        yield torch_quantize()
        yield onnx_layer()
        yield onnx_pair("QLinearAdd")
        yield onnx_pair("QLinearMul")
        yield onnx_average("QLinearAveragePool", kernel_shape=[2, 2], strides=[2, 2])
        yield onnx_average("QLinearGlobalAveragePool")


def main() -> None:
    arrays = {}
    for number, case in enumerate(cases()):
        arrays |= {f"{number:03d}.{name}": np.asarray(value) for name, value in case.items()}
    np.savez_compressed(Path(__file__).with_name("near_ties.npz"), **arrays)


if __name__ == "__main__":
    main()
