"""The instructions that wrote a byte, found by repeating a layer; nothing is recorded for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.debugger.byte_runs import ByteRuns, Space
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.execution import Pause
from nmpsim.debugger.inspect import describe_dram_address, unravel_index
from nmpsim.debugger.instructions import ExecutedInstruction, MemoryAccess, iterate_instructions
from nmpsim.diagnostics import fail


def trace_layer(debugger: Debugger, index: int) -> list[ExecutedInstruction]:
    """Return the executed instructions of a layer that has run.

    Raises :class:`~nmpsim.diagnostics.UserError` DEBUG002 if the layer has not run yet.
    """
    name = debugger.layers[index].name
    if index not in debugger.layer_outputs or index not in debugger.layer_ends:
        message = f"{name} has not run yet"
        raise fail("DEBUG002", message, hint=f"Run the layer with `until layer {name}`.")
    found: list[ExecutedInstruction] = []

    def look(pause: Pause) -> None:
        found.extend(iterate_instructions(pause, debugger.machine))

    with debugger.visit(debugger.get_layer_start(index)):
        debugger.replay(debugger.layer_ends[index], look)
    return found


def find_last_writer(
    trace: Sequence[ExecutedInstruction], space: Space, address: int
) -> ExecutedInstruction | None:
    """Return the last instruction that wrote a byte, or None."""
    for one in reversed(trace):
        if find_access(one, "write", space, address):
            return one
    return None


def find_access(
    executed: ExecutedInstruction, kind: str, space: Space, address: int
) -> MemoryAccess | None:
    """Return the access of an instruction to a byte, or None."""
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


def find_store_source(store: ExecutedInstruction, address: int) -> int:
    """Return the scratchpad address from which a store read a byte of DRAM."""
    accesses = {access.what: access.region for access in store.accesses}
    (y, x), byte = locate_byte(accesses["dram"], address)
    d = store.words
    return d["spm"] + y * d["spm_stride_y"] + x * d["spm_stride_x"] + byte


def find_load_source(load: ExecutedInstruction, address: int) -> int | None:
    """Return the DRAM address from which a load read a scratchpad byte, or None for padding."""
    accesses = {access.what: access.region for access in load.accesses}
    (y, x), byte = locate_byte(accesses["spm"], address)
    d = load.words
    y, x = y - d["pad_y_before"], x - d["pad_x_before"]
    if not (0 <= y < d["count_y"] and 0 <= x < d["count_x"]):
        return None
    return d["dram"] + y * d["dram_stride_y"] + x * d["dram_stride_x"] + byte


class ScratchpadSources:
    """Lookup of the origin of bytes in a core's scratchpad at one moment of a layer."""

    def __init__(self, debugger: Debugger, index: int, own: Sequence[ExecutedInstruction]) -> None:
        """``own`` is what the core executed in layer ``index`` up to that moment."""
        self._debugger, self._own = debugger, own
        self._layers = debugger.list_layers_before(index)
        self._known: dict[int, tuple[ExecutedInstruction | None, str]] = {}

    def find(self, address: int) -> tuple[ExecutedInstruction | None, str]:
        """Return the last writer of a scratchpad byte, and the name of its source."""
        if address not in self._known:
            self._known[address] = self._find(address)
        return self._known[address]

    def _find(self, address: int) -> tuple[ExecutedInstruction | None, str]:
        writer = find_last_writer(self._own, "scratchpad", address)
        if writer is None:
            return None, ""
        if writer.instruction.mnemonic != "nmp.load":
            return writer, writer.instruction.mnemonic
        source = find_load_source(writer, address)
        if source is None:
            return writer, ""
        return writer, describe_dram_address(self._debugger, source, self._layers)
