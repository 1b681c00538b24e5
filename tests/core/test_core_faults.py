"""Test that the trap of an invalid descriptor names the invalid word."""

from __future__ import annotations

import numpy as np
import pytest
from core_machines import IMAGE_BASE, RAM_BASE, SPM, device, from_descriptors, from_text, run_both
from core_tensors import Layout, scale_records
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from nmpsim.core.state import Outcome, TrapField
from nmpsim.isa.codec import BY_MNEMONIC, get_word_indices
from nmpsim.isa.table import DESCRIPTORS, TrapCause


@pytest.mark.parametrize("address", [SPM + 2, 0, SPM + 131072 - 56, 0xFFFF_FFFC])
def test_a_descriptor_outside_memory_traps(address: int) -> None:
    m = run_both(from_text(f"la t0, {address:#x}\nnmp.load t0"), Outcome.TRAP)
    trap = m.shared.trap[0]
    assert [trap[TrapField.CAUSE], trap[TrapField.VALUE]] == [TrapCause.DESCRIPTOR_FAULT, address]


IMAGE = {"in_row_stride": 64, "in_pixel_stride": 16, "out_row_stride": 64, "out_pixel_stride": 16}
WINDOW = dict.fromkeys(("kernel_h", "kernel_w", "stride_h", "stride_w", "out_h", "out_w"), 1)
DILATION = dict.fromkeys(("dilation_h", "dilation_w"), 1)
IN, WEIGHTS, TABLE, SCALES, OUT, SUMS = (SPM + 4096 * n for n in range(6))
OPERANDS = {"input": IN, "weights": WEIGHTS, "channels": TABLE, "scales": SCALES, "output": OUT}
CONV = {
    **IMAGE, **WINDOW, **DILATION, **OPERANDS,
    "groups": 1, "in_channels": 16, "out_channels": 16, "part": 1, "partial": SUMS,
}  # fmt: skip
DWCONV = {**IMAGE, **WINDOW, **DILATION, **OPERANDS, "channels_count": 16}
GEMM = {
    "lhs": IN, "rhs": WEIGHTS, "output": OUT, "partial": SUMS, "part": 1, "rows": 2, "inner": 3,
    "columns": 4, "lhs_stride": 3, "rhs_stride": 4, "out_stride": 4,
}  # fmt: skip
POOL = {**IMAGE, **WINDOW, "input": IN, "output": OUT, "channels": 16, "in_h": 2, "in_w": 2}
PAIR = {
    "lhs": IN, "rhs": WEIGHTS, "output": OUT, "rows": 2, "columns": 8,
    "lhs_stride": 8, "rhs_stride": 8, "out_stride": 8,
}  # fmt: skip
UNARY = {"input": IN, "output": OUT, "count": 8}
LOOK_UP = {"input": IN, "output": OUT, "table": TABLE, "count": 8}
COPY = {
    "input": IN, "output": OUT, "element_bytes": 1,
    **{f"size_{n}": 2 for n in range(4)}, **{f"in_stride_{n}": 2 for n in range(4)},
    **{f"out_stride_{n}": 2 for n in range(4)},
}  # fmt: skip
BOX = {
    "dram": RAM_BASE, "spm": IN, "run_bytes": 8, "count_x": 2, "count_y": 2,
    "dram_stride_x": 8, "dram_stride_y": 16, "spm_stride_x": 8, "spm_stride_y": 16,
}  # fmt: skip

