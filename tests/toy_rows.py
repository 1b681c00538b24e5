"""Toy rows for the tables of the project: a test table that is total must miss each of them."""

from __future__ import annotations

import attrs
import pytest

from nmpsim.isa import table
from nmpsim.isa.descriptors import DESCRIPTORS
from nmpsim.lir.opcodes import HOST_OPCODES, OPCODES


def add_descriptor(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(DESCRIPTORS, "toy", attrs.evolve(DESCRIPTORS["lut"], name="toy"))


def add_word(patch: pytest.MonkeyPatch, descriptor: str) -> None:
    """Give a descriptor the word ``toy``."""
    record = DESCRIPTORS[descriptor]
    word = attrs.evolve(record.words[0], name="toy")
    patch.setitem(DESCRIPTORS, descriptor, attrs.evolve(record, words=(*record.words, word)))


def add_instruction(patch: pytest.MonkeyPatch) -> None:
    toy = attrs.evolve(table.INSTRUCTIONS[-1], mnemonic="nmp.toy")
    patch.setattr(table, "INSTRUCTIONS", (*table.INSTRUCTIONS, toy))


def add_tensor_instruction(patch: pytest.MonkeyPatch, descriptor: str = "lut") -> None:
    """Give a descriptor a second instruction."""
    (row,) = (row for row in table.INSTRUCTIONS if row.descriptor == descriptor)
    toy = attrs.evolve(row, mnemonic="nmp.toy", match=row.match | 7 << 12)
    patch.setattr(table, "INSTRUCTIONS", (*table.INSTRUCTIONS, toy))


def add_opcode(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(OPCODES, "toy", attrs.evolve(OPCODES["topk"], name="toy", signatures=(), run=""))


def add_host_opcode(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(HOST_OPCODES, "toy", attrs.evolve(HOST_OPCODES["topk"], name="toy"))


def add_unlimited_opcode(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(OPCODES, "toy", attrs.evolve(OPCODES["flip"], name="toy", rules=()))
