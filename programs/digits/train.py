"""Train the digits network and write what does not depend on the quantization.

Writes float_weights.npz, testset.npz and images/0.npy ... 9.npy beside this file.
Run from the root of the repository: ``python programs/digits/train.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from dataset import Images, load_split
from float_net import WEIGHT_SHAPES, Array, Tensors, backward, forward, predict, to_nhwc
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

TRAIN_SEED = 7
EPOCHS = 30
BATCH_SIZE = 32
LEARNING_RATE = 2e-3
LARGEST_GREY = np.float32(16)


@dataclass
class Adam:
    """Adam (Kingma and Ba, 2015) with its usual constants; changes the weights in place."""

    weights: Tensors
    steps: int = 0
    mean: Tensors = field(init=False)
    variance: Tensors = field(init=False)

    def __post_init__(self) -> None:
        self.mean = {name: np.zeros_like(w) for name, w in self.weights.items()}
        self.variance = {name: np.zeros_like(w) for name, w in self.weights.items()}

    def step(self, grads: Tensors, rate: float) -> None:
        self.steps += 1
        correction = np.sqrt(1 - 0.999**self.steps) / (1 - 0.9**self.steps)
        size = np.float32(rate * correction)
        for name, grad in grads.items():
            self.mean[name] += np.float32(0.1) * (grad - self.mean[name])
            self.variance[name] += np.float32(0.001) * (grad * grad - self.variance[name])
            self.weights[name] -= size * self.mean[name] / (np.sqrt(self.variance[name]) + 1e-8)


def initial_weights(rng: np.random.Generator) -> Tensors:
    """He initialization; biases are 0."""
    weights: Tensors = {}
    for name, shape in WEIGHT_SHAPES.items():
        fan_in = shape[0] if name == "fc_weights" else int(np.prod(shape[1:]))
        spread = 0.0 if name.endswith("_bias") else np.sqrt(2 / fan_in)
        weights[name] = (spread * rng.standard_normal(shape)).astype(np.float32)
    return weights


def cross_entropy_gradient(scores: Array, labels: NDArray[np.int64]) -> Array:
    """Gradient of the mean softmax cross entropy with respect to the scores."""
    exps = np.exp(scores - scores.max(axis=1, keepdims=True))
    gradient = exps / exps.sum(axis=1, keepdims=True)
    gradient[np.arange(len(labels)), labels] -= 1
    return gradient / np.float32(len(labels))


def train(images: Images) -> Tensors:
    """Train on grey values 0..1, then fold the division by 16 (exact) into the first filter."""
    rng = np.random.default_rng(TRAIN_SEED)
    weights = initial_weights(rng)
    adam = Adam(weights)
    x = to_nhwc(images.x) / LARGEST_GREY
    for epoch in range(EPOCHS):
        rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        order = rng.permutation(len(x))
        for start in range(0, len(x), BATCH_SIZE):
            batch = order[start : start + BATCH_SIZE]
            activations = forward(weights, x[batch])
            dfc = cross_entropy_gradient(activations["fc"], images.labels[batch])
            adam.step(backward(weights, activations, dfc), rate)
    weights["conv1_weights"] /= LARGEST_GREY
    return weights


def save_one_image_per_digit(folder: Path, test: Images, right: NDArray[np.bool_]) -> None:
    """Write the first test image of each digit that the float network classifies right."""
    folder.mkdir(exist_ok=True)
    for digit in range(10):
        index = np.flatnonzero(right & (test.labels == digit))[0]
        np.save(folder / f"{digit}.npy", test.x[index : index + 1])


def main() -> None:
    folder = Path(__file__).parent
    training, test = load_split()
    with threadpool_limits(1):  # more threads would add in another order
        weights = train(training)
    right = predict(weights, test.x) == test.labels
    right_in_training = int(np.sum(predict(weights, training.x) == training.labels))
    np.savez_compressed(folder / "float_weights.npz", **weights)
    np.savez_compressed(folder / "testset.npz", x=test.x, labels=test.labels)
    save_one_image_per_digit(folder / "images", test, right)
    print(f"training images: {right_in_training}/{len(training.x)} right")
    print(f"test images: {right.sum()}/{len(right)} right = {right.mean():.2%}")


if __name__ == "__main__":
    main()
