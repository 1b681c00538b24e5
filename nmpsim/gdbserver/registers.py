"""Registers of a core as a client numbers them, and packets that read and write registers."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

import attrs

from nmpsim.debugger.edits import WRITABLE_REGISTERS, Edit, RegisterChange
from nmpsim.debugger.inspect import read_registers
from nmpsim.gdbserver.packets import PacketError
from nmpsim.gdbserver.session import EDIT_DESCRIPTION, Session
from nmpsim.isa.csrs import CsrAddress
from nmpsim.isa.table import REGISTERS

FIRST_CSR_NUMBER = 65
"""Number of CSR 0, as in gdb."""


@attrs.frozen
class RegisterDefinition:
    """Register of the target description: number, name, type and feature."""

    number: int
    name: str
    type: str = "int"
    feature: str = "org.gnu.gdb.riscv.cpu"


_GENERAL = (
    *(
        RegisterDefinition(number, name, {"ra": "code_ptr", "sp": "data_ptr"}.get(name, "int"))
        for number, name in enumerate(REGISTERS)
    ),
    RegisterDefinition(len(REGISTERS), "pc", "code_ptr"),
)
"""Registers of the packets ``g`` and ``G``."""
DEFINITIONS = {
    one.number: one
    for one in (
        *_GENERAL,
        *(
            RegisterDefinition(
                FIRST_CSR_NUMBER + csr, csr.name.lower(), feature="org.gnu.gdb.riscv.csr"
            )
            for csr in CsrAddress
        ),
    )
}
"""Number -> register."""
PC_NUMBER = len(REGISTERS)


def encode_register(value: int) -> bytes:
    """Encode an unsigned 32-bit value as hexadecimal digits, the lowest byte first."""
    return value.to_bytes(4, "little").hex().encode()


_GENERIC_NAMES = {"pc": "pc", "sp": "sp", "s0": "fp", "ra": "ra"}
"""Register -> its name for LLDB, which ignores unknown registers; gdb ignores the attribute."""


def describe_target() -> bytes:
    """Return the target description, an XML document with all registers."""
    root = ElementTree.Element("target", version="1.0")
    ElementTree.SubElement(root, "architecture").text = "riscv:rv32"
    # For Linux, gdb would step with breakpoints instead of the step packet.
    ElementTree.SubElement(root, "osabi").text = "none"
    features: dict[str, ElementTree.Element] = {}
    for one in DEFINITIONS.values():
        if one.feature not in features:
            features[one.feature] = ElementTree.SubElement(root, "feature", name=one.feature)
        fields = {"name": one.name, "bitsize": "32", "regnum": str(one.number), "type": one.type}
        if one.name in _GENERIC_NAMES:
            fields["generic"] = _GENERIC_NAMES[one.name]
        if one.number < PC_NUMBER:
            fields["dwarf_regnum"] = str(one.number)
        ElementTree.SubElement(features[one.feature], "reg", fields)
    text = ElementTree.tostring(root)
    return b'<?xml version="1.0"?><!DOCTYPE target SYSTEM "gdb-target.dtd">' + text


def read_general_registers(session: Session) -> bytes:
    """Return the general registers and pc of the selected core."""
    values = read_registers(session.debugger, session.general_core)
    return b"".join(encode_register(values[one.name]) for one in _GENERAL)


def write_general_registers(session: Session, data: bytes) -> bytes:
    """Write the general registers and pc of the selected core; return OK."""
    if len(data) != 4 * len(_GENERAL):
        raise PacketError(f"there are {len(data)} bytes instead of {4 * len(_GENERAL)}")
    values = [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]
    return _write(session, [(one.name, v) for one, v in zip(_GENERAL, values, strict=True)])


def read_register(session: Session, number: int) -> bytes:
    """Return a register of the selected core."""
    name = _find_register(number).name
    return encode_register(read_registers(session.debugger, session.general_core)[name])


def write_register(session: Session, number: int, data: bytes) -> bytes:
    """Write a register of the selected core; return OK."""
    if len(data) != 4:
        raise PacketError(f"the value has {len(data)} bytes instead of 4")
    return _write(session, [(_find_register(number).name, int.from_bytes(data, "little"))])


def _find_register(number: int) -> RegisterDefinition:
    found = DEFINITIONS.get(number)
    if found is None:
        raise PacketError(f"there is no register {number}")
    return found


def _write(session: Session, values: Sequence[tuple[str, int]]) -> bytes:
    """Change the registers that have other values; raise PacketError for a constant register."""
    core, now = session.general_core, read_registers(session.debugger, session.general_core)
    changes: list[RegisterChange] = [
        (core, name, value) for name, value in values if now[name] != value
    ]
    for _, name, _ in changes:
        if name not in WRITABLE_REGISTERS:
            raise PacketError(f"the register {name} cannot be written")
    if changes:
        here = session.debugger.position
        session.add_edit(Edit(here, (), EDIT_DESCRIPTION, registers=tuple(changes)))
    return b"OK"
