"""Weights as the MAC array wants them: what the word ``weights`` of ``nmp.conv`` points at."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

LANES = 16
GROUP_BYTES = 4
"""What the array takes of a kernel row at once: four Int8 inputs, or two of Int16."""

Weights = npt.NDArray[Any]
"""int8 or int16"""


def pack(weights: Weights) -> Weights:
    """[out][ky][kx][in] to [out/16][ky][(kx*in)/n][16][n], zero beyond the edges, flat.

    n is 4 for int8, 2 for int16.
    """
    out, kernel_h, kernel_w, depth = weights.shape
    row, taken = kernel_w * depth, GROUP_BYTES // weights.itemsize
    blocks, groups = -(-out // LANES), -(-row // taken)
    padded = np.zeros((blocks * LANES, kernel_h, groups * taken), weights.dtype)
    padded[:out, :, :row] = weights.reshape(out, kernel_h, row)
    split = padded.reshape(blocks, LANES, kernel_h, groups, taken)
    return np.ascontiguousarray(split.transpose(0, 2, 3, 1, 4)).reshape(-1)


def unpack(packed: npt.NDArray[np.uint8], weights: Weights) -> None:
    """Fill ``weights``, [out][ky][kx][in], with what :func:`pack` has made of them."""
    out, kernel_h, kernel_w, depth = weights.shape
    row, taken = kernel_w * depth, GROUP_BYTES // weights.itemsize
    split = packed.view(weights.dtype).reshape(-1, kernel_h, -(-row // taken), LANES, taken)
    rows = split.transpose(0, 3, 1, 2, 4).reshape(split.shape[0] * LANES, kernel_h, -1)
    weights[...] = rows[:out, :, :row].reshape(weights.shape)


def packed_bytes(out: Any, kernel_h: int, row_bytes: Any) -> Any:
    """Bytes of packed weights; a kernel row has ``row_bytes`` of one output channel."""
    groups = -(-row_bytes // GROUP_BYTES)
    return -(-out // LANES) * LANES * kernel_h * groups * GROUP_BYTES
