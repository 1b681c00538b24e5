"""Weights as the MAC array wants them, and what zero points add to a sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

LANES = 16
DEPTH = 4

Int8s = npt.NDArray[np.int8]


def pack(weights: Int8s) -> Int8s:
    """[out][ky][kx][in] to [out/16][ky][(kx*in)/4][16][4], zero beyond the edges, flat."""
    out, kernel_h, kernel_w, depth = weights.shape
    row = kernel_w * depth
    blocks, groups = -(-out // LANES), -(-row // DEPTH)
    padded = np.zeros((blocks * LANES, kernel_h, groups * DEPTH), np.int8)
    padded[:out, :, :row] = weights.reshape(out, kernel_h, row)
    split = padded.reshape(blocks, LANES, kernel_h, groups, DEPTH)
    return np.ascontiguousarray(split.transpose(0, 2, 3, 1, 4)).reshape(-1)


def packed_bytes(out: int, kernel_h: int, kernel_w: int, depth: int) -> int:
    """Bytes of packed weights."""
    return -(-out // LANES) * LANES * kernel_h * -(-kernel_w * depth // DEPTH) * DEPTH


def zero_terms(weights: Int8s, offsets: npt.NDArray[Any], in_offset: int) -> npt.NDArray[np.int64]:
    """``K*Ow*Ox - Ox*sum(w)`` of each output channel; ``weights`` is [out][...]."""
    flat = weights.reshape(weights.shape[0], -1)
    sums = flat.sum(axis=1, dtype=np.int64)
    terms: npt.NDArray[np.int64] = in_offset * (flat.shape[1] * offsets.astype(np.int64) - sums)
    return terms
