"""Compare the computed footprints of instructions with observed accesses, byte by byte."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from nmpsim.isa.table import DESCRIPTORS
from nmpsim.isa.words import KINDS
from nmpsim.memory import footprint as f
from nmpsim.memory.weight_tail import find_nonzero_padding

SIZES, STEPS = st.integers(1, 4), st.integers(0, 40)


def list_bytes(rows: np.ndarray, row: int) -> set[int]:
    axes = [(rows[row, i], rows[row, i + 1]) for i in range(f.FIRST_AXIS, f.TOUCH_WORDS, 2)]
    axes = [axis for axis in axes if axis[0] > 0]
    offsets = itertools.product(*([step * n for n in range(count)] for count, step in axes))
    start, run = int(rows[row, f.START]), int(rows[row, f.RUN])
    return {int(start + sum(one) + byte) for one in offsets for byte in range(run)}


def get_touched_bytes(
    name: str, words: dict[str, int], plain: bool = False
) -> dict[tuple[bool, str], set[int]]:
    values = np.array([words.get(word.name, 0) for word in DESCRIPTORS[name]], np.int64)
    rows = np.zeros((f.MAX_TOUCHES, f.TOUCH_WORDS), np.int64)
    rows[0, f.IS_PLAIN] = plain
    f.compute_footprint(KINDS[name], values, rows)
    found = {}
    for row in range(1, int(rows[0, f.COUNT]) + 1):
        found[row <= rows[0, f.WRITES], f.OPERANDS[int(rows[row, f.WHAT])]] = list_bytes(rows, row)
        assert rows[row, f.END] == max(list_bytes(rows, row)) + 1
    return found


@given(st.data(), st.booleans())
@examples(150)
def test_footprints_of_windows_are_the_bytes_of_their_taps(
    data: st.DataObject, plain: bool
) -> None:
    names = ("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w")
    d = {name: data.draw(SIZES) for name in (*names, "out_h", "out_w", "groups", "in_channels")}
    d |= {"out_channels": data.draw(SIZES), "element": data.draw(st.integers(0, 1))}
    d |= {"input": 1000, "in_row_stride": data.draw(STEPS), "in_pixel_stride": data.draw(STEPS)}
    d |= {"out_row_stride": 100, "out_pixel_stride": 20, "output": 9000}
    pixel = d["groups"] * d["in_channels"] << d["element"]
    expected = {
        1000 + (y * d["stride_h"] + ky * d["dilation_h"]) * d["in_row_stride"]
        + (x * d["stride_w"] + kx * d["dilation_w"]) * d["in_pixel_stride"] + byte
        for y in range(d["out_h"]) for x in range(d["out_w"])
        for ky in range(d["kernel_h"]) for kx in range(d["kernel_w"]) for byte in range(pixel)
    }  # fmt: skip
    found = get_touched_bytes("conv", d, plain)
    assert found[False, "input"] == expected
    assert found[True, "output"] == {
        9000 + y * 100 + x * 20 + byte
        for y in range(d["out_h"]) for x in range(d["out_w"])
        for byte in range(d["out_channels"] << d["element"])
    }  # fmt: skip


def test_bytes_without_a_tap_are_not_accessed() -> None:
    d = {"kernel_h": 1, "kernel_w": 1, "stride_h": 2, "stride_w": 2, "dilation_h": 1}
    d |= {"dilation_w": 1, "out_h": 2, "out_w": 2, "channels_count": 3, "input": 0}
    d |= {"in_row_stride": 12, "in_pixel_stride": 3, "output": 500, "out_row_stride": 6}
    found = get_touched_bytes("dwconv", d | {"out_pixel_stride": 3})
    assert found[False, "input"] == {0, 1, 2, 6, 7, 8, 24, 25, 26, 30, 31, 32}


def test_parts_of_a_sum_read_and_write_partial_sums() -> None:
    d = {"rows": 2, "inner": 3, "columns": 4, "lhs_stride": 3, "rhs_stride": 4, "out_stride": 4}
    d |= {"lhs": 0, "rhs": 100, "output": 200, "partial": 304}
    sums, result = set(range(304, 304 + 32)), set(range(200, 208))
    expected = {0: (None, None, result), 1: (None, sums, None), 2: (sums, sums, None)}
    expected[3] = (sums, None, result)
    for part, (reads, writes, output) in expected.items():
        found = get_touched_bytes("gemm", d | {"part": part})
        assert found.get((False, "partial")) == reads
        assert found.get((True, "partial")) == writes
        assert found.get((True, "output")) == output


@given(st.lists(st.tuples(SIZES, STEPS, STEPS), min_size=4, max_size=4), st.booleans())
@examples(100)
def test_footprints_of_strided_copies_are_exact(
    axes: list[tuple[int, int, int]], plain: bool
) -> None:
    d = {"element_bytes": 2, "input": 5000, "output": 100}
    for i, (size, reads, writes) in enumerate(axes):
        d |= {f"size_{i}": size, f"in_stride_{i}": reads, f"out_stride_{i}": writes}
    found = get_touched_bytes("transpose", d, plain)
    for side, start, which in ((False, 5000, 1), (True, 100, 2)):
        steps = [[one[which] * n for n in range(one[0])] for one in axes]
        expected = {start + sum(p) + b for p in itertools.product(*steps) for b in range(2)}
        assert found[side, "input" if start == 5000 else "output"] == expected


def test_footprints_of_transfers_are_exact() -> None:
    d = {"dram": 7000, "spm": 100, "run_bytes": 2, "count_x": 2, "count_y": 2, "dram_stride_x": 9}
    d |= {"dram_stride_y": 50, "spm_stride_x": 2, "spm_stride_y": 20}
    dram = {7000, 7001, 7009, 7010, 7050, 7051, 7059, 7060}
    stored = get_touched_bytes("store", d)
    assert stored == {
        (True, "dram"): dram,
        (False, "spm"): {100, 101, 102, 103, 120, 121, 122, 123},
    }
    loaded = get_touched_bytes("load", d | {"pad_x_before": 1, "pad_y_after": 1})
    assert loaded[False, "dram"] == dram
    assert loaded[True, "spm"] == {100 + y * 20 + x for y in range(3) for x in range(6)}
    only_padding = get_touched_bytes("load", d | {"count_x": 0, "pad_x_after": 3})
    assert (False, "dram") not in only_padding


def rows() -> st.SearchStrategy[np.ndarray]:
    axes = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 60)), max_size=4)
    return st.builds(_row, st.integers(0, 120), st.integers(1, 9), axes)


def _row(start: int, run: int, axes: list[tuple[int, int]]) -> np.ndarray:
    found = np.zeros((f.MAX_TOUCHES, f.TOUCH_WORDS), np.int64)
    row = f.add_run(found, False, f.INPUT, start, run)
    for count, step in axes:
        f.repeat_row(found, row, count, step)
    return found


@given(rows(), rows())
@examples(400)
def test_overlap_is_exact(a: np.ndarray, b: np.ndarray) -> None:
    mine, theirs = list_bytes(a, 1), list_bytes(b, 1)
    assert f.rows_overlap(a, 1, b, 1) == bool(mine & theirs)
    assert f.rows_overlap(b, 1, a, 1) == bool(mine & theirs)
    for at in range(0, 200, 7):
        assert f.overlaps_range(a, 1, at, at + 3) == bool(mine & {at, at + 1, at + 2})


def blocks(inputs: int, outputs: int, rows: int, element: int) -> Iterator[tuple[int, bool]]:
    """Yield the offset of each byte of packed weights and whether it belongs to a weight."""
    block = 4 >> element
    count = -(-inputs // block)
    order = itertools.product(
        range(-(-outputs // 16)), range(rows), range(count), range(16), range(4)
    )
    for at, (group, _, piece, lane, byte) in enumerate(order):
        real = group * 16 + lane < outputs and piece * block + (byte >> element) < inputs
        yield at, real


@given(SIZES, SIZES, st.integers(1, 9), st.integers(1, 35), st.integers(0, 1))
@examples(60)
def test_padding_of_weights_is_found(h: int, w: int, ins: int, outs: int, wide: int) -> None:
    d = {"kernel_h": h, "kernel_w": w, "in_channels": ins, "out_channels": outs, "element": wide}
    d |= {"weights": 0x2000_0000}
    words = [d.get(word.name, 0) for word in DESCRIPTORS["conv"]]
    places = list(blocks(w * ins, outs, h, wide))
    memory = np.array([1 if real else 0 for _, real in places], np.uint8)
    assert find_nonzero_padding(words, memory) == -1
    for at, real in places:
        if not real:
            memory[at] = 1
            assert find_nonzero_padding(words, memory) == 0x2000_0000 + at
            memory[at] = 0
