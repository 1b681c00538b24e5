"""Arrays by instruction number, derived from the instruction table, for compiled code."""

from __future__ import annotations

import keyword
from collections import namedtuple
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from nmpsim.isa.exhaustive import require_cases
from nmpsim.isa.table import (
    DESCRIPTORS,
    INSTRUCTIONS,
    InstructionKind,
    Unit,
    list_mnemonics,
)
from nmpsim.isa.words import KINDS

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _identifier(mnemonic: str) -> str:
    name = mnemonic.replace(".", "_")
    return name + "_" if keyword.iskeyword(name) else name


def _constants(name: str, values: dict[str, int]) -> Any:
    """Return constants as a named tuple, whose fields are constants in compiled code."""
    named_tuple: Any = namedtuple  # its names come from tables, which a type checker cannot read
    return named_tuple(name, list(values))(*values.values())


OP = _constants(
    "InstructionNumbers", {_identifier(i.mnemonic): n for n, i in enumerate(INSTRUCTIONS)}
)
"""Instruction numbers by name: ``OP.addi`` is the row of ``addi`` in the table."""
KIND = _constants("KindNumbers", {kind.name: int(kind) for kind in InstructionKind})
UNIT = _constants("UnitNumbers", {unit.name: int(unit) for unit in Unit})


def handles_kinds(*kinds: InstructionKind) -> Callable[[_Function], _Function]:
    """Return a decorator that checks that a function mentions exactly these instruction kinds."""
    return require_cases(KIND._fields, [kind.name for kind in kinds])


def handles_instructions(*kinds: InstructionKind) -> Callable[[_Function], _Function]:
    """Return a decorator that checks that a function mentions all instructions of these kinds."""
    return require_cases(OP._fields, map(_identifier, list_mnemonics(*kinds)))


ILLEGAL = len(INSTRUCTIONS)

RV32IM = (
    InstructionKind.UPPER,
    InstructionKind.JUMP,
    InstructionKind.BRANCH,
    InstructionKind.LOAD,
    InstructionKind.STORE,
    InstructionKind.IMMEDIATE,
    InstructionKind.REGISTER,
    InstructionKind.MULTIPLY,
    InstructionKind.DIVIDE,
)
"""Kinds of instructions that use only registers, pc and memory."""
OTHER_SCALAR = tuple(
    kind for kind in InstructionKind if kind not in (*RV32IM, InstructionKind.TENSOR)
)

KIND_OF = np.array([int(i.kind) for i in INSTRUCTIONS], np.int64)
IS_RV32IM = np.array([*(i.kind in RV32IM for i in INSTRUCTIONS), False])
"""[instructions + 1] whether an instruction is RV32IM; the last entry is ILLEGAL's."""
ACCESS_BYTES = np.array([i.access_bytes for i in INSTRUCTIONS], np.int64)
IS_ACCESS = ACCESS_BYTES > 0
"""[instructions] scalar loads and stores."""
IS_TRACED = IS_ACCESS | np.isin(KIND_OF, (InstructionKind.TENSOR, InstructionKind.SYNC))
"""[instructions] whether an instruction accesses more than its core's registers, CSRs and pc."""
IS_WRITE = np.array([i.kind is InstructionKind.STORE for i in INSTRUCTIONS])
"""[instructions] scalar stores."""
IS_SYNCHRONISATION = np.array([i.kind is InstructionKind.SYNC for i in INSTRUCTIONS])
"""[instructions] waits, barriers, semaphores and halt."""
SIGN_EXTENDS = np.array([i.is_signed for i in INSTRUCTIONS])

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
"""[opcode bits 6:2 and funct3][candidates] instructions, -1 where there is no further one."""

_DESCRIPTORS = [DESCRIPTORS.get(i.descriptor or "") for i in INSTRUCTIONS]
WORD_COUNT = np.array([len(d.words) if d else 0 for d in _DESCRIPTORS], np.int64)
"""[instructions] words of the descriptor."""
WORD_SIGNED = np.zeros((len(INSTRUCTIONS), int(WORD_COUNT.max())), np.bool_)
for _row, _descriptor in enumerate(_DESCRIPTORS):
    for _column, _word in enumerate(_descriptor or ()):
        WORD_SIGNED[_row, _column] = _word.signed


def _word_numbers(*names: str) -> Any:
    """Return the index of the first of ``names`` in each instruction's descriptor, or -1."""
    numbers = np.full(len(INSTRUCTIONS), -1, np.int64)
    for row, descriptor in enumerate(_DESCRIPTORS):
        words = [word.name for word in descriptor or ()]
        numbers[row] = next((words.index(name) for name in names if name in words), -1)
    return numbers


SCALES_WORD = _word_numbers("scales")
"""[instructions] word of the table of scales, or -1."""
CHANNELS_WORD = _word_numbers("out_channels", "channels_count")
"""[instructions] word of the number of records of that table, or -1."""
INSTRUCTION_UNIT = np.array([-1 if i.unit is None else int(i.unit) for i in INSTRUCTIONS], np.int64)
"""[instructions] unit of a tensor instruction, or -1."""
FOOTPRINT_KIND = np.array(
    [-1 if i.descriptor is None else KINDS[i.descriptor] for i in INSTRUCTIONS], np.int64
)
"""[instructions] row of the descriptor in tables of descriptors, or -1."""
