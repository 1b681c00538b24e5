"""The pieces that checks are made of, by their own words."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from memory_descriptors import INT8, INT16, ONE, PROFILES, ROOMY, SPM, make_words

from nmpsim.isa.descriptors import DESCRIPTORS
from nmpsim.isa.profiles import PROFILES_OF, ROWS
from nmpsim.isa.words import KINDS
from nmpsim.memory.bounds import (
    OK,
    count_spanned_bytes,
    exceeds_element_range,
    exceeds_product,
    is_outside_scratchpad,
    ranges_overlap,
)
from nmpsim.memory.checks import find_invalid_word, has_invalid_scale_table, overlaps_itself
from nmpsim.memory.footprint import (
    INPUT,
    IS_PLAIN,
    MAX_TOUCHES,
    START,
    TOUCH_WORDS,
    add_run,
    repeat_row,
)
from nmpsim.memory.limits import find_invalid_size, find_misaligned_word, find_out_of_range_word

RECORD_BYTES = 28
"""Of a scale record: weight_offset, bias (pre, mul, post), out (pre, mul, post)."""
COLUMNS = ("weight_offset", "bias_pre", "bias_mul", "bias_post", "out_pre", "out_mul", "out_post")
INFINITY = 0x7F80_0000


def test_span_covers_all_elements() -> None:
    assert count_spanned_bytes(1, 0, 1, 0, 5) == 5
    assert count_spanned_bytes(3, 100, 4, 10, 5) == 235
    assert count_spanned_bytes(3, 0, 4, 0, 5) == 5
    assert count_spanned_bytes(3, 100, 4, 10, 1) == 231
    for nothing in ((0, 100, 4, 10, 5), (3, 100, 0, 10, 5), (3, 100, 4, 10, 0)):
        assert count_spanned_bytes(*nothing) == 0
    for nothing in ((-1, 100, 4, 10, 5), (3, 100, -1, 10, 5), (3, 100, 4, 10, -1)):
        assert count_spanned_bytes(*nothing) == 0


def test_outside_finds_accesses_outside_memory() -> None:
    for address, extent, expected in (
        (SPM, 100, False),
        (SPM, 101, True),
        (SPM - 1, 1, True),
        (SPM - 1, 0, True),
        (SPM + 99, 1, False),
        (SPM + 100, 1, True),
        (SPM + 100, 0, False),
        (SPM + 101, 0, True),
        (SPM, -1, True),
        (SPM, 0, False),
        (0, 0, True),
    ):
        assert is_outside_scratchpad(address, extent, 100) is expected, (address, extent)


def test_overlaps_are_found() -> None:
    for a, a_extent in ((0, 0), (0, 5), (3, 0), (3, 4), (7, 1)):
        for b in range(-3, 12):
            for b_extent in range(6):
                shared = set(range(a, a + a_extent)) & set(range(b, b + b_extent))
                assert ranges_overlap(a, a_extent, b, b_extent) is bool(shared)


def box_overlaps_itself(rows: int, stride_y: int, columns: int, stride_x: int, run: int) -> bool:
    touches = defaultdict[tuple[int, int], int](int, {(0, IS_PLAIN): 1})
    row = add_run(touches, True, INPUT, 0, run)
    repeat_row(touches, row, columns, stride_x)
    repeat_row(touches, row, rows, stride_y)
    return overlaps_itself(touches, row)


def test_overlaps_of_runs_with_themselves_are_found() -> None:
    assert not box_overlaps_itself(1, 0, 1, 0, 5)
    for stride, expected in ((0, True), (4, True), (5, False), (6, False)):
        assert box_overlaps_itself(1, 0, 2, stride, 5) is expected
        assert box_overlaps_itself(2, stride, 1, 0, 5) is expected
    for stride, expected in ((24, True), (25, False), (26, False)):
        assert box_overlaps_itself(2, stride, 3, 10, 5) is expected


def test_runs_may_overlap_along_each_axis() -> None:
    steps = (8, 16, 32, 64)
    for axis in range(len(steps)):
        for step, expected in ((steps[axis] - 1, True), (steps[axis], False)):
            touches = np.zeros((MAX_TOUCHES, TOUCH_WORDS), np.int64)
            touches[0, IS_PLAIN] = 1
            row = add_run(touches, True, INPUT, 0, steps[0])
            for other, usual in enumerate(steps):
                repeat_row(touches, row, 2, step if other == axis else usual)
            assert overlaps_itself(touches, row) is expected, (axis, step)


def test_a_check_ignores_operands_of_the_previous_instruction() -> None:
    touches = np.zeros((MAX_TOUCHES, TOUCH_WORDS), np.int64)

    def check_word(name: str, changes: dict[str, int]) -> int:
        words = make_words(name, changes)
        values = [words.get(word.name, 0) for word in DESCRIPTORS[name]]
        return find_invalid_word(KINDS[name], values, ROOMY, touches)

    assert check_word("conv", {}) == OK
    assert check_word("rescale", {"output": int(touches[3, START])}) == OK


def test_the_first_wrong_word_is_named() -> None:
    """Of a store: run_bytes, count_x, count_y, two strides in DRAM, two in the scratchpad."""
    kind, most = KINDS["store"], 1 << 26
    words = [0, 0, 0, most + 1, -1, most, 2 * most, 0, most + 1, 0]
    assert find_out_of_range_word(kind, words, 0, 3) == OK
    assert find_out_of_range_word(kind, words, 0, 10) == 3
    assert find_out_of_range_word(kind, words, 3, 4) == 3
    assert find_out_of_range_word(kind, words, 4, 10) == 4
    assert find_out_of_range_word(kind, words, 5, 10) == 8
    assert find_out_of_range_word(kind, words, 5, 8) == OK
    assert find_invalid_size(kind, words) == 3


def test_the_first_misaligned_word_is_named() -> None:
    """Of a fill: layer, element, output, count, value."""
    kind = KINDS["fill"]
    assert find_misaligned_word(kind, [1, INT16, 7, 3, 5]) == 2
    assert find_misaligned_word(kind, [1, INT16, 8, 3, 5]) == OK
    assert find_misaligned_word(kind, [1, INT8, 7, 3, 5]) == OK
    words = dict.fromkeys((word.name for word in DESCRIPTORS["gemm"]), 0) | {"element": INT16}
    names = [*words]
    assert find_misaligned_word(
        KINDS["gemm"], [*(words | {"out_stride": 3}).values()]
    ) == names.index("out_stride")
    both = words | {"out_stride": 3, "rhs": 5}
    assert find_misaligned_word(KINDS["gemm"], [*both.values()]) == names.index("rhs")
    assert find_misaligned_word(KINDS["gemm"], [*(both | {"element": INT8}).values()]) == OK


@pytest.mark.parametrize(("element", "most"), [(INT8, 127), (INT16, 32767)])
def test_values_outside_the_element_are_wrong(element: int, most: int) -> None:
    for value in (-most - 1, -1, 0, most):
        assert not exceeds_element_range(value, element)
    for value in (most + 1, -most - 2):
        assert exceeds_element_range(value, element)


def test_unknown_profiles_are_wrong() -> None:
    numbers = {row.name: row.number for row in ROWS}
    assert numbers.items() >= PROFILES.items()
    for name, known in PROFILES_OF.items():
        index = [word.name for word in DESCRIPTORS[name]].index("profile")
        for profile in range(70):
            words = [0] * index + [profile]
            expected = OK if profile in [numbers[p] for p in known] else index
            assert find_out_of_range_word(KINDS[name], words, index, index + 1) == expected


def test_products_beyond_the_limit_are_wrong() -> None:
    for a, b, c in ((1, 1, 1), (3, 4, 5), (4, 3, 5), (60, 1, 1), (1, 60, 1), (1, 1, 60)):
        product = a * b * c
        for most in (product - 1, product, product + 1):
            assert exceeds_product(a, b, c, most) is (product > most)
    # A product of two beyond the limit is too much, even where nothing is done with it.
    assert exceeds_product(3, 4, 0, 11)
    assert not exceeds_product(3, 4, 0, 12)
    assert not exceeds_product(0, 1 << 26, 1 << 26, 100)


class Table:
    """Scale records after the first bytes of a scratchpad, as Int32 words."""

    def __init__(self, channels: int, at: int) -> None:
        self.channels, self.address = channels, SPM + at
        self.words = [77 << 20] * (at // 4) + [0, 1, ONE, 1, 1, ONE, 1] * channels + [-1] * 9

    def bad(self, element: int, profile: str) -> bool:
        number = PROFILES[profile]
        return has_invalid_scale_table(self.words, self.address, self.channels, element, number)

    def put(self, channel: int, column: str, value: int) -> None:
        first = (self.address - SPM + RECORD_BYTES * channel) // 4
        self.words[first + COLUMNS.index(column)] = value


@pytest.mark.parametrize("at", [0, 4, 400])
@pytest.mark.parametrize("channels", [1, 5])
def test_wrong_tables_of_scales_are_found(channels: int, at: int) -> None:
    integer = [(column, value) for column in COLUMNS if column.endswith(("pre", "post"))
               for value in (-1, 32)]  # fmt: skip
    real = [(column, value) for column in ("bias_mul", "out_mul") for value in (-1, INFINITY)]
    for profile, wrong, fine in (
        ("glow_int", integer, real),
        ("nmp", integer, real),
        ("q31", integer, real),
        ("glow_float", real, integer),
        ("float", real, integer),
        ("fbgemm", real, integer),
        ("onednn", real, integer),
    ):
        for element, most in ((INT8, 127), (INT16, 32767)):
            assert not Table(channels, at).bad(element, profile)
            offsets = [("weight_offset", most + 1), ("weight_offset", -most - 2)]
            within = [("weight_offset", most), ("weight_offset", -most - 1)]
            if profile not in ("glow_float", "float", "fbgemm", "onednn"):
                within += [("bias_pre", 31), ("bias_post", 31), ("out_post", 31)]
            for changes, expected in ((wrong + offsets, True), (fine + within, False)):
                for column, value in changes:
                    for channel in {0, channels - 1}:
                        table = Table(channels, at)
                        table.put(channel, column, value)
                        assert table.bad(element, profile) is expected, (column, value)


@pytest.mark.parametrize(("element", "most"), [(INT8, 31), (INT16, 14 + 3)])
def test_an_unreduced_multiplier_of_a_table_is_wrong(element: int, most: int) -> None:
    """q31 of Int16 shifts by 15 - pre + post, at least by one; only what scales results."""
    for column in ("bias_pre", "out_pre"):
        limit = most if column == "out_pre" else 31
        for pre in range(32):
            table = Table(3, 8)
            table.put(2, column, pre)
            table.put(2, column.replace("pre", "post"), 3)
            assert table.bad(element, "q31") is (pre > limit)


def test_a_missing_table_is_valid() -> None:
    assert not has_invalid_scale_table([-1] * 99, 0, 5, INT8, PROFILES["glow_int"])
    assert has_invalid_scale_table([-1] * 99, SPM, 5, INT8, PROFILES["glow_int"])
