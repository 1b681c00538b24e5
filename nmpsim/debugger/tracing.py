"""Which instructions brought about a byte, found in what was done: nothing is recorded for it."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from nmpsim.core.host_steps import read_tensor
from nmpsim.debugger.byte_runs import ByteRuns, Space
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.execution import Pause
from nmpsim.debugger.inspect import coordinates
from nmpsim.debugger.instructions import Done, Touch, instructions
from nmpsim.diagnostics import fail


def trace_of(debugger: Debugger, index: int) -> list[Done]:
    """Every traced instruction of a layer that has run; the machine is where it was afterwards.

    Raises :class:`~nmpsim.diagnostics.UserError` DEBUG002 if the layer has not run yet.
    """
    name = debugger.layers[index].name
    if index not in debugger.outputs or index not in debugger.ends:
        message = f"{name} has not run yet"
        raise fail("DEBUG002", message, hint=f"`until layer {name}` runs it")
    found: list[Done] = []

    def look(pause: Pause) -> None:
        found.extend(instructions(pause, debugger.execution.machine))

    with debugger.execution.visit():
        debugger.execution.go_to(debugger.start_of(index))
        debugger.execution.replay(debugger.ends[index], look)
    return found


def last_writer(
    done: Sequence[Done], space: Space, address: int, core: int | None = None
) -> Done | None:
    """The last instruction that wrote a byte."""
    for one in reversed(done):
        if core in (None, one.core) and touch_of(one, "write", space, address):
            return one
    return None


def touch_of(done: Done, kind: str, space: Space, address: int) -> Touch | None:
    """How an instruction touches a byte, if it does."""
    for touch in done.touches:
        if touch.kind == kind and touch.box.space == space and touch.box.holds(address):
            return touch
    return None


def place_in(box: ByteRuns, address: int) -> tuple[tuple[int, ...], int]:
    """Where a byte lies in a box: the number along each repeat, and the byte of the run.

    The last place if runs lie on one another: that was written last.
    """
    starts = box.starts()
    hits = np.flatnonzero((starts <= address) & (address < starts + box.run))
    index = int(hits[-1])
    at = coordinates(index, tuple(count for count, _ in box.repeats))
    return at, address - int(starts[index])


def stored_from(store: Done, address: int) -> int:
    """The scratchpad address that a store took a byte of DRAM from."""
    touches = {touch.what: touch.box for touch in store.touches}
    (y, x), byte = place_in(touches["dram"], address)
    d = store.words
    return d["spm"] + y * d["spm_stride_y"] + x * d["spm_stride_x"] + byte


def loaded_from(load: Done, address: int) -> int | None:
    """The DRAM address that a load took a byte of the scratchpad from; None for padding."""
    touches = {touch.what: touch.box for touch in load.touches}
    (y, x), byte = place_in(touches["spm"], address)
    d = load.words
    y, x = y - d["pad_y_before"], x - d["pad_x_before"]
    if not (0 <= y < d["count_y"] and 0 <= x < d["count_x"]):
        return None
    return d["dram"] + y * d["dram_stride_y"] + x * d["dram_stride_x"] + byte


@attrs.frozen
class Named:
    """What lies at an address in DRAM."""

    name: str
    at: tuple[int, ...] | None = None
    """Coordinates in a tensor, if it is one."""

    def __str__(self) -> str:
        return self.name if self.at is None else f"{self.name}{list(self.at)}"


class Sources:
    """Where a core's scratchpad had its bytes from, at one moment of a layer."""

    def __init__(self, debugger: Debugger, index: int, own: Sequence[Done]) -> None:
        """``own``: what the core had done in layer ``index`` up to that moment."""
        self._own = own
        order = debugger.layer_order()
        layers = [debugger.layers[one] for one in order[: order.index(index)]]
        tensors = [*debugger.bundle.metadata.inputs, *(layer.output for layer in layers)]
        self._tensors = [
            (tensor, read_tensor(debugger.execution.machine, tensor)) for tensor in tensors
        ]
        self._bundle = debugger.bundle
        self._known: dict[int, tuple[Done | None, str]] = {}

    def of(self, address: int) -> tuple[Done | None, str]:
        """Who wrote a byte of the scratchpad, and what it is called; empty for padding."""
        if address not in self._known:
            self._known[address] = self._find(address)
        return self._known[address]

    def _find(self, address: int) -> tuple[Done | None, str]:
        writer = last_writer(self._own, "scratchpad", address)
        if writer is None:
            return None, ""
        if writer.instruction.mnemonic != "nmp.load":
            return writer, writer.instruction.mnemonic
        source = loaded_from(writer, address)
        return writer, "" if source is None else str(self._name(source))

    def _name(self, address: int) -> Named:
        """What an address in DRAM holds: a tensor, or a symbol."""
        for tensor, values in reversed(self._tensors):
            offset = address - tensor.address
            if 0 <= offset < values.nbytes:
                return Named(tensor.name, coordinates(offset // values.itemsize, tensor.shape))
        for name, start in self._bundle.symbols.items():
            if 0 <= address - start < self._bundle.symbol_sizes.get(name, 0):
                return Named(f"{name}+{address - start}")
        return Named(f"{address:#x}")
