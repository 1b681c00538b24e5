"""Buffers that live at the same time never share memory; those that do not may."""

from __future__ import annotations

from collections.abc import Sequence

from counted_work import count_lines
from hypothesis import given
from hypothesis import strategies as st
from lir_draft import NOWHERE, Draft, int8
from program_writer import Program
from random_programs import chains
from small_programs import compile_draft

from nmpsim.compiler.allocate import ALIGNMENT, allocate_buffers
from nmpsim.compiler.fuse import fuse_clips
from nmpsim.compiler.operations import Buffer, BufferView, Operation
from nmpsim.compiler.placement import assign_placement
from nmpsim.compiler.resolve import resolve_operands
from nmpsim.config import default_device
from nmpsim.lir.nodes import Instruction, Operand


def operation(number: int, buffers: Sequence[Buffer]) -> Operation:
    """Return a copy operation that touches these buffers."""
    views = tuple(BufferView(b.name, b, 0, int8((b.nbytes,))) for b in buffers)
    kinds = ("@out", *("@in",) * (len(views) - 1))
    operands = tuple(Operand(k, v.name, NOWHERE) for k, v in zip(kinds, views, strict=True))
    return Operation(Instruction(number, f"op{number}", "copy", operands, {}, NOWHERE), views)


@st.composite
def allocation_problems(draw: st.DrawFn) -> tuple[tuple[Operation, ...], list[Buffer]]:
    """Draw operations over random buffers, and some buffers that must live throughout."""
    sizes = draw(st.lists(st.integers(1, 5000), min_size=1, max_size=12))
    buffers = [Buffer(f"b{i}", n, constant=draw(st.booleans())) for i, n in enumerate(sizes)]
    some = st.lists(st.sampled_from(buffers), min_size=1, max_size=3)
    operations = [operation(n, draw(some)) for n in range(draw(st.integers(1, 12)))]
    variable = [b for b in buffers if not b.constant]
    always = draw(st.lists(st.sampled_from(variable), unique=True)) if variable else []
    return tuple(operations), always


def find_lifetime(
    buffer: Buffer, operations: Sequence[Operation], always: Sequence[Buffer]
) -> range:
    """Return the indices of operations from the first to the last that touches a buffer."""
    if buffer in always:
        return range(-1, len(operations) + 1)
    touched = [i for i, op in enumerate(operations) if buffer.name in op.list_buffers()]
    return range(min(touched), max(touched) + 1)


def check(operations: Sequence[Operation], always: Sequence[Buffer]) -> None:
    allocation = allocate_buffers(tuple(operations), always)
    used = {v.buffer.name: v.buffer for op in operations for v in op.operands}
    used |= {b.name: b for b in always}
    variable = [b for b in used.values() if not b.constant]
    assert set(allocation.offsets) >= {b.name for b in always}
    placed = [b for b in variable if b.name in allocation.offsets]
    for buffer in placed:
        start = allocation.offsets[buffer.name]
        assert start % ALIGNMENT == 0
        assert 0 <= start <= allocation.nbytes - buffer.nbytes
        for other in placed:
            if other.name < buffer.name:
                first, second = (find_lifetime(b, operations, always) for b in (buffer, other))
                together = max(first.start, second.start) < min(first.stop, second.stop)
                begin = allocation.offsets[other.name]
                apart = start + buffer.nbytes <= begin or begin + other.nbytes <= start
                assert apart or not together, (buffer, other)


@given(allocation_problems())
def test_live_buffers_do_not_overlap(case: tuple[tuple[Operation, ...], list[Buffer]]) -> None:
    operations, always = case
    check(operations, always)
    everything = allocate_buffers(operations, always).offsets
    used = {v.buffer.name for op in operations for v in op.operands if not v.buffer.constant}
    assert set(everything) == used | {b.name for b in always}


@given(chains())
def test_buffers_of_programs_do_not_overlap(program: Program) -> None:
    weights, operations = resolve_operands(program.module)
    always = [v.buffer for v in weights.values() if not v.buffer.constant]
    check(operations, always)
    fused = fuse_clips(assign_placement(operations, default_device()))
    check(fused, always)
    offsets = allocate_buffers(fused, always).offsets
    assert all(op.output.buffer.name in offsets for op in fused)


def test_a_long_chain_needs_two_buffers() -> None:
    draft = Draft()
    kind = int8((1, 1024))
    value = draft.input(kind)
    for _ in range(10):
        value = draft.emit("leakyrelu", draft.buffer(kind), value, Alpha=0.1)
    draft.emit("leakyrelu", draft.output(kind), value, Alpha=0.1)
    assert compile_draft(draft).rw_bytes == 4 * 1024


def test_work_is_linear_in_buffers_that_live_together() -> None:
    def lines(count: int) -> int:
        buffers = [Buffer(f"b{number}", 64, constant=False) for number in range(count)]
        return count_lines(allocate_buffers, (), buffers)

    lines(2)
    assert lines(400) < 4.2 * lines(100)
