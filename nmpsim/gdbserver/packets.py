"""Packets of the remote serial protocol: encoding, parsing and errors.

A packet is ``$PAYLOAD#CC``. CC is the sum of the payload's bytes modulo 256, as two hexadecimal
digits. ``+`` and ``-`` acknowledge a packet, and the byte 0x03 interrupts the program.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from enum import Enum

import attrs

MAX_PAYLOAD_BYTES = 1 << 15
"""Size limit of a received payload, and of the data in a reply."""
_ESCAPE = 0x7D
_ESCAPED = b"#$}*"
"""Bytes that binary data contain only after ``}``, with bit 5 inverted."""
INVALID_PACKET = b"E%02x" % errno.EINVAL
"""Reply to a packet whose form is invalid."""


class PacketError(Exception):
    """Exception raised for a packet that cannot be executed.

    Parameters
    ----------
    text : str
        Message for clients that announce ``error-message``.
    number : int
        Error number of POSIX for other clients.
    """

    def __init__(self, text: str, number: int = errno.EINVAL) -> None:
        super().__init__(text)
        self.number = number


class ControlByte(Enum):
    """Byte outside of packets with a meaning of its own."""

    ACKNOWLEDGED = b"+"
    REJECTED = b"-"
    INTERRUPT = b"\x03"


@attrs.frozen
class Packet:
    """Packet received from gdb, with its payload and whether its checksum and length are valid."""

    payload: bytes
    is_valid: bool = True


def compute_checksum(payload: bytes) -> int:
    """Compute the checksum of a payload: the sum of its bytes modulo 256."""
    return sum(payload) & 0xFF


def encode_packet(payload: bytes) -> bytes:
    """Encode a payload as a packet with its checksum."""
    return b"$%b#%02x" % (payload, compute_checksum(payload))


def escape_data(data: bytes) -> bytes:
    """Escape binary data for a payload."""
    return b"".join(
        bytes((_ESCAPE, byte ^ 0x20)) if byte in _ESCAPED else bytes((byte,)) for byte in data
    )


def unescape_data(data: bytes) -> bytes:
    """Return binary data without escapes; raise PacketError if the last escape is incomplete."""
    found, rest = bytearray(), iter(data)
    for byte in rest:
        if byte == _ESCAPE:
            following = next(rest, None)
            if following is None:
                raise PacketError("the binary data end with an escape character")
            byte = following ^ 0x20
        found.append(byte)
    return bytes(found)


class PacketParser:
    """Parser of the bytes that a client sends, in any division into blocks."""

    def __init__(self) -> None:
        self._packet: bytearray | None = None
        """Payload, ``#`` and checksum digits of the unfinished packet; None between packets."""
        self._checksum_start = -1
        """Index of the first checksum digit; -1 before ``#``."""
        self._is_too_long = False

    def parse(self, data: bytes) -> Iterator[Packet | ControlByte]:
        """Yield the packets and control bytes that ``data`` completes; ignore other bytes."""
        for byte in data:
            if byte == ord("$") and self._checksum_start < 0:
                self._packet, self._is_too_long = bytearray(), False
            elif self._packet is None:
                if byte in b"+-\x03":
                    yield ControlByte(bytes((byte,)))
            elif self._checksum_start < 0 and byte != ord("#"):
                if len(self._packet) < MAX_PAYLOAD_BYTES:
                    self._packet.append(byte)
                else:
                    self._is_too_long = True
            else:
                self._packet.append(byte)
                if self._checksum_start < 0:
                    self._checksum_start = len(self._packet)
                elif len(self._packet) == self._checksum_start + 2:
                    yield self._finish(self._packet, self._checksum_start)

    def _finish(self, packet: bytearray, checksum_start: int) -> Packet:
        payload, digits = bytes(packet[: checksum_start - 1]), bytes(packet[checksum_start:])
        is_too_long, self._is_too_long = self._is_too_long, False
        self._packet, self._checksum_start = None, -1
        digits_match = digits.lower() == b"%02x" % compute_checksum(payload)
        return Packet(payload, digits_match and not is_too_long)