GOOD = {
    "nmp.conv": CONV,
    "nmp.dwconv": DWCONV,
    "nmp.gemm": GEMM,
    "nmp.maxpool": POOL,
    "nmp.avgpool": POOL,
    "nmp.eltwise": PAIR,
    "nmp.rescale": UNARY,
    "nmp.lut": LOOK_UP,
    "nmp.fill": {"output": OUT, "count": 9},
    "nmp.transpose": COPY,
    "nmp.load": BOX,
    "nmp.store": BOX,
}
HUGE = 0xFFFF_FFFF
INFINITY = 0x7F80_0000
"""Bits of a float32."""
ONE = 0x3F80_0000
WIDE_IMAGE = {
    "element": 1, "in_row_stride": 128, "in_pixel_stride": 32, "out_row_stride": 128,
    "out_pixel_stride": 32,
}  # fmt: skip
WIDE_PAIR = {"element": 1, "lhs_stride": 16, "rhs_stride": 16, "out_stride": 16}
FLOATS = {
    "profile": "float", "lhs_mul": ONE, "rhs_mul": ONE, "out_mul": ONE, "result_scale": ONE,
}  # fmt: skip
BAD: list[tuple[str, dict[str, int | str], str]] = [
    ("nmp.conv", {"out_channels": 0}, "out_channels"),
    ("nmp.conv", {"groups": 3}, "out_channels"),
    ("nmp.conv", {"kernel_h": HUGE}, "kernel_h"),
    ("nmp.conv", {"input": 0}, "input"),
    ("nmp.conv", {"input": SPM + 131072 - 15}, "input"),
    ("nmp.conv", {"weights": SPM + 131072 - 255}, "weights"),
    ("nmp.conv", {"channels": TABLE + 1}, "channels"),
    ("nmp.conv", {"scales": SCALES + 2}, "scales"),
    ("nmp.conv", {"part": 2, "partial": SUMS + 2}, "partial"),
    ("nmp.conv", {"partial": SPM + 131072 - 60}, "partial"),
    ("nmp.conv", {"output": SPM - 1}, "output"),
    ("nmp.conv", {"output": IN + 15}, "output"),
    ("nmp.conv", {"output": WEIGHTS + 255}, "output"),
    ("nmp.conv", {"output": TABLE + 127}, "output"),
    ("nmp.conv", {"output": SCALES + 447}, "output"),
    ("nmp.conv", {"output": SUMS + 63}, "partial"),
    ("nmp.conv", {"partial": IN}, "partial"),
    ("nmp.conv", {"partial": WEIGHTS - 60}, "partial"),
    ("nmp.conv", {"partial": TABLE + 124}, "partial"),
    ("nmp.conv", {"partial": SCALES + 444}, "partial"),
    ("nmp.conv", {"out_w": 2, "out_pixel_stride": 15}, "output"),
    ("nmp.conv", {"weight_offset": 128}, "weight_offset"),
    ("nmp.conv", {"bias_post": 32}, "bias_pre"),
    ("nmp.conv", {"activation": 2}, "activation"),
    ("nmp.conv", {"clip_low": 1}, "clip_high"),
    ("nmp.conv", {"clip_low": -129}, "clip_low"),
    ("nmp.conv", {"clip_wanted": 4}, "clip_wanted"),
    ("nmp.conv", {"element": 2}, "element"),
    ("nmp.conv", {"profile": "qnnpack"}, "profile"),
    ("nmp.conv", {"profile": 11}, "profile"),
    ("nmp.conv", {"profile": HUGE}, "profile"),
    ("nmp.conv", {"channels": TABLE + 4}, "channels"),
    ("nmp.conv", {"channels": SPM + 131072 - 248}, "channels"),
    ("nmp.conv", {"profile": "glow_float", "out_mul": INFINITY}, "out_pre"),
    ("nmp.conv", {"profile": "float", "out_mul": -1}, "out_pre"),
    ("nmp.conv", {"profile": "glow_float_late", "bias_mul": INFINITY}, "bias_pre"),
    ("nmp.conv", {"profile": "onednn"}, "result_scale"),
    ("nmp.conv", {"profile": "onednn", "result_scale": INFINITY}, "result_scale"),
    ("nmp.conv", {"profile": "q31", "out_pre": 32}, "out_pre"),
    ("nmp.conv", {"profile": "q31", "activation": 1}, "activation"),
    ("nmp.conv", {"profile": "float", "activation": 1}, "activation"),
    ("nmp.conv", WIDE_IMAGE | {"profile": "q31", "out_pre": 15}, "out_pre"),
    ("nmp.conv", WIDE_IMAGE | {"input": IN + 1}, "input"),
    ("nmp.conv", WIDE_IMAGE | {"weights": WEIGHTS + 1}, "weights"),
    ("nmp.conv", WIDE_IMAGE | {"weights": SPM + 131072 - 510}, "weights"),
    ("nmp.conv", WIDE_IMAGE | {"output": OUT + 1}, "output"),
    ("nmp.conv", WIDE_IMAGE | {"in_row_stride": 127}, "in_row_stride"),
    ("nmp.conv", WIDE_IMAGE | {"out_pixel_stride": 33}, "out_pixel_stride"),
    ("nmp.conv", WIDE_IMAGE | {"out_w": 2, "out_pixel_stride": 30}, "output"),
    ("nmp.conv", WIDE_IMAGE | {"partial": SUMS + 4}, "partial"),
    ("nmp.conv", WIDE_IMAGE | {"partial": SPM + 131072 - 120}, "partial"),
    ("nmp.conv", WIDE_IMAGE | {"partial": IN + 30 - 128 + 2}, "partial"),
    ("nmp.conv", WIDE_IMAGE | {"clip_low": -32769}, "clip_low"),
    ("nmp.conv", WIDE_IMAGE | {"clip_high": 32768}, "clip_high"),
    ("nmp.conv", WIDE_IMAGE | {"weight_offset": 32768}, "weight_offset"),
    ("nmp.dwconv", {"output": WEIGHTS + 15}, "output"),
    ("nmp.dwconv", {"output": TABLE}, "output"),
    ("nmp.dwconv", {"output": SCALES - 15}, "output"),
    ("nmp.dwconv", {"weights": SPM + 131072 - 15}, "weights"),
    ("nmp.dwconv", {"profile": "qnnpack"}, "profile"),
    ("nmp.dwconv", WIDE_IMAGE | {"weights": SPM + 131072 - 30}, "weights"),
    ("nmp.dwconv", WIDE_IMAGE | {"out_row_stride": 3}, "out_row_stride"),
    ("nmp.gemm", {"rows": 0}, "rows"),
    ("nmp.gemm", {"element": 3}, "element"),
    ("nmp.gemm", {"profile": "fbgemm"}, "profile"),
    ("nmp.gemm", {"profile": "onednn"}, "profile"),
    ("nmp.gemm", {"profile": "qnnpack"}, "profile"),
    ("nmp.gemm", {"profile": "float", "out_mul": -(2**31)}, "out_pre"),
    ("nmp.gemm", {"element": 1, "lhs_stride": 6, "rhs_stride": 9}, "rhs_stride"),
    ("nmp.gemm", {"element": 1, "lhs_stride": 6, "rhs_stride": 8, "out_stride": 8,
                  "partial": SUMS + 4}, "partial"),
    ("nmp.gemm", {"rhs": SPM + 131072 - 11}, "rhs"),
    ("nmp.gemm", {"output": IN + 5}, "output"),
    ("nmp.gemm", {"partial": OUT + 4}, "partial"),
    ("nmp.gemm", {"partial": IN + 4}, "partial"),
    ("nmp.gemm", {"partial": WEIGHTS - 28}, "partial"),
    ("nmp.gemm", {"lhs_offset": -129}, "lhs_offset"),
    ("nmp.maxpool", {"empty_value": 128}, "empty_value"),
    ("nmp.maxpool", {"stride_h": 0}, "stride_h"),
    ("nmp.maxpool", {"kernel_h": 1 << 10, "kernel_w": 1 << 10}, "kernel_h"),
    ("nmp.maxpool", {"element": 2}, "element"),
    ("nmp.maxpool", WIDE_IMAGE | {"empty_value": 32768}, "empty_value"),
    ("nmp.maxpool", WIDE_IMAGE | {"input": SPM + 131072 - 190}, "input"),
    ("nmp.maxpool", WIDE_IMAGE | {"output": OUT + 1}, "output"),
    ("nmp.avgpool", {"profile": "glow_float_late"}, "profile"),
    ("nmp.avgpool", {"profile": "onednn"}, "profile"),
    ("nmp.avgpool", {"profile": "qnnpack"}, "profile"),
    ("nmp.avgpool", {"profile": "fbgemm", "out_mul": INFINITY}, "out_pre"),
    ("nmp.avgpool", {"in_offset": 128}, "in_offset"),
    ("nmp.avgpool", {"divide": 2}, "divide"),
    ("nmp.avgpool", {"output": IN + 95}, "output"),
    ("nmp.eltwise", {"operation": 5}, "operation"),
    ("nmp.eltwise", {"output": IN + 1}, "output"),
    ("nmp.eltwise", {"rhs_kind": 1, "rhs": WEIGHTS + 2}, "rhs"),
    ("nmp.eltwise", {"rhs_kind": 1, "rhs_stride": 32, "output": WEIGHTS}, "output"),
    ("nmp.eltwise", {"element": 2}, "element"),
    ("nmp.eltwise", {"profile": "glow_float_late"}, "profile"),
    ("nmp.eltwise", {"profile": "fbgemm"}, "profile"),
    ("nmp.eltwise", {"profile": "qnnpack", "operation": "max"}, "operation"),
    ("nmp.eltwise", {"profile": "qnnpack", "operation": "mul"}, "operation"),
    ("nmp.eltwise", {"profile": "qnnpack", "out_post": 32}, "out_post"),
    ("nmp.eltwise", FLOATS | {"result_scale": 0}, "result_scale"),
    ("nmp.eltwise", FLOATS | {"rhs_mul": INFINITY}, "rhs_pre"),
    ("nmp.eltwise", FLOATS | {"lhs_post": INFINITY}, "lhs_post"),
    ("nmp.eltwise", FLOATS | {"rhs_post": HUGE}, "rhs_post"),
    ("nmp.eltwise", {"profile": "glow_float", "operation": "max"}, "result_scale"),
    ("nmp.eltwise", WIDE_PAIR | {"lhs": IN + 1}, "lhs"),
    ("nmp.eltwise", WIDE_PAIR | {"out_stride": 17}, "out_stride"),
    ("nmp.eltwise", WIDE_PAIR | {"output": IN, "out_stride": 18}, "output"),
    ("nmp.rescale", {"element": 2}, "element"),
    ("nmp.rescale", {"profile": "qnnpack"}, "profile"),
    ("nmp.rescale", {"profile": "glow_float"}, "result_scale"),
    ("nmp.rescale", {"profile": "float"}, "result_scale"),
    ("nmp.rescale", {"profile": "float", "result_scale": ONE, "leaky_mul": -1}, "leaky_pre"),
    ("nmp.rescale", {"element": 1, "output": OUT + 1}, "output"),
    ("nmp.rescale", {"element": 1, "output": IN + 14}, "output"),
    ("nmp.rescale", {"in_high": 128}, "in_high"),
    ("nmp.rescale", {"output": IN + 7}, "output"),
    ("nmp.rescale", {"leaky_pre": 32}, "leaky_pre"),
    ("nmp.rescale", {"in_low": 5, "in_high": 4}, "in_high"),
    ("nmp.lut", {"output": TABLE + 255}, "output"),
    ("nmp.lut", {"count": 0}, "count"),
    ("nmp.fill", {"value": 256}, "value"),
    ("nmp.fill", {"value": 128}, "value"),
    ("nmp.fill", {"element": 1, "value": -32769}, "value"),
    ("nmp.fill", {"element": 1, "output": OUT + 1}, "output"),
    ("nmp.fill", {"element": 1, "output": SPM + 131072 - 16}, "output"),
    ("nmp.fill", {"element": 2}, "element"),
    ("nmp.fill", {"count": HUGE}, "count"),
    ("nmp.transpose", {"element_bytes": 3}, "element_bytes"),
    ("nmp.transpose", {"size_3": HUGE}, "size_3"),
    ("nmp.transpose", {"output": IN + 8}, "output"),
    ("nmp.load", {"dram": RAM_BASE - 1}, "dram"),
    ("nmp.load", {"dram": RAM_BASE + 65536 - 31}, "dram"),
    ("nmp.load", {"spm": SPM + 131072 - 31}, "spm"),
    ("nmp.load", {"pad_x_before": HUGE}, "pad_x_before"),
    ("nmp.load", {"fill": 256}, "fill"),
    ("nmp.load", {"fill": -129}, "fill"),
    ("nmp.load", {"element": 1, "fill": 32768}, "fill"),
    ("nmp.load", {"element": 1, "run_bytes": 7}, "run_bytes"),
    ("nmp.load", {"element": 1, "spm_stride_x": 9}, "spm_stride_x"),
    ("nmp.load", {"element": 1, "spm_stride_y": 17}, "spm_stride_y"),
    ("nmp.load", {"element": 1, "spm": IN + 1}, "spm"),
    ("nmp.load", {"element": 2}, "element"),
    ("nmp.load", {"spm": IN, "dram": SPM}, "dram"),
    ("nmp.store", {"dram": IMAGE_BASE}, "dram"),
    ("nmp.store", {"count_y": HUGE}, "count_y"),
]  # fmt: skip


