"""Indices of the words of each descriptor, such as ``CONV.kernel_h``.

They are named tuples of integers, which compiled code can use as constants.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from nmpsim.isa.descriptors import OPERATIONS
from nmpsim.isa.table import CHANNEL_RECORD, DESCRIPTORS, SCALE_RECORD, Descriptor


def make_word_indices(descriptor: Descriptor) -> Any:
    """Return a named tuple with the index of each word of a record."""
    named_tuple: Any = namedtuple  # its names come from the table, which a type checker cannot read
    names = [word.name for word in descriptor]
    record = named_tuple(descriptor.name.title().replace(" ", "") + "Words", names)
    return record(*range(len(names)))


def _numbers(descriptor: str, word: str, *choices: str) -> tuple[int, ...]:
    """Return the values of some choices of a word."""
    (known,) = (w.choices for w in DESCRIPTORS[descriptor] if w.name == word)
    return tuple(known.index(choice) for choice in choices)


def find_word_positions(name: str) -> tuple[int, ...]:
    """Return the index of the word ``name`` in each descriptor, or -1 if a descriptor lacks it."""
    words = ([word.name for word in descriptor] for descriptor in DESCRIPTORS.values())
    return tuple(names.index(name) if name in names else -1 for names in words)


KINDS = {name: kind for kind, name in enumerate(DESCRIPTORS)}
"""Descriptor -> its row in tables that have a row for each descriptor."""
LOAD = make_word_indices(DESCRIPTORS["load"])
STORE = make_word_indices(DESCRIPTORS["store"])
CONV = make_word_indices(DESCRIPTORS["conv"])
DWCONV = make_word_indices(DESCRIPTORS["dwconv"])
GEMM = make_word_indices(DESCRIPTORS["gemm"])
MAXPOOL = make_word_indices(DESCRIPTORS["maxpool"])
AVGPOOL = make_word_indices(DESCRIPTORS["avgpool"])
ELTWISE = make_word_indices(DESCRIPTORS["eltwise"])
RESCALE = make_word_indices(DESCRIPTORS["rescale"])
LUT = make_word_indices(DESCRIPTORS["lut"])
FILL = make_word_indices(DESCRIPTORS["fill"])
TRANSPOSE = make_word_indices(DESCRIPTORS["transpose"])
SCALE = make_word_indices(SCALE_RECORD)
CHANNEL = make_word_indices(CHANNEL_RECORD)

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
"""Bits of ``clip_wanted``: the lower and the upper side."""
