"""Words of descriptors that only some cores have otherwise, where all should have the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import attrs

from nmpsim.debugger.instructions import Done
from nmpsim.isa.shared_words import PADS

SHARED = (
    "profile", "operation", "activation", "element",
    "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w",
    "weight_offset", "lhs_offset", "rhs_offset", "in_offset", "out_offset",
    "fill", "empty_value", "in_low", "in_high", "clip_low", "clip_high",
    "out_pre", "out_mul", "out_post", "lhs_pre", "lhs_mul", "lhs_post",
    "rhs_pre", "rhs_mul", "rhs_post", "leaky_pre", "leaky_mul", "leaky_post",
    "result_scale", "divide", "dram_stride_x", "dram_stride_y",
)  # fmt: skip
"""Words that say what a layer computes, whatever part of it an instruction makes."""

_COUNTS = {"dram_stride_x": "count_x", "dram_stride_y": "count_y"}
"""What decides whether a stride is one."""


@attrs.frozen
class Outlier:
    """A word in which an instruction differs from all others of its kind in the layer."""

    done: Done
    word: str
    value: int
    others: int

    @property
    def text(self) -> str:
        """In words."""
        one = self.done
        return (
            f"{self.word} of {one.instruction.mnemonic} at {one.pc:#x} of core {one.core} is"
            f" {self.value}, that of the other cores {self.others}"
        )


def outliers(trace: Sequence[Done], cores: Iterable[int], writable: int) -> list[Outlier]:
    """Words that have one value on these cores, and another on all others of the layer.

    ``writable`` is the address from which DRAM is no part of the program.
    """
    chosen, found = frozenset(cores), list[Outlier]()
    groups: dict[tuple[object, ...], list[Done]] = defaultdict(list)
    for done in trace:
        if done.unit is not None and done.words:
            is_writable = done.words.get("dram", 0) >= writable
            groups[done.instruction.mnemonic, done.words.get("part", 0), is_writable].append(done)
    for group in groups.values():
        own = [done for done in group if done.core in chosen]
        others = [done for done in group if done.core not in chosen]
        for word in SHARED if own and len({done.core for done in others}) > 1 else ():
            usual = {done.words[word] for done in others if _matters(word, done)}
            odd = [done for done in own if _matters(word, done) and done.words[word] not in usual]
            if len(usual) == 1 and odd:
                (value,) = usual
                found.append(Outlier(odd[0], word, odd[0].words[word], value))
    return found


def _matters(word: str, done: Done) -> bool:
    """Has it a word, and does that do anything?"""
    if word == "fill":
        return any(done.words.get(pad) for pad in PADS)
    count = _COUNTS.get(word)
    return word in done.words and (count is None or done.words[count] > 1)