@pytest.mark.parametrize("mnemonic", GOOD)
def test_valid_descriptors_do_not_trap(mnemonic: str) -> None:
    run_both(from_descriptors((mnemonic, GOOD[mnemonic])))


@pytest.mark.parametrize(
    ("mnemonic", "changes"),
    [
        ("nmp.conv", WIDE_IMAGE),
        ("nmp.conv", WIDE_IMAGE | {"profile": "q31", "out_pre": 15, "out_post": 1}),
        ("nmp.conv", {"profile": "q31", "out_pre": 31}),
        ("nmp.conv", {"profile": "onednn", "result_scale": 1}),
        ("nmp.conv", {"profile": "fbgemm", "out_pre": HUGE, "out_post": HUGE}),
        ("nmp.conv", WIDE_IMAGE | {"weights": SPM + 131072 - 512}),
        ("nmp.dwconv", WIDE_IMAGE),
        ("nmp.gemm", {"element": 1, "lhs_stride": 6, "rhs_stride": 8, "out_stride": 8}),
        ("nmp.avgpool", WIDE_IMAGE),
        ("nmp.eltwise", WIDE_PAIR),
        ("nmp.eltwise", WIDE_PAIR | {"output": IN}),
        ("nmp.eltwise", FLOATS | {"lhs_post": -ONE, "rhs_post": -(2**31)}),
        ("nmp.eltwise", FLOATS | {"operation": "mul", "result_scale": 0}),
        ("nmp.eltwise", {"profile": "glow_float"}),
        ("nmp.eltwise", {"profile": "qnnpack", "lhs_mul": HUGE, "lhs_post": HUGE}),
        ("nmp.rescale", {"profile": "q31", "out_pre": 31}),
        ("nmp.fill", {"element": 1, "value": -32768}),
        ("nmp.load", {"element": 1, "dram": RAM_BASE + 1, "fill": 32767, "pad_x_after": 1}),
    ],
)
def test_limits_of_descriptors_do_not_trap(mnemonic: str, changes: dict[str, int | str]) -> None:
    run_both(from_descriptors((mnemonic, {**GOOD[mnemonic], **changes})))


