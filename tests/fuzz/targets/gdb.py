"""Packets of gdb: each line is the payload of a packet, or bytes as they are after a zero byte."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import chdir
from functools import cache
from random import Random

from nmpsim.array_files import ArrayFile
from nmpsim.config import make_device_config
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.shell import COMMANDS, Shell
from nmpsim.gdbserver.connection import Connection
from nmpsim.gdbserver.packet_table import PACKETS
from nmpsim.gdbserver.packets import MAX_PAYLOAD_BYTES, Packet, PacketParser, encode_packet
from nmpsim.gdbserver.server import serve_session
from nmpsim.gdbserver.session import Session

from .. import programs
from ..engines import limit_cycles, warm
from ..mutate import INTEGERS, mutate_bytes
from ..target import Target, get_folder

MAX_PACKETS = 64
MAX_MEBIBYTES = 16
CODE, RAM, SCRATCHPAD = 0x8000_0100, 0xA000_0000, 0x2000_0000
FIELDS = {
    "address": (CODE, CODE + 4, RAM, SCRATCHPAD, SCRATCHPAD + 0x1FFFC, 0x1000_0000, 0, 0xFFFF_FFFF),
    "size": (0, 1, 2, 4, 64, 0x4000, 0x7FFF_FFFF),
    "kind": (0, 1, 2, 3, 4, 5),
    "number": (0, 1, 2, 31, 32, 33, 65 + 0x300, 65 + 0x305, 65 + 0xB00, 65 + 0xF14),
    "thread": (0, 1, 2, 3, 4, 5),
}
"""Name of a field -> numbers that have a meaning."""
TEXTS = (
    "vCont;s:1;c", "vCont;c", "vCont;s:2", "vCont;C05:1;s:3", "qSupported:error-message+;swbreak+",
    "qXfer:features:read:target.xml:0,ffb", "qXfer:threads:read::0,ffb", "bs", "bc", "?", "g",
    "qXfer:memory-map:read::0,ffb", "Z0,80000200,4", "Z2,a0000000,40", "Z4,20000000,100", "s", "c",
    "Pa=01000000", "P20=00010080", "M20000010,4:01020304", "Ma0000000,1:7f", "M80000200,1:13",
    "Xa0000000,2:}\x03a", "G" + "01020304" * 33, "vRun;", "R00", "!", "z0,80000200,4", "\0\x03",
    "\0$g#00", "\0-", "\0+$", "QStartNoAckMode",
)  # fmt: skip


class ReplayStream:
    """Stream with one block of input; it counts and checks the replies."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._parser = PacketParser()

    def receive(self, *, wait: bool) -> bytes | None:
        """Return the input, then the end of the stream."""
        if not wait:
            return None
        data, self._data = self._data, b""
        return data

    def send(self, data: bytes) -> None:
        """Check that the replies are valid packets."""
        assert len(data) <= 2 * MAX_PAYLOAD_BYTES
        for item in self._parser.parse(data):
            assert not isinstance(item, Packet) or item.is_valid, data


def run(data: bytes) -> None:
    """Execute the packets in a new session."""
    _prepare()
    gc.collect()  # logs of hazards are large, and debuggers are in reference cycles
    program, inputs = programs.one_conv()
    config = limit_cycles(make_device_config(program.metadata.device))
    debugger = Debugger(program, inputs, config=config, budget_mib=MAX_MEBIBYTES)
    lines = data.split(b"\n")[:MAX_PACKETS]
    stream = ReplayStream(
        b"+" + b"".join(one[1:] if one[:1] == b"\0" else encode_packet(one) for one in lines)
    )
    with chdir(get_folder()):
        serve_session(Session(Shell(debugger, ArrayFile), Connection(stream)))
    assert (debugger.machine.cores.registers[:, 0] == 0).all()


@cache
def _prepare() -> None:
    """Load kernels; exclude all objects of this time from later collections."""
    warm()
    gc.freeze()


def seeds() -> Iterator[bytes]:
    """Yield sequences of all packets with meaningful fields, and commands."""
    yield "\n".join(TEXTS).encode("latin-1")
    random = Random(0)
    for _ in range(20):
        yield "\n".join(_fill(packet.form, random) for packet in PACKETS if packet.form != "k"
                        ).encode("latin-1")  # fmt: skip


def _fill(form: str, random: Random) -> str:
    """Return a packet of a form with meaningful fields."""

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if name == "command":
            return random.choice(COMMANDS).usage.lower().encode().hex()
        if name == "data":
            return random.randbytes(random.choice((1, 4, 132))).hex()
        if name in ("actions", "text", "features", "document", "annex"):
            return random.choice(("c", "s:1", "1", "features", "target.xml", ""))
        return f"{random.choice(FIELDS.get(name, FIELDS['size'])):x}"

    return re.sub(r"<(\w+)>", fill, form)


def mutate(data: bytes, random: Random) -> bytes:
    """Change, copy, move or remove packets, or replace numbers in them."""
    lines = data.split(b"\n")
    for _ in range(random.choice((1, 2, 4, 8))):
        number, kind = random.randrange(len(lines)), random.randrange(8)
        line = lines[number]
        if kind == 0:
            lines.insert(number, random.choice(lines))
        elif kind == 1 and len(lines) > 1:
            del lines[number]
        elif kind == 2:
            lines.insert(number, random.choice(TEXTS).encode("latin-1"))
        elif kind == 3:
            lines.insert(number, _fill(random.choice(PACKETS).form, random).encode("latin-1"))
        elif kind == 4:
            lines[number] = mutate_bytes(line, random)
        else:
            value = random.choice((*INTEGERS, *(v for one in FIELDS.values() for v in one)))
            numbers = list(re.finditer(rb"[0-9a-f]+", line))
            if numbers:
                chosen = random.choice(numbers)
                text = b"%x" % abs(value)
                lines[number] = line[: chosen.start()] + text + line[chosen.end() :]
    return b"\n".join(lines)


TARGET = Target(run, seeds, mutate, seconds=30, most_bytes=1 << 12)
