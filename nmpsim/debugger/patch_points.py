"""Where the numbers of a layer stand in the program: descriptors, records of channels."""

from __future__ import annotations

from collections.abc import Iterator

from nmpsim.debugger.instructions import Done
from nmpsim.debugger.tracing import last_writer, loaded_from
from nmpsim.diagnostics import fail
from nmpsim.isa.table import CHANNEL_RECORD, DESCRIPTORS, SCALE_RECORD, Descriptor

NO_CHANGE = ("layer",)
"""Words that cannot be changed: what counts for a layer is found by them."""


def pieces_of(
    done: Done, word: str, channel: int | None, trace: list[Done]
) -> Iterator[tuple[int, int]]:
    """(address, bytes) of a word of an instruction; ``channel`` counts from its first one."""
    d = done.words
    channels = d.get("out_channels", d.get("channels_count", 0))
    chosen = range(channels) if channel is None else [channel] if 0 <= channel < channels else []
    if word == "bias":
        if "channels" in d and channel is not None:
            for one in chosen:
                yield from _record(done, "channels", CHANNEL_RECORD, "bias_low", one, trace, 8)
    elif d.get("scales") and word in [w.name for w in SCALE_RECORD]:
        for one in chosen:
            yield from _record(done, "scales", SCALE_RECORD, word, one, trace, 4)
    elif channel is None and word in d and word not in NO_CHANGE:
        yield done.rs1 + 4 * index_of(done, word), 4


def _record(
    done: Done,
    table: str,
    record: Descriptor,
    word: str,
    channel: int,
    trace: list[Done],
    size: int,
) -> Iterator[tuple[int, int]]:
    """Where a record of a table in the scratchpad came from, if a load brought it."""
    names = [w.name for w in record]
    address = done.words[table] + channel * record.nbytes + 4 * names.index(word)
    before = [o for o in trace if o.core == done.core and o.position < done.position]
    load = last_writer(before, "scratchpad", address)
    source = loaded_from(load, address) if load and load.words.get("dram") else None
    if source is not None:
        yield source, size


def index_of(done: Done, word: str) -> int:
    """Which word of its descriptor one is."""
    names = [w.name for w in DESCRIPTORS[done.instruction.descriptor or ""]]
    return names.index(word)


def packed(value: int, size: int) -> bytes:
    """A number as bytes, signed or not; UserError (DEBUG002) if it does not fit."""
    bits = 8 * size
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise fail("DEBUG002", "the number does not fit", found=value, expected=f"{bits} bits")
    return (value & ((1 << bits) - 1)).to_bytes(size, "little")
