"""What the vector unit does with one tensor: rescale, look-up, fill, transpose.

Each instruction: operands, effect.
"""

from __future__ import annotations

import itertools

import numpy as np

from nmpsim.core.reference.arithmetic import Steps, clip, result_of, step
from nmpsim.core.reference.events import LayerCounters, ResultPositions, clamp
from nmpsim.core.reference.operands import Scratchpad, Words, element_of, grid
from nmpsim.core.reference.profiles import RESCALES
from nmpsim.core.reference.step import Step
from nmpsim.core.state import Int64s
from nmpsim.isa.words import ACTIVATION_LEAKY
from nmpsim.kernels.saturation_stages import ACTIVATION


def rescaled(x: Int64s, d: Words, place: ResultPositions) -> Steps:
    """Values less their zero point on another scale: profile, clip."""
    is_leaky = d["activation"] == ACTIVATION_LEAKY
    below = (x < 0) & is_leaky
    if is_leaky:
        yield step("below", below.astype(np.int64), "1 where x is below 0: the leaky scale holds")
    values = yield from RESCALES[d["profile"]](x, below, d, place)
    yield clip(values, d, place)


def rescale(s: Step, d: Words, account: LayerCounters) -> None:
    """``nmp.rescale``: clamp (an activation), change scale, clip."""
    spm, count, element = Scratchpad(s.core), d["count"], element_of(d)
    nbytes = element.nbytes
    place = ResultPositions(account, grid(d["event_origin"], (count, 1)))
    x = spm.read(nbytes, grid(d["input"], (count, nbytes)))
    x = clamp(x, d["in_low"], d["in_high"], (ACTIVATION, ACTIVATION), place) - d["in_offset"]
    spm.write(nbytes, grid(d["output"], (count, nbytes)), result_of(rescaled(x, d, place)))
    account.add_elements(count)


def lut(s: Step, d: Words, _: LayerCounters) -> None:
    """``nmp.lut``: each byte through a table."""
    spm, count = Scratchpad(s.core), d["count"]
    table = spm.read(1, grid(d["table"], (256, 1)))
    x = spm.read(1, grid(d["input"], (count, 1)))
    spm.write(1, grid(d["output"], (count, 1)), table[x + 128])


def fill(s: Step, d: Words, _: LayerCounters) -> None:
    """``nmp.fill``: one value everywhere."""
    spm, count, element = Scratchpad(s.core), d["count"], element_of(d)
    addresses = grid(d["output"], (count, element.nbytes))
    spm.write(element.nbytes, addresses, np.full(count, d["value"], np.int64))


def transpose(s: Step, d: Words, _: LayerCounters) -> None:
    """``nmp.transpose``: strided copy; where results lie on one another the last stays."""
    spm, size = Scratchpad(s.core), d["element_bytes"]
    sizes = [d[f"size_{n}"] for n in range(4)]
    for place in itertools.product(*map(range, sizes)):
        source = d["input"] + sum(p * d[f"in_stride_{n}"] for n, p in enumerate(place))
        target = d["output"] + sum(p * d[f"out_stride_{n}"] for n, p in enumerate(place))
        spm.run(target, size)[:] = spm.run(source, size)


INSTRUCTIONS = {
    "nmp.rescale": rescale,
    "nmp.lut": lut,
    "nmp.fill": fill,
    "nmp.transpose": transpose,
}
"""Mnemonic -> what it does."""
