"""Packets that read and write memory, and the memory map."""

from __future__ import annotations

import errno
from xml.etree import ElementTree

from nmpsim.debugger.edits import Edit
from nmpsim.gdbserver.packets import MAX_PAYLOAD_BYTES, PacketError, unescape_data
from nmpsim.gdbserver.session import EDIT_DESCRIPTION, Session
from nmpsim.memory.address_map import Region, iterate_regions

MAX_READ_BYTES = MAX_PAYLOAD_BYTES // 2
"""Maximum number of bytes that one packet can read."""


def describe_memory(session: Session) -> bytes:
    """Return the memory map of a core, an XML document."""
    root = ElementTree.Element("memory-map")
    for _, start, memory in iterate_regions(session.debugger.machine, session.general_core):
        if memory.nbytes:
            fields = {"type": "ram", "start": hex(start), "length": hex(memory.nbytes)}
            ElementTree.SubElement(root, "memory", fields)
    return (
        b'<?xml version="1.0"?><!DOCTYPE memory-map PUBLIC "+//IDN gnu.org//DTD GDB Memory Map'
        b' V1.0//EN" "http://sourceware.org/gdb/gdb-memory-map.dtd">' + ElementTree.tostring(root)
    )


def read_memory(session: Session, address: int, size: int) -> bytes:
    """Return bytes of memory, or the first of them if the last lie outside of the memory."""
    _, data = _find_bytes(session, address)
    return data[: min(size, MAX_READ_BYTES)].hex().encode()


def write_hex_memory(session: Session, address: int, size: int, data: bytes) -> bytes:
    """Write bytes to memory that the packet contains as hexadecimal digits; return OK."""
    return _write(session, address, size, data)


def write_binary_memory(session: Session, address: int, size: int, text: bytes) -> bytes:
    """Write bytes to memory that the packet contains with escapes; return OK."""
    return _write(session, address, size, unescape_data(text))


def _find_bytes(session: Session, address: int) -> tuple[Region, bytes]:
    """Return the region of an address, and up to MAX_READ_BYTES of its bytes from the address on.

    Raises PacketError if the address is in no region.
    """
    for region, start, memory in iterate_regions(session.debugger.machine, session.general_core):
        if start <= address < start + memory.nbytes:
            offset = address - start
            return region, bytes(memory[offset : offset + MAX_READ_BYTES].tobytes())
    raise PacketError(f"there is no memory at {address:#x}", errno.EFAULT)


def _write(session: Session, address: int, size: int, data: bytes) -> bytes:
    """Change bytes of memory by an edit, unless they are equal already; return OK."""
    if len(data) != size:
        raise PacketError(f"the packet has {len(data)} bytes of data instead of {size}")
    if size == 0:
        return b"OK"
    region, now = _find_bytes(session, address)
    if now[:size] == data:
        return b"OK"
    if region is Region.CONTROL or size > len(now):
        raise PacketError(f"{size} bytes at {address:#x} cannot be written", errno.EFAULT)
    core = session.general_core if region is Region.SCRATCHPAD else None
    position = 0 if region is Region.IMAGE else session.debugger.position
    session.add_edit(Edit(position, ((address, data),), EDIT_DESCRIPTION, core=core))
    return b"OK"
