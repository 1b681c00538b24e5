"""Where each word of a descriptor lies: ``CONV.kernel_h`` is an index into the record.

Named tuples of plain integers, because compiled code can take them as constants.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from nmpsim.isa.shared_words import OPERATIONS
from nmpsim.isa.table import CHANNEL_RECORD, DESCRIPTORS, SCALE_RECORD, Descriptor


def indices(descriptor: Descriptor) -> Any:
    """A named tuple: word -> its index in the record."""
    named_tuple: Any = namedtuple  # its names come from the table, which a type checker cannot read
    names = [word.name for word in descriptor]
    record = named_tuple(descriptor.name.title().replace(" ", "") + "Words", names)
    return record(*range(len(names)))


def _numbers(descriptor: str, word: str, *choices: str) -> tuple[int, ...]:
    """The values of a word that these of its choices stand for."""
    (known,) = (w.choices for w in DESCRIPTORS[descriptor] if w.name == word)
    return tuple(known.index(choice) for choice in choices)


def position(name: str) -> tuple[int, ...]:
    """Where each descriptor has the word; -1 where it has none."""
    words = ([word.name for word in descriptor] for descriptor in DESCRIPTORS.values())
    return tuple(names.index(name) if name in names else -1 for names in words)


KINDS = {name: kind for kind, name in enumerate(DESCRIPTORS)}
"""Descriptor -> its row in tables of descriptors."""
LOAD = indices(DESCRIPTORS["load"])
STORE = indices(DESCRIPTORS["store"])
CONV = indices(DESCRIPTORS["conv"])
DWCONV = indices(DESCRIPTORS["dwconv"])
GEMM = indices(DESCRIPTORS["gemm"])
MAXPOOL = indices(DESCRIPTORS["maxpool"])
AVGPOOL = indices(DESCRIPTORS["avgpool"])
ELTWISE = indices(DESCRIPTORS["eltwise"])
RESCALE = indices(DESCRIPTORS["rescale"])
LUT = indices(DESCRIPTORS["lut"])
FILL = indices(DESCRIPTORS["fill"])
TRANSPOSE = indices(DESCRIPTORS["transpose"])
SCALE = indices(SCALE_RECORD)
CHANNEL = indices(CHANNEL_RECORD)

CHANNEL_BYTES = CHANNEL_RECORD.nbytes
SCALE_BYTES = SCALE_RECORD.nbytes
MAX_WORDS = max(len(d.words) for d in DESCRIPTORS.values())

INT8, INT16 = _numbers("conv", "element", "int8", "int16")
PART_ONLY, PART_FIRST, PART_MIDDLE, PART_LAST = _numbers(
    "conv", "part", "only", "first", "middle", "last"
)
(ACTIVATION_LEAKY,) = _numbers("conv", "activation", "leaky")
OP_ADD, OP_SUB, OP_MAX, OP_MIN, OP_MUL = OPERATION_NUMBERS = _numbers(
    "eltwise", "operation", *OPERATIONS
)
RHS_ELEMENT, RHS_INT32 = _numbers("eltwise", "rhs_kind", "element", "int32")
(DIVIDE_BY_VALID_TAPS,) = _numbers("avgpool", "divide", "by_valid_taps")
WANTED_LOW, WANTED_HIGH = 1, 2
"""Bits of ``clip_wanted``."""
