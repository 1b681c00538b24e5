"""Search for the instructions that wrote a byte, by executing a layer again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.debugger.byte_runs import ByteRuns, Space
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.execution import Pause
from nmpsim.debugger.inspect import describe_dram_address, unravel_index
from nmpsim.debugger.instructions import ExecutedInstruction, MemoryAccess, iterate_instructions
from nmpsim.diagnostics import fail
from nmpsim.isa.table import Unit


def trace_layer(debugger: Debugger, index: int) -> list[ExecutedInstruction]:
    """Return the executed instructions of a layer that has run.

    Raises :class:`~nmpsim.diagnostics.UserError` DEBUG002 if the layer's output is unknown.
    """
    name = debugger.layers[index].name
    if index not in debugger.layer_outputs or index not in debugger.layer_ends:
        reason = debugger.explain_missing_output(index)
        hint = f"Run `until layer {name}` first."
        raise fail("DEBUG002", f"layer {name} {reason}", hint=hint)
    found: list[ExecutedInstruction] = []

    def look(pause: Pause) -> None:
        found.extend(iterate_instructions(pause, debugger.machine))

    with debugger.visit_position(debugger.get_layer_start(index)):
        debugger.replay(debugger.layer_ends[index], look)
    return found


def find_last_writer(
    trace: Sequence[ExecutedInstruction], space: Space, address: int
) -> ExecutedInstruction | None:
    """Return the last instruction that wrote a byte, or None if no instruction wrote the byte."""
    for one in reversed(trace):
        if find_access(one, "write", space, address):
            return one
    return None


def find_access(
    executed: ExecutedInstruction, kind: str, space: Space, address: int
) -> MemoryAccess | None:
    """Return the access of an instruction to a byte, or None if it does not access the byte."""
    for access in executed.accesses:
        if access.kind == kind and access.region.space == space and access.region.contains(address):
            return access
    return None


def locate_byte(region: ByteRuns, address: int) -> tuple[tuple[int, ...], int]:
    """Return the indices of the byte run that contains an address, and the offset in that run.

    Where runs overlap, the last one counts.
    """
    starts = region.list_starts()
    hits = np.flatnonzero((starts <= address) & (address < starts + region.run))
    index = int(hits[-1])
    at = unravel_index(index, tuple(count for count, _ in region.repeats))
    return at, address - int(starts[index])


def find_transfer_source(done: ExecutedInstruction, address: int) -> int | None:
    """Return the address from which a load or store read a byte, or None for padding."""
    source, target = ("dram", "spm") if done.unit == Unit.LOAD else ("spm", "dram")
    (region,) = (access.region for access in done.accesses if access.operand == target)
    (y, x), byte = locate_byte(region, address)
    d = done.words
    y, x = y - d.get("pad_y_before", 0), x - d.get("pad_x_before", 0)
    if not (0 <= y < d["count_y"] and 0 <= x < d["count_x"]):
        return None
    return d[source] + y * d[f"{source}_stride_y"] + x * d[f"{source}_stride_x"] + byte


def find_scratchpad_source(
    debugger: Debugger, index: int, own: Sequence[ExecutedInstruction], address: int
) -> tuple[ExecutedInstruction | None, str]:
    """Return the last writer of a scratchpad byte (or None) and the name of the written data.

    ``own`` is what the core executed in layer ``index`` so far. The name of padding is empty.
    """
    writer = find_last_writer(own, "scratchpad", address)
    if writer is None or writer.unit != Unit.LOAD:
        return writer, "" if writer is None else writer.instruction.mnemonic
    source = find_transfer_source(writer, address)
    if source is None:
        return writer, ""
    return writer, describe_dram_address(debugger, source, debugger.list_layers_before(index))
