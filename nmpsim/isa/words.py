"""Where each word of a descriptor lies: ``CONV.kernel_h`` is an index into the record.

Named tuples of plain integers, because compiled code can take them as constants.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from nmpsim.isa.table import CHANNEL_RECORD, DESCRIPTORS, SCALE_RECORD, Descriptor


def _indices(descriptor: Descriptor) -> Any:
    named_tuple: Any = namedtuple  # its names come from the table, which a type checker cannot read
    names = [word.name for word in descriptor]
    record = named_tuple(descriptor.name.title().replace(" ", "") + "Words", names)
    return record(*range(len(names)))


LOAD = _indices(DESCRIPTORS["load"])
STORE = _indices(DESCRIPTORS["store"])
CONV = _indices(DESCRIPTORS["conv"])
DWCONV = _indices(DESCRIPTORS["dwconv"])
GEMM = _indices(DESCRIPTORS["gemm"])
MAXPOOL = _indices(DESCRIPTORS["maxpool"])
AVGPOOL = _indices(DESCRIPTORS["avgpool"])
ELTWISE = _indices(DESCRIPTORS["eltwise"])
RESCALE = _indices(DESCRIPTORS["rescale"])
LUT = _indices(DESCRIPTORS["lut"])
FILL = _indices(DESCRIPTORS["fill"])
TRANSPOSE = _indices(DESCRIPTORS["transpose"])
CHANNEL = _indices(CHANNEL_RECORD)
SCALE = _indices(SCALE_RECORD)

CHANNEL_BYTES = CHANNEL_RECORD.nbytes
SCALE_BYTES = SCALE_RECORD.nbytes
MOST_WORDS = max(len(d.words) for d in DESCRIPTORS.values())

PART_ONLY, PART_FIRST, PART_MIDDLE, PART_LAST = range(4)
ACTIVATION_NONE, ACTIVATION_LEAKY = range(2)
OP_ADD, OP_SUB, OP_MAX, OP_MIN, OP_MUL = range(5)
RHS_INT8, RHS_INT32 = range(2)
DIVIDE_NOTHING, DIVIDE_BY_VALID_TAPS = range(2)
WANTED_LOW, WANTED_HIGH = 1, 2
"""Bits of ``clip_wanted``."""
