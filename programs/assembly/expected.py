"""What each program must answer, in NumPy: ``EXPECTED[program](inputs) -> outputs``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

Int8s = npt.NDArray[np.int8]

# Weights of one_conv.s as [ky][kx][in][out].
CONV_WEIGHTS = np.array(
    [
        [[1, 0, -1, 2], [0, 1, 1, -2], [3, -1, 0, 1], [-2, 2, 0, 1], [0, 2, -2, 1], [1, 1, -1, 3]],
        [[-1, 4, 2, 0], [5, -3, 2, 1], [7, 1, -3, 2], [-4, 6, 1, 0], [1, -2, 0, 3], [2, 2, -2, 1]],
        [[0, 1, 1, -1], [1, 0, 3, -1], [2, 0, -4, 1], [0, -1, 2, 2], [-2, 1, 0, 1], [1, -1, 0, 2]],
    ]
).reshape(3, 3, 2, 4).transpose(0, 1, 3, 2)  # fmt: skip
CONV_BIAS = np.array([40, -17])


def dma_copy(inputs: Mapping[str, Int8s]) -> dict[str, Int8s]:
    box = inputs["image"][1:4, 2:7]
    tile = np.pad(box, ((1, 2), (1, 1), (0, 0)), constant_values=-5)
    return {"tile": tile}


def one_conv(inputs: Mapping[str, Int8s]) -> dict[str, Int8s]:
    real = inputs["image"].astype(np.int64) - 3  # minus the zero point
    padded = np.pad(real, ((1, 1), (1, 1), (0, 0)))
    sums = np.zeros((5, 5, 2), np.int64) + CONV_BIAS
    for ky in range(3):
        for kx in range(3):
            sums += padded[ky : ky + 5, kx : kx + 5] @ CONV_WEIGHTS[ky, kx]
    result = ((sums + 2) >> 2) - 1
    return {"result": np.clip(result, -128, 127).astype(np.int8)}


def barrier(inputs: Mapping[str, Int8s]) -> dict[str, Int8s]:
    return {"result": np.concatenate([inputs["first"], np.full(16, 77, np.int8)])}


EXPECTED: dict[str, Callable[[Mapping[str, Int8s]], dict[str, Int8s]]] = {
    "dma_copy": dma_copy,
    "one_conv": one_conv,
    "barrier": barrier,
}


def example_inputs(program: str, seed: int = 0) -> dict[str, Int8s]:
    """Some input for a program; any int8 values will do."""
    shapes = {
        "dma_copy": ("image", (6, 8, 2)),
        "one_conv": ("image", (5, 5, 4)),
        "barrier": ("first", (16,)),
    }
    name, shape = shapes[program]
    generator = np.random.default_rng(seed)
    return {name: generator.integers(-128, 128, shape, dtype=np.int8)}
