"""Checks of products of a descriptor's sizes, such as the number of results.

Each size is valid on its own. Products are bounded before they are multiplied further, so that
nothing can overflow 64 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.descriptors import OPERATIONS
from nmpsim.isa.profiles import ROWS
from nmpsim.isa.words import (
    CONV,
    DWCONV,
    ELTWISE,
    GEMM,
    KINDS,
    LOAD,
    MAXPOOL,
    RESCALE,
    RHS_INT32,
    STORE,
    TRANSPOSE,
)
from nmpsim.memory.bounds import MOST, OK, exceeds_product
from nmpsim.memory.weight_tail import BLOCK_BYTES, LANES

MAX_TAPS = 1 << 23
"""Largest number of taps of a pool, so that 32 bits hold the sum of as many Int8 values."""
_LOAD, _STORE, _CONV, _DWCONV, _GEMM = (
    KINDS[name] for name in ("load", "store", "conv", "dwconv", "gemm")
)
_MAXPOOL, _AVGPOOL, _ELTWISE = (KINDS[name] for name in ("maxpool", "avgpool", "eltwise"))
_RESCALE, _TRANSPOSE = KINDS["rescale"], KINDS["transpose"]
_HAS_OPERATION = np.array([[name in row.operations for name in OPERATIONS] for row in ROWS])
_OUT_H, _OUT_W, _STRIDE_H, _STRIDE_W, _DILATION_H, _DILATION_W = (
    index - CONV.kernel_h
    for index in (
        CONV.out_h,
        CONV.out_w,
        CONV.stride_h,
        CONV.stride_w,
        CONV.dilation_h,
        CONV.dilation_w,
    )
)
"""Distances of words from ``kernel_h``, which are the same in both convolutions."""


def exceeds_window_limit(words: Any, kernel: int, run: int) -> bool:
    """Return whether window rows, window columns or the bytes of a pixel exceed their maximum."""
    rows = (words[kernel + _OUT_H] - 1) * words[kernel + _STRIDE_H]
    rows += (words[kernel] - 1) * words[kernel + _DILATION_H] + 1
    columns = (words[kernel + _OUT_W] - 1) * words[kernel + _STRIDE_W]
    columns += (words[kernel + 1] - 1) * words[kernel + _DILATION_W] + 1
    return bool(rows > MOST or columns > MOST or run > MOST)


def check_conv_amounts(words: Any, spm_bytes: int) -> int:
    """Return the index of the first invalid size of a convolution, or OK."""
    channels = words[CONV.out_channels]
    if channels % words[CONV.groups]:
        return int(CONV.out_channels)
    if exceeds_product(words[CONV.out_h], words[CONV.out_w], channels, spm_bytes):
        return int(CONV.out_h)
    pixel = words[CONV.groups] * words[CONV.in_channels] << words[CONV.element]
    if exceeds_window_limit(words, CONV.kernel_h, pixel):
        return int(CONV.input)
    block = BLOCK_BYTES >> words[CONV.element]
    if (words[CONV.kernel_w] * words[CONV.in_channels] + block - 1) // block > MOST:
        return int(CONV.kernel_w)
    lanes = (channels + LANES - 1) // LANES * LANES
    return int(CONV.weights) if lanes * words[CONV.kernel_h] * BLOCK_BYTES > MOST else OK


def check_dwconv_amounts(words: Any, spm_bytes: int) -> int:
    """Return the index of the first invalid size of a depthwise convolution, or OK."""
    channels = words[DWCONV.channels_count]
    if exceeds_product(words[DWCONV.out_h], words[DWCONV.out_w], channels, spm_bytes):
        return int(DWCONV.out_h)
    if exceeds_window_limit(words, DWCONV.kernel_h, channels << words[DWCONV.element]):
        return int(DWCONV.input)
    too_many_taps = words[DWCONV.kernel_h] * words[DWCONV.kernel_w] > MOST
    return int(DWCONV.weights) if too_many_taps else OK


def check_pool_amounts(words: Any, spm_bytes: int) -> int:
    """Return the index of the first invalid size of a pool, or OK."""
    pixel = words[MAXPOOL.channels] << words[MAXPOOL.element]
    if exceeds_product(words[MAXPOOL.out_h], words[MAXPOOL.out_w], pixel, spm_bytes):
        return int(MAXPOOL.out_h)
    if exceeds_product(
        words[MAXPOOL.kernel_h], words[MAXPOOL.kernel_w], 1, min(spm_bytes, MAX_TAPS)
    ):
        return int(MAXPOOL.kernel_h)
    return OK


def check_eltwise_amounts(words: Any, spm_bytes: int) -> int:
    """Return the index of the first invalid word of an elementwise operation, or OK.

    The profile must support the operation.
    """
    if not _HAS_OPERATION[words[ELTWISE.profile], words[ELTWISE.operation]]:
        return int(ELTWISE.operation)
    run = words[ELTWISE.columns] << words[ELTWISE.element]
    if exceeds_product(words[ELTWISE.rows], run, 1, spm_bytes):
        return int(ELTWISE.rows)
    is_split = words[ELTWISE.rhs_kind] == RHS_INT32 and words[ELTWISE.rhs_stride] % 4
    return int(ELTWISE.rhs) if is_split else OK


def check_transpose_amounts(words: Any, spm_bytes: int) -> int:
    """Return the index of the first invalid size of a transpose, or OK."""
    first, second = words[TRANSPOSE.size_0], words[TRANSPOSE.size_1]
    third, last = words[TRANSPOSE.size_2], words[TRANSPOSE.size_3]
    if exceeds_product(first, second, third, spm_bytes):
        return int(TRANSPOSE.size_0)
    return (
        int(TRANSPOSE.size_3) if exceeds_product(first * second * third, last, 1, spm_bytes) else OK
    )


def check_load_amounts(words: Any, spm_bytes: int) -> int:
    """Return the index of the first invalid size of a load with its padding, or OK."""
    columns = words[LOAD.count_x] + words[LOAD.pad_x_before] + words[LOAD.pad_x_after]
    rows = words[LOAD.count_y] + words[LOAD.pad_y_before] + words[LOAD.pad_y_after]
    is_bad = exceeds_product(rows, columns, words[LOAD.run_bytes], spm_bytes)
    return int(LOAD.count_y) if is_bad else OK


def check_store_amounts(words: Any, spm_bytes: int) -> int:
    """Return the index of the first invalid size of a store, or OK."""
    rows, columns = words[STORE.count_y], words[STORE.count_x]
    is_bad = exceeds_product(rows, columns, words[STORE.run_bytes], spm_bytes)
    return int(STORE.count_y) if is_bad else OK


def check_amounts(kind: int, words: Any, spm_bytes: int) -> int:
    """Return the index of the first word that is too large or conflicts with another, or OK."""
    bad = OK
    if kind == _LOAD:
        bad = check_load_amounts(words, spm_bytes)
    elif kind == _STORE:
        bad = check_store_amounts(words, spm_bytes)
    elif kind == _CONV:
        bad = check_conv_amounts(words, spm_bytes)
    elif kind == _DWCONV:
        bad = check_dwconv_amounts(words, spm_bytes)
    elif kind == _GEMM:
        if exceeds_product(words[GEMM.rows], words[GEMM.columns], 1, spm_bytes):
            bad = int(GEMM.rows)
    elif kind in (_MAXPOOL, _AVGPOOL):
        bad = check_pool_amounts(words, spm_bytes)
    elif kind == _ELTWISE:
        bad = check_eltwise_amounts(words, spm_bytes)
    elif kind == _RESCALE:
        if words[RESCALE.in_high] < words[RESCALE.in_low]:
            bad = int(RESCALE.in_high)
    elif kind == _TRANSPOSE:
        bad = check_transpose_amounts(words, spm_bytes)
    return bad
