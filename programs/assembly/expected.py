"""What each program must answer, in NumPy: ``EXPECTED[program](inputs) -> outputs``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.signedinteger]

# Weights of one_conv.s as [ky][kx][in][out].
CONV_WEIGHTS = np.array(
    [
        [[1, 0, -1, 2], [0, 1, 1, -2], [3, -1, 0, 1], [-2, 2, 0, 1], [0, 2, -2, 1], [1, 1, -1, 3]],
        [[-1, 4, 2, 0], [5, -3, 2, 1], [7, 1, -3, 2], [-4, 6, 1, 0], [1, -2, 0, 3], [2, 2, -2, 1]],
        [[0, 1, 1, -1], [1, 0, 3, -1], [2, 0, -4, 1], [0, -1, 2, 2], [-2, 1, 0, 1], [1, -1, 0, 2]],
    ]
).reshape(3, 3, 2, 4).transpose(0, 1, 3, 2)  # fmt: skip
CONV_BIAS = np.array([40, -17])
# Weights of int16_conv.s as [in][out].
INT16_WEIGHTS = np.array([[30000, 1000], [30000, -2000], [30000, 3000], [30000, -4000]])
INT16_BIAS = np.array([3_000_000_000, -3_000_000_000])


def dma_copy(inputs: Mapping[str, Array]) -> dict[str, Array]:
    box = inputs["image"][1:4, 2:7]
    tile = np.pad(box, ((1, 2), (1, 1), (0, 0)), constant_values=-5)
    return {"tile": tile}


def one_conv(inputs: Mapping[str, Array]) -> dict[str, Array]:
    real = inputs["image"].astype(np.int64) - 3  # minus the zero point
    padded = np.pad(real, ((1, 1), (1, 1), (0, 0)))
    sums = np.zeros((5, 5, 2), np.int64) + CONV_BIAS
    for ky in range(3):
        for kx in range(3):
            sums += padded[ky : ky + 5, kx : kx + 5] @ CONV_WEIGHTS[ky, kx]
    result = ((sums + 2) >> 2) - 1
    return {"result": np.clip(result, -128, 127).astype(np.int8)}


def barrier(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"result": np.concatenate([inputs["first"], np.full(16, 77, np.int8)])}


def contention(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"copy": inputs["block"]}


def int16_conv(inputs: Mapping[str, Array]) -> dict[str, Array]:
    sums = inputs["image"].astype(np.int64) @ INT16_WEIGHTS + INT16_BIAS
    result = (sums + (1 << 16)) >> 17
    return {"result": np.clip(result, -32768, 32767).astype(np.int16)}


EXPECTED: dict[str, Callable[[Mapping[str, Array]], dict[str, Array]]] = {
    "dma_copy": dma_copy,
    "one_conv": one_conv,
    "barrier": barrier,
    "contention": contention,
    "int16_conv": int16_conv,
}


def example_inputs(program: str, seed: int = 0) -> dict[str, Array]:
    """Some input for a program; any values will do."""
    shapes = {
        "dma_copy": ("image", np.int8, (6, 8, 2)),
        "one_conv": ("image", np.int8, (5, 5, 4)),
        "barrier": ("first", np.int8, (16,)),
        "contention": ("block", np.int8, (256,)),
        "int16_conv": ("image", np.int16, (1, 2, 4)),
    }
    name, dtype, shape = shapes[program]
    limits = np.iinfo(dtype)
    generator = np.random.default_rng(seed)
    return {name: generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)}
