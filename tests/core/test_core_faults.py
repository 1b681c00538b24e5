"""Descriptors that are impossible: the trap names the word, and nothing worse happens."""

from __future__ import annotations

import numpy as np
import pytest
from core_machines import IMAGE_BASE, RAM_BASE, SPM, device, from_descriptors, from_text, run_both
from core_tensors import Layout, scale_records
from hypothesis import given, settings
from hypothesis import strategies as st

from nmpsim.core.state import Outcome, Trap
from nmpsim.isa.codec import BY_MNEMONIC, descriptor_offsets
from nmpsim.isa.table import DESCRIPTORS, Cause


@pytest.mark.parametrize("address", [SPM + 2, 0, SPM + 131072 - 56, 0xFFFF_FFFC])
def test_a_descriptor_must_be_somewhere(address: int) -> None:
    m = run_both(from_text(f"la t0, {address:#x}\nnmp.load t0"), Outcome.TRAP)
    trap = m.shared.trap[0]
    assert [trap[Trap.CAUSE], trap[Trap.VALUE]] == [Cause.DESCRIPTOR_FAULT, address]


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
BAD = [
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
    ("nmp.dwconv", {"output": WEIGHTS + 15}, "output"),
    ("nmp.dwconv", {"output": TABLE}, "output"),
    ("nmp.dwconv", {"output": SCALES - 15}, "output"),
    ("nmp.dwconv", {"weights": SPM + 131072 - 15}, "weights"),
    ("nmp.gemm", {"rows": 0}, "rows"),
    ("nmp.gemm", {"rhs": SPM + 131072 - 11}, "rhs"),
    ("nmp.gemm", {"output": IN + 5}, "output"),
    ("nmp.gemm", {"partial": OUT + 4}, "partial"),
    ("nmp.gemm", {"partial": IN + 4}, "partial"),
    ("nmp.gemm", {"partial": WEIGHTS - 28}, "partial"),
    ("nmp.gemm", {"lhs_offset": -129}, "lhs_offset"),
    ("nmp.maxpool", {"empty_value": 128}, "empty_value"),
    ("nmp.maxpool", {"stride_h": 0}, "stride_h"),
    ("nmp.maxpool", {"kernel_h": 1 << 10, "kernel_w": 1 << 10}, "kernel_h"),
    ("nmp.avgpool", {"in_offset": 128}, "in_offset"),
    ("nmp.avgpool", {"divide": 2}, "divide"),
    ("nmp.avgpool", {"output": IN + 95}, "output"),
    ("nmp.eltwise", {"operation": 5}, "operation"),
    ("nmp.eltwise", {"output": IN + 1}, "output"),
    ("nmp.eltwise", {"rhs_kind": 1, "rhs": WEIGHTS + 2}, "rhs"),
    ("nmp.eltwise", {"rhs_kind": 1, "rhs_stride": 32, "output": WEIGHTS}, "output"),
    ("nmp.rescale", {"output": IN + 7}, "output"),
    ("nmp.rescale", {"leaky_pre": 32}, "leaky_pre"),
    ("nmp.rescale", {"in_low": 5, "in_high": 4}, "in_high"),
    ("nmp.lut", {"output": TABLE + 255}, "output"),
    ("nmp.lut", {"count": 0}, "count"),
    ("nmp.fill", {"value": 256}, "value"),
    ("nmp.fill", {"count": HUGE}, "count"),
    ("nmp.transpose", {"element_bytes": 3}, "element_bytes"),
    ("nmp.transpose", {"size_3": HUGE}, "size_3"),
    ("nmp.transpose", {"output": IN + 8}, "output"),
    ("nmp.load", {"dram": RAM_BASE - 1}, "dram"),
    ("nmp.load", {"dram": RAM_BASE + 65536 - 31}, "dram"),
    ("nmp.load", {"spm": SPM + 131072 - 31}, "spm"),
    ("nmp.load", {"pad_x_before": HUGE}, "pad_x_before"),
    ("nmp.load", {"fill": 256}, "fill"),
    ("nmp.load", {"spm": IN, "dram": SPM}, "dram"),
    ("nmp.store", {"dram": IMAGE_BASE}, "dram"),
    ("nmp.store", {"count_y": HUGE}, "count_y"),
]  # fmt: skip


@pytest.mark.parametrize("mnemonic", GOOD)
def test_these_descriptors_are_possible(mnemonic: str) -> None:
    run_both(from_descriptors((mnemonic, GOOD[mnemonic])))


@pytest.mark.parametrize(("mnemonic", "changes", "word"), BAD)
def test_an_operand_fault_names_the_word(mnemonic: str, changes: dict[str, int], word: str) -> None:
    m = run_both(from_descriptors((mnemonic, {**GOOD[mnemonic], **changes})), Outcome.TRAP)
    name = BY_MNEMONIC[mnemonic].descriptor
    assert name is not None
    descriptor = IMAGE_BASE + 16  # behind la, the instruction and the halt
    trap = m.shared.trap[0]
    assert trap[Trap.CAUSE] == Cause.OPERAND_FAULT
    assert trap[Trap.VALUE] == descriptor + 4 * descriptor_offsets(name)[word]
    assert trap[Trap.PC] == IMAGE_BASE + 8
    assert trap[Trap.CYCLE] == (10 if word == "dram" else 2)


@pytest.mark.parametrize("mnemonic", ["nmp.conv", "nmp.dwconv"])
@pytest.mark.parametrize(("column", "value"), [(0, 128), (1, 32), (3, -1), (4, 64), (6, 32)])
def test_a_scale_record_must_be_possible(mnemonic: str, column: int, value: int) -> None:
    zeros = np.zeros(16, np.int32)
    records = scale_records(zeros, (zeros,) * 3, (zeros,) * 3)
    records[15, column] = value
    layout = Layout()
    words = {**GOOD[mnemonic], "scales": layout.put(records), "input": IN + 1024}
    m = run_both(from_descriptors((mnemonic, words), scratchpad=layout.contents()), Outcome.TRAP)
    name = BY_MNEMONIC[mnemonic].descriptor
    assert name is not None
    assert m.shared.trap[0, Trap.VALUE] == IMAGE_BASE + 16 + 4 * descriptor_offsets(name)["scales"]


EDGES = st.sampled_from(
    [0, 1, 2, 3, 127, 128, 255, 256, 0x7FFF_FFFF, 0x8000_0000, HUGE, HUGE - 127, SPM, SPM + 4095]
)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """A good descriptor with one to four words changed to anything."""
    mnemonic = draw(st.sampled_from(sorted(GOOD)))
    names = [word.name for word in DESCRIPTORS[BY_MNEMONIC[mnemonic].descriptor or ""]]
    value = EDGES | st.integers(0, 40) | st.integers(0, HUGE) | st.integers(SPM, SPM + 32768)
    changes = draw(st.dictionaries(st.sampled_from(names), value, min_size=1, max_size=4))
    return mnemonic, {**GOOD[mnemonic], **changes}


@given(st.lists(damaged(), min_size=1, max_size=3), st.integers(0, 2**32 - 1))
@settings(max_examples=400, deadline=None)
def test_damaged_descriptors_do_the_same_on_both_engines(
    jobs: list[tuple[str, dict[str, int]]], seed: int
) -> None:
    contents = np.random.default_rng(seed).integers(-3, 4, 24576).astype(np.int8)
    config = device(scratchpad_bytes=24576)
    run_both(from_descriptors(*jobs, scratchpad=contents.tobytes(), config=config), expect=None)
