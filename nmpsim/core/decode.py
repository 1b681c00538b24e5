"""Instruction numbers and their look-up, derived from the table, for compiled code."""

from __future__ import annotations

import keyword
from collections import namedtuple
from typing import Any

import numpy as np

from nmpsim.isa.table import DESCRIPTORS, INSTRUCTIONS


def _identifier(mnemonic: str) -> str:
    name = mnemonic.replace(".", "_")
    return name + "_" if keyword.iskeyword(name) else name


def _numbers() -> Any:
    names = [_identifier(i.mnemonic) for i in INSTRUCTIONS]
    named_tuple: Any = namedtuple  # its names come from the table, which a type checker cannot read
    record = named_tuple("InstructionNumbers", names)
    return record(*range(len(names)))


OP = _numbers()
"""``OP.addi`` is the number of ``addi``: its row in the table."""

ILLEGAL = len(INSTRUCTIONS)

MATCHES = np.array([i.match for i in INSTRUCTIONS], np.int64)
MASKS = np.array([i.mask for i in INSTRUCTIONS], np.int64)


def _buckets() -> Any:
    words = [(bucket >> 3) << 2 | (bucket & 7) << 12 | 3 for bucket in range(256)]
    seen = MASKS & 0x707F
    lists = [np.flatnonzero(word & seen == MATCHES & seen) for word in words]
    table = np.full((256, max(map(len, lists))), -1, np.int64)
    for bucket, numbers in enumerate(lists):
        table[bucket, : len(numbers)] = numbers
    return table


BUCKETS = _buckets()
"""[opcode bits 6:2 and funct3][candidates], -1 where there is no further one."""

_DESCRIPTORS = [DESCRIPTORS.get(i.descriptor or "") for i in INSTRUCTIONS]
WORD_COUNT = np.array([len(d.words) if d else 0 for d in _DESCRIPTORS], np.int64)
"""Words of the descriptor of each instruction."""
WORD_SIGNED = np.zeros((len(INSTRUCTIONS), int(WORD_COUNT.max())), np.bool_)
for _row, _descriptor in enumerate(_DESCRIPTORS):
    for _column, _word in enumerate(_descriptor or ()):
        WORD_SIGNED[_row, _column] = _word.signed
INSTRUCTION_UNIT = np.array([-1 if i.unit is None else int(i.unit) for i in INSTRUCTIONS], np.int64)
"""Unit of each tensor instruction, -1 for the others."""
