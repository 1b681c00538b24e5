"""Functions by which a program is profiled: those of its debug information, or its layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nmpsim.bundle import Bundle
from nmpsim.core.instruction_tables import INSTRUCTION_UNIT, MASKS, MATCHES, OP
from nmpsim.debuginfo import CodeFunction, SourceLine
from nmpsim.isa.table import RD, RS1

_NO_LAYER = -1
_TENSOR_NUMBERS = np.flatnonzero(INSTRUCTION_UNIT >= 0).tolist()


def list_profile_functions(
    bundle: Bundle, functions: Sequence[CodeFunction]
) -> tuple[CodeFunction, ...]:
    """List the functions of a program; the code of a compiled network is divided by layers.

    Compiled code loads the address of each descriptor just before the tensor instruction, and the
    number of each barrier just before the barrier.
    """
    return tuple(part for one in functions for part in _divide_by_layers(bundle, one))


def _divide_by_layers(bundle: Bundle, function: CodeFunction) -> Iterator[CodeFunction]:
    """Yield the code of each layer in a function, or the function if it contains none.

    Code up to a tensor instruction, or up to a barrier that ends a layer, belongs to its layer.
    """
    start = function.start - bundle.image_base
    words = bundle.image[start : start + (function.end - function.start) // 4 * 4].view("<u4")
    layers = np.full(words.size, _NO_LAYER)
    is_tensor = sum(_is_instruction(words, number) for number in _TENSOR_NUMBERS)
    found, addresses = _find_loaded_registers(words, is_tensor, 2)
    layers[found] = _read_words(bundle, addresses)
    found, numbers = _find_loaded_registers(words, _is_instruction(words, OP.nmp_barrier), 3)
    ended = {one.barrier: one.index for one in bundle.metadata.layers if one.barrier is not None}
    layers[found] = [ended.get(number, _NO_LAYER) for number in numbers.tolist()]
    layers[(layers < 0) | (layers >= len(bundle.metadata.layers))] = _NO_LAYER
    known = np.flatnonzero(layers != _NO_LAYER)
    if not known.size:
        yield function
        return
    last = np.append(np.flatnonzero(np.diff(layers[known])), known.size - 1)
    first = function.start
    for at, index in zip(known[last].tolist(), layers[known[last]].tolist(), strict=True):
        layer = bundle.metadata.layers[index]
        end = function.start + 4 * (at + 1) if at < known[-1] else function.end
        place = SourceLine(bundle.metadata.source, layer.line) if layer.line else None
        yield CodeFunction(first, end, layer.display_name, place)
        first = end


def _find_loaded_registers(words: Any, is_user: Any, distance: int) -> tuple[Any, Any]:
    """Return the indices of instructions whose rs1 was just loaded, and the loaded values.

    ``is_user`` marks the instructions. ``lui`` and ``addi`` load the register, ``distance`` words
    before and in the next word.
    """
    found = np.flatnonzero(is_user)
    found = found[found >= distance]
    high, low = words[found - distance], words[found - distance + 1]
    register = RS1.decode(words[found])
    is_loaded = _is_instruction(high, OP.lui) & _is_instruction(low, OP.addi)
    for one in (RD.decode(high), RD.decode(low), RS1.decode(low)):
        is_loaded &= one == register
    upper, lower = (high & 0xFFFF_F000).astype(np.int64), low.view(np.int32) >> 20
    return found[is_loaded], (upper + lower & 0xFFFF_FFFF)[is_loaded]


def _read_words(bundle: Bundle, addresses: Any) -> Any:
    """Return the word at each address, or _NO_LAYER where the image has none."""
    offsets = addresses - bundle.image_base
    is_inside = (offsets >= 0) & (offsets <= bundle.image.size - 4)
    offsets = np.where(is_inside, offsets, 0)
    words = bundle.image[offsets[:, None] + np.arange(4)].view("<u4").reshape(-1)
    return np.where(is_inside, words.astype(np.int64), _NO_LAYER)


def _is_instruction(words: Any, number: int) -> Any:
    """Return whether each word is the instruction with a row of the instruction table."""
    return words & np.uint32(MASKS[number]) == np.uint32(MATCHES[number])