@pytest.mark.parametrize(("mnemonic", "changes", "word"), BAD)
def test_an_operand_fault_names_the_word(
    mnemonic: str, changes: dict[str, int | str], word: str
) -> None:
    m = run_both(from_descriptors((mnemonic, {**GOOD[mnemonic], **changes})), Outcome.TRAP)
    name = BY_MNEMONIC[mnemonic].descriptor
    assert name is not None
    descriptor = IMAGE_BASE + 16  # behind la, the instruction and the halt
    trap = m.shared.trap[0]
    assert trap[TrapField.CAUSE] == TrapCause.OPERAND_FAULT
    assert trap[TrapField.VALUE] == descriptor + 4 * get_word_indices(name)[word]
    assert trap[TrapField.PC] == IMAGE_BASE + 8
    assert trap[TrapField.CYCLE] == (10 if word == "dram" else 2)


@pytest.mark.parametrize("mnemonic", ["nmp.conv", "nmp.dwconv"])
@pytest.mark.parametrize(
    ("column", "value", "changes"),
    [
        (0, 128, {}),
        (1, 32, {}),
        (3, -1, {}),
        (4, 64, {}),
        (6, 32, {}),
        (0, -32769, WIDE_IMAGE),
        (4, 15, WIDE_IMAGE | {"profile": "q31"}),
        (2, -1, {"profile": "glow_float"}),
        (5, INFINITY, {"profile": "fbgemm"}),
    ],
)
def test_an_impossible_scale_record_traps(
    mnemonic: str, column: int, value: int, changes: dict[str, int | str]
) -> None:
    zeros = np.zeros(16, np.int32)
    records = scale_records(zeros, (zeros,) * 3, (zeros,) * 3)
    records[15, column] = value
    layout = Layout()
    words = {**GOOD[mnemonic], **changes, "scales": layout.put(records), "input": IN + 1024}
    m = run_both(from_descriptors((mnemonic, words), scratchpad=layout.contents()), Outcome.TRAP)
    name = BY_MNEMONIC[mnemonic].descriptor
    assert name is not None
    assert (
        m.shared.trap[0, TrapField.VALUE] == IMAGE_BASE + 16 + 4 * get_word_indices(name)["scales"]
    )


