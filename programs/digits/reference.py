"""A slow and obvious integer execution of the quantized digits network: the oracle.

It follows the formulas of Glow's libjit kernels (CPU backend) for Int8 in int64, takes its numbers
from digits.npz and digits.tensors.json alone, and shares no code with nmpsim or with quantize.py.
Run from the root of the repository: ``python programs/digits/reference.py`` measures the accuracy
on testset.npz.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]
Activations = dict[str, Integers | Floats]


@dataclass(frozen=True)
class Tensor:
    """``real = scale * (q - offset)``; ``q`` is kept in int64, whatever its width."""

    q: Integers
    scale: np.float32
    offset: int


@dataclass(frozen=True)
class ScaleInteger:
    """Glow's QuantizationTransform32To8: a float factor as shift, multiplier, shift."""

    pre: int
    post: int
    multiplier: int

    def __call__(self, x: Integers) -> Integers:
        half = 1 << (self.post - 1) if self.post > 0 else 0
        product = (x >> self.pre) * self.multiplier + half
        assert np.all(np.abs(product) < 2**31), "the formula is for 32-bit intermediates"
        return product >> self.post


def scale_integer(factor: np.float32) -> ScaleInteger:
    """Glow's quantizeScaleOffset32To8."""
    mantissa, exponent = np.frexp(factor)
    if mantissa == 0.5:  # exactly 2^(exponent - 1)
        power = int(exponent) - 1
        return ScaleInteger(0, 0, 2**power) if power > 0 else ScaleInteger(0, -power, 1)
    scale, pre, post = float(factor), 0, 0
    while scale < 0.5 or (scale < 256 and post < 15):
        scale, post = scale * 2, post + 1
    while scale < 255 and pre < post // 2:
        scale, pre = scale * 2, pre + 1
    return ScaleInteger(pre, post, int(np.floor(scale + 0.5)))


def clip8(x: Integers) -> Integers:
    return x.clip(-128, 127)


def quantize(x: Floats, scale: np.float32, offset: int) -> Integers:
    """Divide and add in float32, round half to even, clip."""
    return clip8(np.rint(x / scale + np.float32(offset)).astype(np.int64))


def dequantize(x: Tensor) -> Floats:
    return x.scale * (x.q - x.offset).astype(np.float32)


def rescaled_bias(bias: Tensor, product_scale: np.float32) -> Integers:
    """Bring the bias to the scale of the accumulator."""
    return scale_integer(bias.scale / product_scale)(bias.q - bias.offset)


def conv3x3(x: Tensor, weights: Tensor, bias: Tensor, scale: np.float32, offset: int) -> Tensor:
    """Stride 1, pad 1; NHWC and OHWI. A tap in the padding is skipped, so it is a real 0."""
    n, height, width, _ = x.q.shape
    product_scale = x.scale * weights.scale
    start = rescaled_bias(bias, product_scale)
    acc = np.tile(start, (n, height, width, 1))
    for row in range(height):
        for column in range(width):
            for ky in range(3):
                for kx in range(3):
                    y, z = row + ky - 1, column + kx - 1
                    if 0 <= y < height and 0 <= z < width:
                        taps = weights.q[:, ky, kx, :] - weights.offset
                        acc[:, row, column] += (x.q[:, y, z] - x.offset) @ taps.T
    y_q = scale_integer(product_scale / scale)(acc) + offset
    return Tensor(clip8(y_q), scale, offset)


def maxpool2x2(x: Tensor) -> Tensor:
    corners = [x.q[:, dy::2, dx::2] for dy in (0, 1) for dx in (0, 1)]
    return Tensor(np.maximum.reduce(corners), x.scale, x.offset)


def fully_connected(
    x: Tensor, weights: Tensor, bias: Tensor, scale: np.float32, offset: int
) -> Tensor:
    """``x`` is [M, K], ``weights`` [K, N]."""
    product_scale = x.scale * weights.scale
    acc = (x.q - x.offset) @ (weights.q - weights.offset) + rescaled_bias(bias, product_scale)
    y_q = scale_integer(product_scale / scale)(acc) + offset
    return Tensor(clip8(y_q), scale, offset)


def softmax(x: Floats) -> Floats:
    exps = np.exp(x - x.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Network:
    """The constants of the network and the type of each activation, by sidecar key."""

    constants: dict[str, Tensor]
    sidecar: dict[str, dict]

    def key(self, instruction: str) -> str:
        """Return the sidecar key (act/NNNN:instruction:operand) of what an instruction writes."""
        (found,) = (k for k in self.sidecar if k.split(":")[1:2] == [instruction])
        return found

    def result_params(self, instruction: str) -> tuple[np.float32, int]:
        entry = self.sidecar[self.key(instruction)]
        return np.float32(entry["scale"]), entry["offset"]

    def run(self, images: Floats) -> Activations:
        """Run (N, 1, 8, 8) images; return every activation by its sidecar key, and the output."""
        c = self.constants
        scale, offset = self.result_params("conv1__6_quantize")
        data = Tensor(quantize(images, scale, offset), scale, offset)
        nhwc = Tensor(data.q.reshape(-1, 8, 8, 1), scale, offset)
        conv1_params, conv2_params = (self.result_params(f"conv{i}__2") for i in (1, 2))
        conv1 = conv3x3(nhwc, c["conv1_weights__1"], c["conv1_bias"], *conv1_params)
        pool1 = maxpool2x2(conv1)
        conv2 = conv3x3(pool1, c["conv2_weights__1"], c["conv2_bias"], *conv2_params)
        pool2 = maxpool2x2(conv2)
        flat = Tensor(pool2.q.reshape(len(images), -1), pool2.scale, pool2.offset)
        fc_params = self.result_params("fc__1")
        fc = fully_connected(flat, c["fc_weights__1"], c["fc_bias"], *fc_params)
        scores = dequantize(fc)
        prob = softmax(scores)
        results: dict[str, Integers | Floats] = {
            "conv1__6_quantize": data.q,
            "conv1__2": conv1.q,
            "pool1__2": pool1.q,
            "conv2__2": conv2.q,
            "pool2__2": pool2.q,
            "fc__1": fc.q,
            "fc__1_dequantize": scores,
            "prob": prob,
        }
        return {self.key(name): x for name, x in results.items()} | {"output/prob__1": prob}

    def predict(self, images: Floats) -> NDArray[np.int64]:
        """Return the most probable digit of each image."""
        return self.run(images)["output/prob__1"].argmax(axis=1)


def load_network(folder: Path) -> Network:
    sidecar = json.loads((folder / "digits.tensors.json").read_text())
    constants = {}
    with np.load(folder / "digits.npz") as archive:
        for name, q in archive.items():
            entry = sidecar[f"const/{name}"]
            constants[name] = Tensor(
                q.astype(np.int64), np.float32(entry["scale"]), entry["offset"]
            )
    return Network(constants, sidecar)


def count_right(network: Network, folder: Path) -> tuple[int, int]:
    """Return (images classified right, images) of the test set."""
    with np.load(folder / "testset.npz") as archive:
        x, labels = archive["x"], archive["labels"]
    return int(np.sum(network.predict(x) == labels)), len(labels)


def main() -> None:
    folder = Path(__file__).parent
    right, total = count_right(load_network(folder), folder)
    print(f"test images: {right}/{total} right = {right / total:.2%}")


if __name__ == "__main__":
    main()
