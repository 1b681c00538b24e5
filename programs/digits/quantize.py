"""Quantize the trained digits network to Int8, the way Glow does, and write it as LIR.

Schema asymmetric, Int8 weights and activations, Int32 biases. Writes digits.lir.txt, digits.npz
and digits.tensors.json beside this file. Run from the root of the repository, after train.py:
``python programs/digits/quantize.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from dataset import load_split
from float_net import Array, Tensors, forward, to_nhwc
from lir_text import (
    DTYPES,
    Instruction,
    Program,
    QuantParams,
    TensorType,
    Value,
    allocate,
    compute,
    free,
    view,
)
from numpy.typing import NDArray

INTEGER_RANGES = {"i8": (-(2**7), 2**7 - 1), "i32": (-(2**29), 2**29 - 1)}
"""The ranges Glow chooses parameters for; Int32 leaves two bits of headroom."""

CONV_ATTRIBUTES = (
    "Kernels: [3, 3], Strides: [1, 1], Pads: [1, 1, 1, 1], Group: 1, Dilation: [1, 1], "
    "Layout: NHWC, FusedActivation: NONE, FusedActivationArgs: []"
)
POOL_ATTRIBUTES = "Kernels: [2, 2], Strides: [2, 2], Pads: [0, 0, 0, 0], Layout: 0"


def choose_params(minimum: np.float32, maximum: np.float32, elem: str) -> QuantParams:
    """Glow's chooseQuantizationParams for the asymmetric schema (double inside, float32 out)."""
    low, high = min(float(minimum), 0.0), max(float(maximum), 0.0)
    q_low, q_high = INTEGER_RANGES[elem]
    scale = (high - low) / (q_high - q_low) or 0.1
    from_low, from_high = q_low - low / scale, q_high - high / scale
    low_error, high_error = abs(q_low) + abs(low / scale), abs(q_high) + abs(high / scale)
    zero_point = from_low if low_error < high_error else from_high
    if abs(np.float32(high) + np.float32(low)) <= np.finfo(np.float32).eps:
        zero_point = 0.0
    zero_point = min(max(zero_point, q_low), q_high)
    return QuantParams(np.float32(scale), round_half_away(zero_point))


def round_half_away(x: float) -> int:
    """C++ std::round."""
    rounded = int(np.floor(abs(x) + 0.5))
    return -rounded if x < 0 else rounded


def params_of(x: Array, elem: str) -> QuantParams:
    """Choose parameters for exactly the range of ``x``."""
    return choose_params(x.min(), x.max(), elem)


def bias_params(bias: Array, source_scale: np.float32, weight_scale: np.float32) -> QuantParams:
    """Glow's specializeBiasQuantizationParams for Int32.

    The bias takes the scale of the products, unless that is too fine for its own range.
    """
    product_scale = np.float32(source_scale * weight_scale)
    own_scale = params_of(bias, "i32").scale
    return QuantParams(max(product_scale, own_scale) if bias.any() else product_scale, 0)


def quantize_constant(x: Array, params: QuantParams, elem: str) -> NDArray[np.generic]:
    """clip(round_half_even(x / S + O)), float32 up to the rounding."""
    rounded = np.rint(x / params.scale + np.float32(params.offset)).astype(np.int64)
    limits = np.iinfo(DTYPES[elem])
    return rounded.clip(limits.min, limits.max).astype(DTYPES[elem])


def calibrate(weights: Tensors, x: Array) -> dict[str, QuantParams]:
    """Choose the parameters of each activation from its range over the images ``x``.

    conv1 and conv2 are measured after their ReLU. Their range starts at 0, so their offset is
    -128 and the lower clip of the convolution is the ReLU: no instruction is left of it.
    """
    activations = forward(weights, to_nhwc(x))
    return {name: params_of(activations[name], "i8") for name in ("data", "conv1", "conv2", "fc")}


def quantize_layer(
    weights: Tensors, layer: str, source_scale: np.float32
) -> tuple[dict[str, Value], dict[str, NDArray[np.generic]]]:
    """Quantize weights and bias of a layer; return their LIR values and their integers."""
    w, bias = weights[f"{layer}_weights"], weights[f"{layer}_bias"]
    w_params = params_of(w, "i8")
    b_params = bias_params(bias, source_scale, w_params.scale)
    values = {
        f"{layer}_weights": Value(f"{layer}_weights__1", TensorType("i8", w.shape, w_params)),
        f"{layer}_bias": Value(f"{layer}_bias", TensorType("i32", bias.shape, b_params)),
    }
    integers = {
        f"{layer}_weights__1": quantize_constant(w, w_params, "i8"),
        f"{layer}_bias": quantize_constant(bias, b_params, "i32"),
    }
    return values, integers


