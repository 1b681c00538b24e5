"""The context of kernels: a scratchpad, DRAM, counters and the words of a descriptor.

A compiled kernel gets its context as a record of addresses and sizes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from nmpsim.core.compiled.custom_profiles import get_profile_words
from nmpsim.core.compiled.expressions import define_function
from nmpsim.core.compiled.kernel_arguments import CONTEXT, DISCARDED_COUNTERS, make_workspace
from nmpsim.core.state import LAYER, STAGES, Int64s, Machine
from nmpsim.isa.profiles import PROFILES
from nmpsim.isa.table import DESCRIPTORS, SCRATCHPAD_BASE
from nmpsim.isa.words import MAX_WORDS
from nmpsim.kernels.array_types import Bytes, Int
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import ScratchpadViews
from nmpsim.kernels.operands import Clip, IntegerScaleRecord
from nmpsim.kernels.pointers import pointer
from nmpsim.kernels.saturate import SaturationCounters
from nmpsim.memory.owned_results import NOT_OWNED


@jit
def compute_scratchpad_offset(address: Int) -> Any:
    """Compute the scratchpad offset of an address."""
    return address - SCRATCHPAD_BASE


carray = numba.carray
NONE = "np.int64(-1)"
"""Expression of the offset of an operand that does not exist."""
ZERO = "np.int64(0)"


class KernelContext(NamedTuple):
    """Context of kernels: the memory and the counters of one core."""

    scratchpad: Bytes
    spm: ScratchpadViews
    counters: SaturationCounters
    discarded: SaturationCounters
    """Counters of results that an instruction does not own."""
    image: Bytes
    image_base: Int
    ram: Bytes
    ram_base: Int
    workspace: Int64s
    """int64 working memory for convolutions, one for each thread."""
    profiles: Int64s
    """[profiles] word that stands for each profile in kernels (see ``kernels/profiles.py``)."""


@jit_allocating
def get_kernel_context(context: Int, core: Int) -> Any:
    """Return the kernel context of a core, built from the context record at address ``context``."""
    p = carray(pointer(context), 1, CONTEXT)[0]
    size = p.scratchpad_bytes
    start = p.scratchpad + core * p.scratchpad_step
    return KernelContext(
        carray(pointer(start), size, np.uint8),
        ScratchpadViews(
            carray(pointer(start), size, np.int8),
            carray(pointer(start), size // 2, np.int16),
            carray(pointer(start), size // 4, np.int32),
            carray(pointer(start), size // 8, np.int64),
        ),
        SaturationCounters(
            carray(pointer(p.layers), p.layer_count, LAYER),
            carray(pointer(p.channel_saturated), (STAGES, 2, p.channels), np.int64),
            np.int64(0),
        ),
        SaturationCounters(
            carray(pointer(p.discarded_layers), 1, LAYER),
            carray(pointer(p.discarded_channels), (STAGES, 2, 1), np.int64),
            np.int64(0),
        ),
        carray(pointer(p.image), p.image_bytes, np.uint8),
        p.image_base,
        carray(pointer(p.ram), p.ram_bytes, np.uint8),
        p.ram_base,
        carray(pointer(p.workspace), p.workspace_words, np.int64),
        carray(pointer(p.profiles), len(PROFILES), np.int64),
    )


def _list_terms(descriptor: str) -> dict[str, str]:
    """Return the expressions of a descriptor's words, scales, clip and position, by name."""
    terms = {"stride_y": ZERO, "stride_x": ZERO}
    for i, word in enumerate(DESCRIPTORS[descriptor]):
        term = f"(d[{i}] - {SCRATCHPAD_BASE})" if word.address else f"d[{i}]"
        terms[word.name.removeprefix("event_")] = (
            f"({term} if d[{i}] else {NONE})" if word.is_optional else term
        )
        if word.name == "clip_low":
            terms["clip"] = f"Clip(d[{i}], d[{i + 1}], d[{i + 2}])"
        if word.name.endswith("_pre"):
            scale = f"IntegerScaleRecord(d[{i}], d[{i + 1}], d[{i + 2}])"
            terms[word.name.replace("_pre", "_scale")] = scale
    if "profile" in terms:
        terms["profile"] = f"w.profiles[{terms['profile']}]"
    return terms


def make_descriptor_reader(record: Any, descriptor: str, **fields: str) -> Any:
    """Return a compiled function that reads a named tuple's fields from descriptor words.

    Parameters
    ----------
    record
        Named tuple. A field is the word with its name; of an address the scratchpad offset, of an
        optional one NONE if it is 0. ``clip`` and names such as ``out_scale`` stand for three
        words; ``origin``, ``stride_y`` and ``stride_x`` are the tile's position in the output.
    descriptor
        Name of the descriptor.
    fields
        Expressions of other fields, with names of words in braces.

    Returns
    -------
    function
        Function of a kernel context and a descriptor, int64 [words].
    """
    terms = _list_terms(descriptor)
    values = [fields.get(name, f"{{{name}}}").format_map(terms) for name in record._fields]
    names = {"record": record, "Clip": Clip, "IntegerScaleRecord": IntegerScaleRecord, "np": np}
    return jit(define_function("read(w, d)", f"return record({', '.join(values)})", **names))


@jit
def get_layer_counters(w: KernelContext, layer: Int) -> Any:
    """Return the counters of saturated values for a layer, or for NOT_OWNED."""
    if layer == NOT_OWNED:
        return w.discarded
    return SaturationCounters(w.counters.layers, w.counters.channel_saturated, layer)


@jit_allocating
def get_descriptor_words(words: Int) -> Any:
    """Return the words of the descriptor at address ``words`` as an int64 array."""
    return carray(pointer(words), MAX_WORDS, np.int64)


def make_python_context(m: Machine, core: Int) -> KernelContext:
    """Return the kernel context of a core for calls from Python, without compiled code."""
    shared, scratchpad = m.shared[0], m.scratchpad[core]
    return KernelContext(
        scratchpad,
        ScratchpadViews(
            *(scratchpad.view(dtype) for dtype in (np.int8, np.int16, np.int32, np.int64))
        ),
        SaturationCounters(m.layers, m.channel_saturated, np.int64(0)),
        SaturationCounters(*DISCARDED_COUNTERS, np.int64(0)),
        m.image,
        shared.image_base,
        m.ram,
        shared.ram_base,
        make_workspace(m),
        get_profile_words(m.formulas),
    )
