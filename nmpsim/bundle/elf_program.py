"""Metadata of an ELF program without metadata, such as a linked C program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nmpsim.bundle.elf import HEADER
from nmpsim.bundle.elffile import LINK_COMMAND, ElfFile
from nmpsim.bundle.image import MappedMemory
from nmpsim.bundle.metadata import Layer, Metadata, ProgramStep, Tensor
from nmpsim.diagnostics import Place, fail

NUMERICS = "elf"
"""Name of the arithmetic in reports of ELF programs, whose instructions choose profiles."""
PROGRAM_OPCODE = "program"
"""Opcode of the layer that all the work of an ELF program counts for."""
DEVICE_SYMBOLS = {
    "cores_count": "__nmp_cores",
    "scratchpad_bytes": "__nmp_scratchpad_bytes",
}
"""Setting of the device for which a program is linked -> symbol with its value."""
_ENTRY_OFFSET = 24


def make_program_metadata(
    file: ElfFile, memory: MappedMemory, symbols: Mapping[str, tuple[int, int]]
) -> Metadata:
    """Return the metadata of an ELF program: no tensors, and one layer for all of its work.

    Raises
    ------
    UserError
        BUN002 if the entry point of the file is not in its code.
    """
    entry = int(HEADER.unpack_from(file.data)[4])
    if entry % 4 or not any(start <= entry < end for start, end in memory.ranges.text):
        code = " and ".join(f"{start:#x} to {end - 1:#x}" for start, end in memory.ranges.text)
        raise fail(
            "BUN002",
            "the entry point of the program is not an instruction",
            place=Place(file.path, offset=_ENTRY_OFFSET),
            found=f"the entry point {entry:#x}",
            expected=f"a multiple of 4 in the code at {code}" if code else "a segment with code",
            hint=f"Define _start in the code, or link the program with `{LINK_COMMAND}`.",
        )
    path = Path(file.path)
    name = path.stem or path.name
    output = Tensor(name, "i8", (0,), memory.ranges.read_write[0])
    layer = Layer(0, name, 0, 0, PROGRAM_OPCODE, "device", output, "")
    device = {key: symbols[name][0] for key, name in DEVICE_SYMBOLS.items() if name in symbols}
    steps = (ProgramStep("device", (0,), entry),)
    return Metadata(name, path.name, NUMERICS, device, (), (), (layer,), steps)
