"""Connection with a client: acknowledgments, repeated packets and interrupts."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from nmpsim.gdbserver.packets import (
    INVALID_PACKET,
    ControlByte,
    Packet,
    PacketParser,
    encode_packet,
)

MAX_QUEUED_PACKETS = 64
"""Maximum number of packets that a client can send before it reads the replies."""
_FIRST_BYTES = b"+-$\x03"
"""Bytes with which a client of the protocol can begin."""


class ByteStream(Protocol):
    """Protocol of a stream of bytes in both directions, such as a socket."""

    def receive(self, *, wait: bool) -> bytes | None:
        """Return received bytes, b"" at the end of the stream, or None if there are none yet.

        With ``wait``, wait until there are bytes.
        """

    def send(self, data: bytes) -> None:
        """Send all bytes; raise OSError if the stream is closed."""


class Connection:
    """Connection with a client over a stream of bytes.

    A connection is closed if the first byte cannot begin a packet. Otherwise a page in a browser
    could hide packets in a request to this port.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._parser = PacketParser()
        self._queue: deque[Packet | ControlByte] = deque()
        """Packets and interrupts in the order in which they were received."""
        self._last_reply = b""
        self._has_begun = False
        self.is_acknowledging = True
        """Whether both sides acknowledge packets."""
        self.is_closed = False

    def read_packet(self) -> bytes | None:
        """Wait for the next valid packet and return its payload, or None if the stream ends.

        An invalid packet is rejected, so that the client repeats it.
        """
        while True:
            while not self._queue:
                if self.is_closed:
                    return None
                self._receive(wait=True)
            item = self._queue.popleft()
            if isinstance(item, ControlByte):
                continue  # an interrupt has no effect while no program runs
            if item.is_valid:
                self._acknowledge(ControlByte.ACKNOWLEDGED)
                return item.payload
            if self.is_acknowledging:
                self._acknowledge(ControlByte.REJECTED)
            else:
                self.send(INVALID_PACKET)

    def send(self, payload: bytes) -> None:
        """Send a packet with a payload; mark the connection as closed if that is impossible."""
        self._last_reply = encode_packet(payload)
        self._write(self._last_reply)

    def poll_interrupt(self) -> bool:
        """Return whether the client has interrupted the run or closed the connection."""
        self._receive(wait=False)
        return self.is_closed or ControlByte.INTERRUPT in self._queue

    def _acknowledge(self, byte: ControlByte) -> None:
        if self.is_acknowledging:
            self._write(byte.value)

    def _write(self, data: bytes) -> None:
        try:
            self._stream.send(data)
        except OSError:
            self.is_closed = True

    def _receive(self, *, wait: bool) -> None:
        """Receive bytes and queue the packets in them."""
        if self.is_closed or len(self._queue) >= MAX_QUEUED_PACKETS:
            return
        try:
            data = self._stream.receive(wait=wait)
        except OSError:
            data = b""
        if data is None:
            return
        if not data or not (self._has_begun or data[0] in _FIRST_BYTES):
            self.is_closed = True
            return
        self._has_begun = True
        for item in self._parser.parse(data):
            if isinstance(item, Packet) or item is ControlByte.INTERRUPT:
                self._queue.append(item)
            elif item is ControlByte.REJECTED and self.is_acknowledging:
                self._write(self._last_reply)
