"""Packets: framing, checksums, escapes, acknowledgments, interrupts."""

from __future__ import annotations

from itertools import pairwise

from gdb_clients import MemoryStream
from hypothesis import given
from hypothesis import strategies as st

from nmpsim.gdbserver.connection import Connection
from nmpsim.gdbserver.packets import (
    INVALID_PACKET,
    MAX_PAYLOAD_BYTES,
    ControlByte,
    Packet,
    PacketParser,
    encode_packet,
    escape_data,
    unescape_data,
)


def parse(*blocks: bytes) -> list[Packet | ControlByte]:
    parser = PacketParser()
    return [item for block in blocks for item in parser.parse(block)]


@given(st.binary(max_size=40))
def test_escaped_data_survive_a_packet(data: bytes) -> None:
    (packet,) = parse(encode_packet(escape_data(data)))
    assert isinstance(packet, Packet) and packet.is_valid
    assert unescape_data(packet.payload) == data


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=4))
def test_the_division_into_blocks_does_not_matter(noise: bytes, cuts: list[int]) -> None:
    data = noise + encode_packet(b"m0,4") + b"\x03+-"
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    blocks = [data[a:b] for a, b in pairwise(bounds)]
    assert parse(*blocks) == parse(data)


def test_control_bytes_and_packets_keep_their_order() -> None:
    found = parse(b"+$g#67\x03xyz-$?#3f")
    assert found == [
        ControlByte.ACKNOWLEDGED, Packet(b"g"), ControlByte.INTERRUPT, ControlByte.REJECTED,
        Packet(b"?"),
    ]  # fmt: skip


def test_invalid_packets_are_recognized() -> None:
    assert parse(b"$g#68") == [Packet(b"g", is_valid=False)]
    assert parse(b"$g#zz") == [Packet(b"g", is_valid=False)]
    assert parse(b"$g$?#3f") == [Packet(b"?")], "a new packet replaces an unfinished one"
    (long,) = parse(encode_packet(b"m" * (MAX_PAYLOAD_BYTES + 1)))
    assert isinstance(long, Packet) and not long.is_valid
    assert parse(encode_packet(b"m" * MAX_PAYLOAD_BYTES)) == [Packet(b"m" * MAX_PAYLOAD_BYTES)]


def test_an_invalid_packet_is_repeated() -> None:
    stream = MemoryStream(b"+$g#00", b"$g#67-")
    connection = Connection(stream)
    assert connection.read_packet() == b"g"
    connection.send(b"0000")
    assert connection.read_packet() is None
    assert stream.sent == b"-+$0000#c0"


def test_a_rejected_reply_is_sent_again() -> None:
    stream = MemoryStream(b"$g#67", b"-", b"$?#3f")
    connection = Connection(stream)
    assert connection.read_packet() == b"g"
    connection.send(b"OK")
    assert connection.read_packet() == b"?"
    assert stream.sent == b"+$OK#9a$OK#9a+"


def test_without_acknowledgments_an_invalid_packet_gets_an_error() -> None:
    stream = MemoryStream(b"$g#00$?#3f")
    connection = Connection(stream)
    connection.is_acknowledging = False
    assert connection.read_packet() == b"?"
    assert stream.sent == encode_packet(INVALID_PACKET)


def test_an_interrupt_counts_only_after_the_packet_that_runs() -> None:
    connection = Connection(MemoryStream(b"\x03$c#63"))
    assert connection.read_packet() == b"c"
    assert not connection.poll_interrupt()
    connection = Connection(MemoryStream(b"$c#63\x03$?#3f"))
    assert connection.read_packet() == b"c"
    assert connection.poll_interrupt()
    assert connection.read_packet() == b"?"


def test_other_protocols_are_disconnected() -> None:
    stream = MemoryStream(b"POST / HTTP/1.1\r\n\r\n$k#6b")
    connection = Connection(stream)
    assert connection.read_packet() is None
    assert connection.is_closed and stream.sent == b""


def test_a_client_that_left_interrupts_the_run() -> None:
    stream = MemoryStream(b"$c#63", b"")
    connection = Connection(stream)
    assert connection.read_packet() == b"c"
    assert connection.poll_interrupt() and connection.is_closed
