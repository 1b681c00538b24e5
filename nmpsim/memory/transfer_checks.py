"""Checks of loads and stores; the DRAM side is for the engine, which knows what is mapped."""

from __future__ import annotations

from typing import Any

from nmpsim.isa.words import LOAD, STORE
from nmpsim.memory.bounds import (
    MAX_DRAM_STRIDE,
    MOST,
    OK,
    beyond_element,
    first_beyond,
    first_odd,
    outside,
    span,
    too_many,
)


def first_split(words: Any) -> int:
    """Index of the first address or stride in the scratchpad that splits an element of a load."""
    bad = first_odd(words, LOAD.spm, LOAD.run_bytes, words[LOAD.element])
    if bad == OK:
        bad = first_odd(words, LOAD.spm_stride_x, LOAD.spm_stride_y, words[LOAD.element])
    return bad


def check_load(words: Any, spm_bytes: int) -> int:
    """Check a load; the DRAM side is for the engine, which knows what is mapped."""
    bad = first_beyond(words, LOAD.run_bytes, LOAD.count_y, 0, MOST)
    if bad == OK:
        bad = first_beyond(words, LOAD.dram_stride_x, LOAD.dram_stride_y, 0, MAX_DRAM_STRIDE)
    if bad == OK:
        bad = first_beyond(words, LOAD.spm_stride_x, LOAD.spm_stride_y, 0, MOST)
    if bad == OK:
        bad = first_beyond(words, LOAD.pad_x_before, LOAD.pad_y_after, 0, MOST)
    if bad == OK:
        bad = first_beyond(words, LOAD.element, LOAD.element, 0, 1)
    if bad == OK:
        bad = beyond_element(words, LOAD.fill, LOAD.fill, words[LOAD.element])
    if bad == OK:
        bad = first_split(words)
    if bad != OK:
        return bad
    columns = words[LOAD.count_x] + words[LOAD.pad_x_before] + words[LOAD.pad_x_after]
    rows = words[LOAD.count_y] + words[LOAD.pad_y_before] + words[LOAD.pad_y_after]
    if too_many(rows, columns, max(words[LOAD.run_bytes], 1), spm_bytes):
        return int(LOAD.count_y)
    extent = span(
        rows, words[LOAD.spm_stride_y], columns, words[LOAD.spm_stride_x], words[LOAD.run_bytes]
    )
    return int(LOAD.spm) if outside(words[LOAD.spm], extent, spm_bytes) else OK


def check_store(words: Any, spm_bytes: int) -> int:
    """Check a store; the DRAM side is for the engine, which knows what is mapped."""
    bad = first_beyond(words, STORE.run_bytes, STORE.count_y, 0, MOST)
    if bad == OK:
        bad = first_beyond(words, STORE.dram_stride_x, STORE.dram_stride_y, 0, MAX_DRAM_STRIDE)
    if bad == OK:
        bad = first_beyond(words, STORE.spm_stride_x, STORE.spm_stride_y, 0, MOST)
    if bad != OK:
        return bad
    if too_many(
        words[STORE.count_y], words[STORE.count_x], max(words[STORE.run_bytes], 1), spm_bytes
    ):
        return int(STORE.count_y)
    extent = span(
        words[STORE.count_y],
        words[STORE.spm_stride_y],
        words[STORE.count_x],
        words[STORE.spm_stride_x],
        words[STORE.run_bytes],
    )
    return int(STORE.spm) if outside(words[STORE.spm], extent, spm_bytes) else OK


FUNCTIONS = (first_split, check_load, check_store)
"""What the compiled engine compiles, callees first."""
