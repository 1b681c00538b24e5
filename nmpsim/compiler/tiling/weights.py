"""Weights as the MAC array wants them, and what zero points add to a sum."""

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


def packed_bytes(out: Any, kernel_h: int, row_bytes: Any) -> Any:
    """Bytes of packed weights; a kernel row has ``row_bytes`` of one output channel."""
    groups = -(-row_bytes // GROUP_BYTES)
    return -(-out // LANES) * LANES * kernel_h * groups * GROUP_BYTES


def zero_terms(
    weights: Weights, offsets: npt.NDArray[Any], in_offset: int
) -> npt.NDArray[np.int64]:
    """``K*Ow*Ox - Ox*sum(w)`` of each output channel; ``weights`` is [out][...]."""
    flat = weights.reshape(weights.shape[0], -1)
    sums = flat.sum(axis=1, dtype=np.int64)
    terms: npt.NDArray[np.int64] = in_offset * (flat.shape[1] * offsets.astype(np.int64) - sums)
    return terms
