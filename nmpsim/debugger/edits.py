"""Changes to a run. A session is defined by its bundle, its inputs and an ordered list of edits.

Everything else derives from the list, so another list is another run, and results cached for the
previous one are dropped. See ``docs/decisions/0021-debugger-edits.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from attrs.validators import ge

from nmpsim.bundle.metadata import Tensor
from nmpsim.bundle.patch import ByteChange
from nmpsim.bundle.read import Bundle
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.system import write_csr
from nmpsim.core.state import Machine
from nmpsim.diagnostics import fail
from nmpsim.isa.csrs import CSR_ROWS, CsrAddress, is_read_only
from nmpsim.isa.table import REGISTERS, SCRATCHPAD_BASE

Piece = tuple[int, bytes]
"""Address and new bytes."""
ScaleChanges = tuple[tuple[tuple[str, float], ...], ...]
"""For each change of scales, in order, pairs of buffer name and scale."""
RegisterChange = tuple[int, str, int]
"""Core, name of a register, and its new unsigned value."""
WRITABLE_CSRS = {
    csr.name.lower(): csr for csr, row in CSR_ROWS.items() if row.writable and not is_read_only(csr)
}
"""Name -> address of each CSR that an edit can change."""
WRITABLE_REGISTERS = ("pc", *REGISTERS[1:], *WRITABLE_CSRS)
"""Names of the registers that an edit can change."""


@attrs.frozen
class Edit:
    """Edit by one debugger command: changes of memory, registers and tensor scales."""

    position: int = attrs.field(validator=ge(0))
    """Position at which the change is made, each time the run reaches it. Changes of the program
    are made at position 0."""
    pieces: tuple[Piece, ...]
    """New bytes in order; a later piece may overwrite an earlier one."""
    what: str
    """Description for the user."""
    scales: Mapping[str, float] = attrs.field(factory=dict)
    """Buffers of the LIR whose values have another scale."""
    core: int | None = None
    """Core whose scratchpad contains the changed bytes; None for the program and DRAM."""
    registers: tuple[RegisterChange, ...] = ()

    @scales.validator
    def _check_scales(self, _: object, scales: Mapping[str, float]) -> None:
        for name, scale in scales.items():
            if not (isinstance(scale, float) and 0 < scale < math.inf):
                raise ValueError(f"scale {scale!r} of {name} is not a positive finite number")


def check_edit(bundle: Bundle, machine: Machine, edit: Edit) -> None:
    """Raise UserError (DEBUG002) if an edit changes other memory or registers than it may."""
    cores = machine.cores.size
    for core, name, value in edit.registers:
        is_aligned = name != "pc" or value % 4 == 0
        if not (
            0 <= core < cores and name in WRITABLE_REGISTERS and 0 <= value < 1 << 32 and is_aligned
        ):
            raise fail(
                "DEBUG002",
                "the register cannot be set to this value",
                found=f"{name} = {value:#x} in core {core}",
                expected=f"a core below {cores}, one of {', '.join(WRITABLE_REGISTERS)}, and an"
                " unsigned 32-bit value (of pc: a multiple of 4)",
            )
    if edit.core is not None:
        _check_scratchpad_edit(machine, edit)
        return
    for address, now in edit.pieces:
        in_program = find_image_slice(bundle, address, len(now)) is not None and edit.position == 0
        if not in_program and find_ram_slice(bundle, address, len(now)) is None:
            raise fail(
                "DEBUG002",
                "the address is not in memory that can be changed",
                found=f"{len(now)} bytes at {address:#x}",
                expected="an address in the code, the descriptors, the constants or the tensors",
            )


def _check_scratchpad_edit(machine: Machine, edit: Edit) -> None:
    """Raise UserError (DEBUG002) if an edit lies outside of its core's scratchpad."""
    cores, size = machine.cores.size, int(machine.shared[0].scratchpad_bytes)
    for address, now in edit.pieces:
        where = find_slice(address - SCRATCHPAD_BASE, len(now), size)
        if where is None or edit.core not in range(cores):
            raise fail(
                "DEBUG002",
                "the address is not in the scratchpad of a core",
                found=f"{len(now)} bytes at {address:#x} of core {edit.core}",
                expected=f"core 0 to {cores - 1} and an address from {SCRATCHPAD_BASE:#x} to"
                f" {SCRATCHPAD_BASE + size - 1:#x}",
            )


