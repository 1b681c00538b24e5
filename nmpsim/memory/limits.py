"""Checks of each word's value and alignment against arrays made from the table.

``kind`` is the index of a descriptor in ``DESCRIPTORS``. The compiled engine compiles these
functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.isa.descriptors import DESCRIPTORS, Descriptor, Word
from nmpsim.isa.layouts import Alignment, ItemSize
from nmpsim.isa.profiles import compute_profile_mask
from nmpsim.isa.words import KINDS, MAX_WORDS, PART_ONLY, find_word_positions
from nmpsim.memory.bounds import OK, exceeds_element_range

_ANY = 1 << 62

ELEMENT, SUM, RIGHT_SIDE = int(ItemSize.ELEMENT), int(ItemSize.SUM), int(ItemSize.RIGHT_SIDE)
_UNITS = {
    Alignment.NONE: 1,
    Alignment.ELEMENT: ELEMENT,
    Alignment.SUM: SUM,
    Alignment.RIGHT_SIDE: RIGHT_SIDE,
    Alignment.BYTES_4: 4,
    Alignment.BYTES_8: 8,
}


def _of_words(of: Callable[[str, Word], int], otherwise: int) -> npt.NDArray[np.int64]:
    """Return [descriptors, MAX_WORDS] a number for each word."""
    table = np.full((len(DESCRIPTORS), MAX_WORDS), otherwise, np.int64)
    for name, kind in KINDS.items():
        for index, word in enumerate(DESCRIPTORS[name]):
            table[kind, index] = of(name, word)
    return table


def _of_descriptors(of: Callable[[Descriptor], int]) -> npt.NDArray[np.int64]:
    return np.array([of(descriptor) for descriptor in DESCRIPTORS.values()], np.int64)


def _mask(name: str, word: Word) -> int:
    """Return the valid values as bits; 0 if only ``LEAST`` and ``MOST`` limit the word."""
    if word.name == "profile":
        return compute_profile_mask(name)
    return sum(1 << value for value in word.values or range(len(word.choices)))


LEAST = _of_words(lambda _, word: -_ANY if word.least is None else word.least, -_ANY)
MOST = _of_words(lambda _, word: _ANY if word.most is None else word.most, _ANY)
MASKS = _of_words(_mask, 0)
IS_ELEMENT = _of_words(lambda _, word: int(word.is_element), 0)
UNITS = _of_words(lambda _, word: _UNITS[word.alignment], 1)
WORDS = _of_descriptors(lambda descriptor: len(descriptor.words))
ELEMENT_WORD, PART_WORD, SIDE_WORD, CLIP_WORD = (
    np.array(find_word_positions(name)) for name in ("element", "part", "rhs_kind", "clip_low")
)


def get_element_code(kind: int, words: Any) -> int:
    """Return the element type of a descriptor: 1 for int16, 0 for int8 or if not specified."""
    return words[ELEMENT_WORD[kind]] if ELEMENT_WORD[kind] >= 0 else 0


def find_out_of_range_word(kind: int, words: Any, first: int, end: int) -> int:
    """Return the index of the first word in ``[first, end)`` with an invalid value; -1 if absent.

    The word ``element`` is checked before the values of the element that depend on it.
    """
    for index in range(first, end):
        mask, value = MASKS[kind, index], words[index]
        if mask != 0 and (value < 0 or value > 31 or not (mask >> value) & 1):
            return index
        if value < LEAST[kind, index] or value > MOST[kind, index]:
            return index
        if IS_ELEMENT[kind, index] and exceeds_element_range(value, get_element_code(kind, words)):
            return index
    return OK


def find_invalid_size(kind: int, words: Any) -> int:
    """Return the index of the first invalid word before the clip limits, or -1 if all are valid."""
    clip = CLIP_WORD[kind]
    return find_out_of_range_word(kind, words, 0, WORDS[kind] if clip < 0 else clip)


def find_invalid_clip(kind: int, words: Any) -> int:
    """Return the index of the first invalid clip limit or later word, or -1 if all are valid.

    The upper clip must not be below the lower one.
    """
    clip = CLIP_WORD[kind]
    if clip < 0:
        return OK
    bad = find_out_of_range_word(kind, words, clip, clip + 2)
    if bad == OK and words[clip + 1] < words[clip]:
        return int(clip + 1)
    return find_out_of_range_word(kind, words, clip + 2, WORDS[kind]) if bad == OK else bad


def get_item_bytes(kind: int, words: Any, size: int) -> int:
    """Return the size of an operand item in bytes; a negative ``size`` is an ``ItemSize`` code."""
    if size > 0:
        return size
    element = get_element_code(kind, words)
    if size == SUM:
        return int(4 << element)
    if size == RIGHT_SIDE and words[SIDE_WORD[kind]]:
        return 4
    return int(1 << element)


def find_misaligned_word(kind: int, words: Any) -> int:
    """Return the index of the first misaligned address or stride, or -1 if all are aligned."""
    for index in range(WORDS[kind]):
        unit = UNITS[kind, index]
        if unit == 1 or (unit == SUM and words[PART_WORD[kind]] == PART_ONLY):
            continue
        if words[index] % get_item_bytes(kind, words, unit) != 0:
            return index
    return OK
