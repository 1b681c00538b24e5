"""Scratchpad contents and descriptors for tests of tensor instructions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from core_machines import SPM

Array = npt.NDArray[Any]
Job = tuple[str, Mapping[str, int | str]]


def scale(prefix: str, pre: int = 0, mul: int = 1, post: int = 0) -> dict[str, int]:
    return {f"{prefix}_pre": pre, f"{prefix}_mul": mul, f"{prefix}_post": post}


class Layout:
    """Scratchpad contents, placed one after the other."""

    def __init__(self, gap: int = 0) -> None:
        self._contents = bytearray()
        self._gap = gap

    def put(self, values: Array, align: int = 8) -> int:
        """Place bytes, or the little-endian bytes of an array, and return their address."""
        self._contents += bytes(self._gap)
        self._contents += bytes(-len(self._contents) % align)
        at = SPM + len(self._contents)
        self._contents += (
            values if isinstance(values, bytes) else np.ascontiguousarray(values).tobytes()
        )
        return at

    def reserve(self, nbytes: int, align: int = 8) -> int:
        """Reserve bytes filled with a pattern that makes unwritten bytes visible."""
        return self.put(np.full(nbytes, 0xA5, np.uint8), align)

    def contents(self) -> bytes:
        return bytes(self._contents)


def at(address: int) -> int:
    """Return the offset of an address in the scratchpad."""
    return address - SPM


def pack_weights(weights: Array) -> Array:
    """Pack [out, ky, kx, in] as zero-padded ``[out/16][ky][(kx*in)/4][16][4]``.

    The last dimension is 2 instead of 4 for Int16.
    """
    out, rows, columns, depth = weights.shape
    side = 4 // weights.dtype.itemsize
    blocks, runs = -(-out // 16), -(-columns * depth // side)
    padded = np.zeros((blocks * 16, rows, runs * side), weights.dtype)
    padded[:out, :, : columns * depth] = weights.reshape(out, rows, columns * depth)
    return padded.reshape(blocks, 16, rows, runs, side).transpose(0, 2, 3, 1, 4).copy()


def channel_records(bias: Iterable[int], zero_terms: Iterable[int]) -> Array:
    return np.array(list(zip(bias, zero_terms, strict=True)), np.int64).astype("<i8")


def scale_records(
    weight_offsets: Array, bias: tuple[Array, Array, Array], out: tuple[Array, Array, Array]
) -> Array:
    """Build scale records from (pre, mul, post) of bias and result, one value per channel."""
    return np.stack([weight_offsets, *bias, *out], axis=1).astype("<i4")


def padded_image(x: Array, pads: Iterable[int], zero_point: int) -> Array:
    """Pad an NHWC image with the zero point; ``pads`` are top, left, bottom and right."""
    top, left, bottom, right = (int(p) for p in pads)
    around = ((0, 0), (top, bottom), (left, right), (0, 0))
    return np.pad(x, around, constant_values=zero_point)


def window_sizes(case: Mapping[str, Any], x: Array) -> dict[str, int]:
    """Return kernel, strides, dilation and result size of a padded image as words."""
    kh, kw = (int(v) for v in case["kernels"])
    sh, sw = (int(v) for v in case["strides"])
    dh, dw = (int(v) for v in case["dilation"]) if "dilation" in case else (1, 1)
    return {
        "kernel_h": kh,
        "kernel_w": kw,
        "stride_h": sh,
        "stride_w": sw,
        "dilation_h": dh,
        "dilation_w": dw,
        "out_h": (x.shape[1] - (kh - 1) * dh - 1) // sh + 1,
        "out_w": (x.shape[2] - (kw - 1) * dw - 1) // sw + 1,
    }