def execute_edit(bundle: Bundle, machine: Machine, edit: Edit) -> None:
    """Write the changes of an edit to DRAM, a scratchpad and registers."""
    for address, now in edit.pieces:
        if edit.core is not None:
            memory = machine.scratchpad[edit.core]
            where = find_slice(address - SCRATCHPAD_BASE, len(now), memory.size)
        else:
            memory, where = machine.ram, find_ram_slice(bundle, address, len(now))
        if where is not None:
            memory[where] = np.frombuffer(now, np.uint8)
    for number, name, value in edit.registers:
        core = Core(machine, number)
        if name == "pc":
            core.pc = value
        elif name in REGISTERS:
            core.set_register(REGISTERS.index(name), value)
        else:
            write_csr(core, CsrAddress(WRITABLE_CSRS[name]), value)


def find_image_slice(bundle: Bundle, address: int, count: int) -> slice | None:
    """Return the slice of the read-only image for an address range, or None if not inside."""
    return find_slice(address - bundle.image_base, count, bundle.image.size)


def find_ram_slice(bundle: Bundle, address: int, count: int) -> slice | None:
    """Return the slice of writable DRAM for an address range, or None if not inside."""
    return find_slice(address - bundle.rw_base, count, bundle.rw_bytes)


def find_slice(start: int, count: int, size: int) -> slice | None:
    """Return the slice of ``count`` elements from ``start``, or None if not inside ``size``."""
    return slice(start, start + count) if count > 0 and 0 <= start <= size - count else None


def list_image_changes(bundle: Bundle, edits: Sequence[Edit]) -> list[tuple[slice, bytes, str]]:
    """Return the slice, new bytes and description of each change of the program image."""
    pieces = [(address, now, edit.what) for edit in edits for address, now in edit.pieces]
    found = [(find_image_slice(bundle, at, len(now)), now, what) for at, now, what in pieces]
    return [(where, now, what) for where, now, what in found if where is not None]


def build_patch(bundle: Bundle, edits: Sequence[Edit]) -> tuple[ByteChange, ...]:
    """Build a patch without overlaps from the edits of the program's image."""
    pieces = list_image_changes(bundle, edits)
    now, last = bundle.image.copy(), np.full(bundle.image.size, -1, np.int32)
    for number, (where, data, _) in enumerate(pieces):
        now[where], last[where] = np.frombuffer(data, np.uint8), number
    touched = np.flatnonzero(last >= 0)
    is_next = (np.diff(touched) > 1) | (np.diff(last[touched]) != 0)
    return tuple(
        ByteChange(bundle.image_base + int(run[0]), was, new, pieces[last[run[0]]][2])
        for run in np.split(touched, np.flatnonzero(is_next) + 1)
        if (was := bundle.image[run].tobytes()) != (new := now[run].tobytes())
    )


def list_scale_changes(edits: Sequence[Edit]) -> ScaleChanges:
    """Return the scale changes of all edits in order."""
    return tuple(tuple(edit.scales.items()) for edit in edits if edit.scales)


def apply_scale(tensor: Tensor, edits: Sequence[Edit]) -> Tensor:
    """Apply the last edit of a tensor's scale; return an unedited tensor unchanged."""
    scale = next((e.scales[tensor.name] for e in reversed(edits) if tensor.name in e.scales), None)
    return tensor if scale is None else attrs.evolve(tensor, scale=scale)
