"""Encoder and decoder of instruction words and descriptors, derived from the table."""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from nmpsim.diagnostics import UserError, did_you_mean, fail, list_alternatives
from nmpsim.isa.expressions import MAX_LISTED
from nmpsim.isa.table import (
    CHANNEL_RECORD,
    DESCRIPTORS,
    INSTRUCTIONS,
    SCALE_RECORD,
    Descriptor,
    DeviceInstruction,
    Word,
)
from nmpsim.records import frozen

BY_MNEMONIC: dict[str, DeviceInstruction] = {i.mnemonic: i for i in INSTRUCTIONS}
RECORDS: dict[str, Descriptor] = {
    **DESCRIPTORS,
    CHANNEL_RECORD.name: CHANNEL_RECORD,
    SCALE_RECORD.name: SCALE_RECORD,
}
"""All records by name: the descriptors, the channel record, the scale record."""


@frozen
class DecodedInstruction:
    """A decoded instruction word: the instruction and the values of its operands."""

    instruction: DeviceInstruction
    operands: Mapping[str, int]
    """Field name -> value, in assembly order."""


def encode(mnemonic: str, operands: Mapping[str, int]) -> int:
    """Encode an instruction as a word, given its mnemonic and its operand values by name.

    Raises
    ------
    UserError
        ISA001 if a name is unknown or missing, or a value does not fit its field.
    """
    instruction = BY_MNEMONIC.get(mnemonic)
    if instruction is None:
        raise make_unknown_name_error("instruction", mnemonic, BY_MNEMONIC)
    fields = instruction.format.fields
    _check_names(f"operand of {mnemonic}", operands, [f.name for f in fields])
    word = instruction.match
    for field in fields:
        word |= field.encode(operator.index(operands[field.name]))
    return word


@lru_cache(1 << 14)
def decode(word: int) -> DecodedInstruction | None:
    """Decode an instruction word; return None for an illegal word."""
    for instruction in _candidates(word & 0x7F, word >> 12 & 7):
        if word & instruction.mask == instruction.match:
            fields = instruction.format.fields
            return DecodedInstruction(instruction, {f.name: f.decode(word) for f in fields})
    return None


@cache
def _candidates(opcode: int, funct3: int) -> tuple[DeviceInstruction, ...]:
    """Return the instructions that words with these fields may encode."""
    bits = funct3 << 12 | opcode
    return tuple(i for i in INSTRUCTIONS if (i.match ^ bits) & i.mask & 0x707F == 0)


def encode_descriptor(name: str, values: Mapping[str, int | str]) -> bytes:
    """Encode a descriptor or record as bytes; ``values`` maps the names of all words to values.

    A word with named choices also accepts the name of a choice; an unsigned word accepts 0 to
    2^32-1, a signed one -2^31 to 2^31-1.

    Raises
    ------
    UserError
        ISA001 for an unknown name or an impossible value.
    """
    record = _record(name)
    _check_names(f"word of descriptor {name}", values, [w.name for w in record])
    return b"".join(_encode_word(name, word, values[word.name]) for word in record)


def encode_records(name: str, table: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Encode records, int64 [records, words], as uint32; raise UserError if a value is invalid.

    Raises
    ------
    UserError
        ISA001 for a value that its word cannot hold.
    """
    record = _record(name)
    low, high = np.array([get_word_range(word) for word in record]).T
    for row, column in np.argwhere((table < low) | (table > high))[:1]:
        _encode_word(name, record.words[column], int(table[row, column]))
    return table.astype(np.uint32)


def decode_descriptor(name: str, data: bytes | bytearray | memoryview) -> dict[str, int]:
    """Decode the descriptor or record at the start of ``data``; return its words by name."""
    record = _record(name)
    if len(data) < record.nbytes:
        raise fail(
            "ISA001",
            f"the data is too short for a descriptor {name}",
            found=f"{len(data)} bytes",
            expected=f"{record.nbytes} bytes",
        )
    names, layout = _layout(name)
    return dict(zip(names, layout.unpack_from(data), strict=True))


@cache
def _layout(name: str) -> tuple[tuple[str, ...], struct.Struct]:
    """Return the names of a record's words and their format in memory."""
    words = tuple(_record(name))
    kinds = "".join("i" if word.signed else "I" for word in words)
    return tuple(word.name for word in words), struct.Struct(f"<{kinds}")


@cache
def get_word_indices(name: str) -> dict[str, int]:
    """Return a mapping from the names of a record's words to their indices."""
    return {word.name: index for index, word in enumerate(_record(name))}


def get_word_range(word: Word) -> tuple[int, int]:
    """Return the smallest and the largest value that a descriptor word can hold."""
    if word.choices:
        return 0, len(word.choices) - 1
    return (-(1 << 31), (1 << 31) - 1) if word.signed else (0, (1 << 32) - 1)


def make_unknown_name_error(
    what: str, name: str, known: Iterable[str], code: str = "ISA001"
) -> UserError:
    """Return the error for an unknown name, with the known names or the most similar one."""
    known = list(known)
    expected = list_alternatives(known) if len(known) <= MAX_LISTED else None
    hint = did_you_mean(name, known)
    if hint is None and expected is None:
        hint = "See docs/isa.md for the known names."
    return fail(code, f"unknown {what} {name!r}", expected=expected, hint=hint)


def _record(name: str) -> Descriptor:
    record = RECORDS.get(name)
    if record is None:
        raise make_unknown_name_error("descriptor", name, RECORDS)
    return record


def _check_names(what: str, given: Iterable[str], expected: list[str]) -> None:
    given = set(given)
    for name in sorted(given.difference(expected)):
        raise make_unknown_name_error(what, name, expected)
    missing = [name for name in expected if name not in given]
    if missing:
        raise fail(
            "ISA001",
            f"missing {what}: {', '.join(missing)}",
            found=", ".join(sorted(given)) or "no names",
            expected=", ".join(expected),
        )


def _encode_word(record: str, word: Word, value: int | str) -> bytes:
    if isinstance(value, str):
        if value not in word.choices:
            raise make_unknown_name_error(f"value of {record}.{word.name}", value, word.choices)
        value = word.choices.index(value)
    value = operator.index(value)
    low, high = get_word_range(word)
    if not low <= value <= high:
        raise fail(
            "ISA001",
            f"the value of {record}.{word.name} is out of range",
            found=value,
            expected=f"{low} to {high}",
        )
    return (value & 0xFFFF_FFFF).to_bytes(4, "little")
