"""Checks of the scales of a descriptor and of its table of scale records.

An invalid scale is reported at its first word, ``pre``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nmpsim.isa.descriptors import DESCRIPTORS, OPERATIONS
from nmpsim.isa.profiles import Q31, ROWS, ElementwiseWords
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import AVGPOOL, ELTWISE, KINDS, SCALE, SCALE_BYTES, find_word_positions
from nmpsim.memory.bounds import (
    INFINITY_BITS,
    OK,
    exceeds_element_range,
    is_invalid_result_scale,
    is_invalid_scale,
)
from nmpsim.memory.limits import get_element_code

_AVGPOOL, _ELTWISE, _RESCALE = KINDS["avgpool"], KINDS["eltwise"], KINDS["rescale"]
_HAS_COMMON_SHIFT = np.array([row.form.has_common_shift for row in ROWS])
_HAS_LEAKY_SUMS = np.array([row.has_leaky_sums for row in ROWS])
_SUMS_USE_RESULT_SCALE = np.array([row.sums_use_result_scale for row in ROWS])
_AVERAGE_USES_RESULT_SCALE = np.array([row.average_uses_result_scale for row in ROWS])
_RESCALE_USES_RESULT_SCALE = np.array([row.rescale_uses_result_scale for row in ROWS])
_PROFILE, _RESULT_SCALE, _ACTIVATION, _OUT = (
    np.array(find_word_positions(name))
    for name in ("profile", "result_scale", "activation", "out_pre")
)
_HAS_SUMS = np.array(
    [any(word.name in ("channels", "partial") for word in d.operands) for d in DESCRIPTORS.values()]
)
"""Whether each descriptor is of the MAC array."""


def _positions() -> Any:
    """Return [descriptors, scales] the index of each scale's first word; -1 ends the list."""
    found = [
        [i for i, word in enumerate(d) if word.name.endswith("_pre")] for d in DESCRIPTORS.values()
    ]
    most = max(map(len, found)) + 1
    return np.array([[*scales, *[-1] * (most - len(scales))] for scales in found], np.int64)


_SCALES = _positions()


def _of_pairs(of: Callable[[ElementwiseWords], bool]) -> Any:
    """Return [profiles, operations] a flag of the elementwise operations; False if unsupported."""
    table = np.zeros((len(ROWS), len(OPERATIONS)), np.bool_)
    for row in ROWS:
        for pair in row.pairs:
            for name in pair.operations:
                table[row.number, OPERATIONS.index(name)] = of(pair)
    return table


_PAIRS_USE_RESULT_SCALE = _of_pairs(lambda pair: pair.uses_result_scale)
_HAS_ADDENDS = _of_pairs(lambda pair: pair.has_addends)


def is_invalid_output_scale(words: Any, pre: int, element: int, profile: int) -> bool:
    """Return whether an output scale is invalid; int16 with q31 requires a net right shift."""
    if profile == Q31 and element and words[pre] > 14 + words[pre + 2]:
        return True
    return is_invalid_scale(words, pre, profile)


def has_invalid_scale_table(
    values: Any, address: int, channels: int, element: int, profile: int
) -> bool:
    """Return whether a table of scale records in a scratchpad has an invalid record.

    Records are data, so they are checked when the instruction is issued, after the bounds and the
    alignment of the table. An ``address`` of 0 means that there is no table.
    """
    if address == 0:
        return False
    first = (address - SCRATCHPAD_BASE) // 4
    for channel in range(channels):
        at = first + channel * (SCALE_BYTES // 4)
        if exceeds_element_range(values[at + SCALE.weight_offset], element):
            return True
        if is_invalid_scale(values, at + SCALE.bias_pre, profile):
            return True
        if is_invalid_output_scale(values, at + SCALE.out_pre, element, profile):
            return True
    return False


def is_finite(words: Any, index: int) -> bool:
    """Return whether the word at ``index`` holds a finite float32."""
    return bool(words[index] & 0x7FFF_FFFF < INFINITY_BITS)


def uses_result_scale(kind: int, words: Any, profile: int) -> bool:
    """Return whether an instruction reads the word ``result_scale`` in a profile."""
    if kind == _RESCALE:
        return bool(_RESCALE_USES_RESULT_SCALE[profile])
    if kind == _AVGPOOL:
        return bool(_AVERAGE_USES_RESULT_SCALE[profile])
    if kind == _ELTWISE:
        return bool(_PAIRS_USE_RESULT_SCALE[profile, words[ELTWISE.operation]])
    return bool(_HAS_SUMS[kind] and _SUMS_USE_RESULT_SCALE[profile])


def find_invalid_scale(kind: int, words: Any) -> int:
    """Return the index of the first word of an invalid scale, or -1 if all scales are valid."""
    if _PROFILE[kind] < 0:
        return OK
    profile = words[_PROFILE[kind]]
    if _HAS_COMMON_SHIFT[profile]:
        return int(ELTWISE.out_post) if words[ELTWISE.out_post] > 31 else OK
    for scale in _SCALES[kind]:
        if scale < 0:
            break
        # The reduced multiplier is for the sums of Int16 only.
        element = get_element_code(kind, words) if _HAS_SUMS[kind] and scale == _OUT[kind] else 0
        if is_invalid_output_scale(words, scale, element, profile):
            return int(scale)
    if kind == _ELTWISE and _HAS_ADDENDS[profile, words[ELTWISE.operation]]:
        for addend in (ELTWISE.lhs_post, ELTWISE.rhs_post):
            if not is_finite(words, addend):
                return int(addend)
    is_average = kind == _AVGPOOL and _AVERAGE_USES_RESULT_SCALE[profile]
    if is_average and not is_finite(words, AVGPOOL.out_post):
        return int(AVGPOOL.out_post)
    if uses_result_scale(kind, words, profile) and is_invalid_result_scale(
        words, _RESULT_SCALE[kind]
    ):
        return int(_RESULT_SCALE[kind])
    is_leaky = _ACTIVATION[kind] >= 0 and words[_ACTIVATION[kind]] != 0
    if is_leaky and _HAS_SUMS[kind] and not _HAS_LEAKY_SUMS[profile]:
        return int(_ACTIVATION[kind])
    return OK