def quantize_network(
    weights: Tensors, params: dict[str, QuantParams]
) -> tuple[Program, dict[str, NDArray[np.generic]]]:
    """Return the LIR program and its constants by LIR name."""
    values: dict[str, Value] = {}
    integers: dict[str, NDArray[np.generic]] = {}
    for layer, source in (("conv1", "data"), ("conv2", "conv1"), ("fc", "conv2")):
        layer_values, layer_integers = quantize_layer(weights, layer, params[source].scale)
        values |= layer_values
        integers |= layer_integers
    names = [
        f"{layer}_{kind}" for kind in ("bias", "weights") for layer in ("conv1", "conv2", "fc")
    ]
    constants = {name: values[name] for name in names}
    program = build_program(constants, params)
    return program, {value.name: integers[value.name] for value in program.constants}


def build_program(constants: dict[str, Value], params: dict[str, QuantParams]) -> Program:
    data = Value("data", TensorType("float", (1, 1, 8, 8)))
    output = Value("prob__1", TensorType("float", (1, 10)))
    code = [
        *convolution_part(data, constants, params),
        *classifier_part(output, constants, params),
    ]
    return Program(tuple(constants.values()), data, output, tuple(code))


def pool2_value(params: dict[str, QuantParams]) -> Value:
    """The value that the convolution part hands to the classifier part."""
    return Value("pool2__1_res", TensorType("i8", (1, 2, 2, 32), params["conv2"]))


def convolution_part(
    data: Value, c: dict[str, Value], params: dict[str, QuantParams]
) -> list[Instruction]:
    """From the float image to the second pool; a value is freed right after its last use."""
    quantized = Value("conv1__6_quantize_res", TensorType("i8", (1, 1, 8, 8), params["data"]))
    nhwc = Value("conv1__6_quantize_res__2", quantized.type.reshaped(1, 8, 8, 1))
    conv1 = Value("conv1__2_res", TensorType("i8", (1, 8, 8, 16), params["conv1"]))
    pool1 = Value("pool1__1_res", conv1.type.reshaped(1, 4, 4, 16))
    conv2 = Value("conv2__2_res", TensorType("i8", (1, 4, 4, 32), params["conv2"]))
    pool2 = pool2_value(params)
    conv1_inputs = (nhwc, c["conv1_weights"], c["conv1_bias"])
    conv2_inputs = (pool1, c["conv2_weights"], c["conv2_bias"])
    return [
        allocate(quantized),
        compute("conv1__6_quantize", "quantize", quantized, data),
        view(quantized, nhwc),
        allocate(conv1),
        compute("conv1__2", "convolution", conv1, *conv1_inputs, attributes=CONV_ATTRIBUTES),
        free(quantized),
        allocate(pool1),
        compute("pool1__2", "maxpool", pool1, conv1, attributes=POOL_ATTRIBUTES),
        free(conv1),
        allocate(conv2),
        compute("conv2__2", "convolution", conv2, *conv2_inputs, attributes=CONV_ATTRIBUTES),
        free(pool1),
        allocate(pool2),
        compute("pool2__2", "maxpool", pool2, conv2, attributes=POOL_ATTRIBUTES),
        free(conv2),
    ]


def classifier_part(
    output: Value, c: dict[str, Value], params: dict[str, QuantParams]
) -> list[Instruction]:
    """Fully connected layer, then softmax in float."""
    pool2 = pool2_value(params)
    flat = Value("pool2__1_res__2", pool2.type.reshaped(1, 128))
    fc = Value("fc__1_res", TensorType("i8", (1, 10), params["fc"]))
    scores = Value("fc__1_dequantize_res", TensorType("float", (1, 10)))
    return [
        view(pool2, flat),
        allocate(fc),
        compute("fc__1", "fullyconnected", fc, flat, c["fc_weights"], c["fc_bias"]),
        free(pool2),
        allocate(scores),
        compute("fc__1_dequantize", "dequantize", scores, fc),
        free(fc),
        compute("prob", "softmax", output, scores),
        free(scores),
    ]


def main() -> None:
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    folder = Path(__file__).parent
    with np.load(folder / "float_weights.npz") as archive:
        weights = dict(archive)
    training, _ = load_split()
    with threadpool_limits(1):  # more threads would add in another order
        params = calibrate(weights, training.x)
    program, constants = quantize_network(weights, params)
    sidecar = json.dumps(program.sidecar(constants), indent=1) + "\n"
    (folder / "digits.lir.txt").write_text(program.text(), newline="\n")
    (folder / "digits.tensors.json").write_text(sidecar, newline="\n")
    np.savez_compressed(folder / "digits.npz", **constants)
    print(f"wrote digits.lir.txt ({len(program.code)} instructions), digits.npz, sidecar")


if __name__ == "__main__":
    main()