EDGES = st.sampled_from(
    [
        0,
        1,
        2,
        3,
        127,
        128,
        255,
        256,
        32768,
        ONE,
        INFINITY,
        0x7FFF_FFFF,
        0x8000_0000,
        HUGE,
        HUGE - 127,
        SPM,
        SPM + 4095,
    ]
)


@st.composite
def damaged_descriptors(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """Draw a valid descriptor and change one to four of its words to arbitrary values."""
    mnemonic = draw(st.sampled_from(sorted(GOOD)))
    names = [word.name for word in DESCRIPTORS[BY_MNEMONIC[mnemonic].descriptor or ""]]
    value = EDGES | st.integers(0, 40) | st.integers(0, HUGE) | st.integers(SPM, SPM + 32768)
    kinds = {"element": draw(st.integers(0, 1)), "profile": draw(st.integers(0, 8))}
    kinds = {name: kind for name, kind in kinds.items() if name in names}
    changes = draw(st.dictionaries(st.sampled_from(names), value, min_size=1, max_size=4))
    return mnemonic, {**GOOD[mnemonic], **kinds, **changes}


@given(st.lists(damaged_descriptors(), min_size=1, max_size=3), st.integers(0, 2**32 - 1))
@examples(400)
def test_damaged_descriptors_have_equal_effects_on_both_engines(
    jobs: list[tuple[str, dict[str, int]]], seed: int
) -> None:
    contents = np.random.default_rng(seed).integers(-3, 4, 24576).astype(np.int8)
    config = device(scratchpad_bytes=24576)
    run_both(from_descriptors(*jobs, scratchpad=contents.tobytes(), config=config), expect=None)
