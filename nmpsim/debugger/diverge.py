"""What may have made the first wrong layer wrong: from its values, and from who wrote them.

Against a float network every quantized layer is off, from the first one on. So each is run alone on
the float network's values, rounded to its inputs' types: what it loses then is its own doing.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np

from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.events import code_command
from nmpsim.debugger.instructions import Done
from nmpsim.debugger.pattern import FEWEST, Nature, Pattern, patterns
from nmpsim.debugger.reference import LayerComparison, Reference, isolate
from nmpsim.debugger.regions import Mask
from nmpsim.debugger.stores import Writers, misplaced, overwritten, writers
from nmpsim.debugger.tracing import trace_of
from nmpsim.isa.shared_words import PADS
from nmpsim.lir.nodes import ELEM_DTYPES

JUMP_DB = 6.0
"""So far below what layers mostly have is a jump: twice the error."""
COARSE = 8
"""A range so many times as wide as what it holds wastes three bits."""


@attrs.frozen
class Alone:
    """What layers lose by themselves."""

    layers: tuple[LayerComparison, ...]
    """Quantized layers with a float reference, in the order in which they run."""

    @property
    def worst(self) -> LayerComparison:
        """The layer with the least SQNR alone."""
        return min(self.layers, key=sqnr_alone)

    @property
    def median_db(self) -> float:
        """Of all layers' SQNR alone."""
        return statistics.median(map(sqnr_alone, self.layers))

    @property
    def jumps(self) -> bool:
        """Return whether the SQNR of the worst layer is JUMP_DB or more below the median."""
        return sqnr_alone(self.worst) <= self.median_db - JUMP_DB


def sqnr_alone(one: LayerComparison) -> float:
    """In dB; what is no number is worse than any."""
    sqnr = math.inf if one.isolated is None else one.isolated.sqnr_db
    return -math.inf if math.isnan(sqnr) else sqnr


def layers_alone(debugger: Debugger, reference: Reference) -> Alone | None:
    """Every quantized layer that the reference knows; None if there is none.

    The program has to have run to its end.
    """
    found = []
    for index in debugger.layer_order():
        if index not in reference.layers or debugger.layers[index].output.scale is None:
            continue
        one = isolate(debugger, reference, index)
        if one.isolated is not None:
            found.append(one)
    return Alone(tuple(found)) if found else None


def range_faults(debugger: Debugger, reference: Reference, index: int) -> Iterator[str]:
    """What is wrong with the range of a layer's type, given what it should hold."""
    layer = debugger.layers[index]
    expected, output = reference.output(layer), layer.output
    if expected is None or output.scale is None or not expected.size:
        return
    limits = np.iinfo(ELEM_DTYPES[output.elem])
    ends = [output.scale * (limit - (output.offset or 0)) for limit in (limits.min, limits.max)]
    beyond = np.count_nonzero((expected < ends[0]) | (expected > ends[1]))
    held = f"{float(expected.min()):.4g} to {float(expected.max()):.4g}"
    type_holds = f"its type holds {ends[0]:.4g} to {ends[1]:.4g}"
    if beyond:
        yield f"{beyond} of {expected.size} values lie beyond its range: {held}, {type_holds}"
    elif COARSE * float(np.ptp(expected)) < ends[1] - ends[0]:
        yield f"its range is too wide: values are {held}, {type_holds}"


MAX_OUTLIERS = 3
_WEIGHTED = ("convolution", "fullyconnected")
_WINDOWED = ("convolution", "pool")


def causes(
    debugger: Debugger, reference: Reference, one: LayerComparison, limit: int
) -> tuple[Pattern, ...]:
    """What speaks for a cause; nothing where the wrong elements may have come about anyhow.

    Elements that are off by at most ``limit`` count as right.
    """
    spoiled = tuple(overwritten(debugger, one.index))
    if not one.breaks:
        return spoiled
    layer = debugger.layers[one.index]
    expected = reference.output(layer)
    if one.alone is None or expected is None or expected.dtype != one.alone.dtype:
        return spoiled
    near = np.abs(one.alone.astype(np.float64) - expected) <= limit
    alone = np.where(near, expected, one.alone)
    nature = Nature(
        any(word in layer.op for word in _WEIGHTED), any(word in layer.op for word in _WINDOWED)
    )
    offset = layer.output.offset or 0
    if layer.placement == "host":
        return spoiled or patterns(alone, expected, offset, nature=nature)
    trace = trace_of(debugger, one.index)
    known = writers(layer, trace)
    wrong = alone != expected
    found = tuple(misplaced(layer, trace, known, wrong))
    odd = _outliers(trace, known, wrong, debugger.bundle.rw_base)
    if spoiled:
        return (*spoiled, *found)
    if found:  # channels and borders are wrong for that, and for no fault of their own
        nature = Nature(False, False)
    common = patterns(alone, expected, offset, known.owners(), nature, known.is_misplaced)
    return (*found, *odd, *common)


def _outliers(
    trace: Sequence[Done], known: Writers, wrong: Mask, writable: int
) -> tuple[Pattern, ...]:
    """Words that only those cores have otherwise that made the wrong elements."""
    cores = {known.stores[number].core for number in np.unique(known.last[wrong]) if number >= 0}
    if np.count_nonzero(wrong) < FEWEST:
        return ()
    return tuple(
        Pattern(one.text, (code_command(one.done.core, one.done.pc),))
        for one in outliers(trace, cores, writable)[:MAX_OUTLIERS]
    )


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
    """Return descriptor words whose value on ``cores`` differs from the one value on all others.

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
