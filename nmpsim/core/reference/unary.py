"""What the vector unit does with one tensor: rescale, look-up, fill, transpose.

Each instruction: operands, effect.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from nmpsim.core.reference.events import LayerCounters, ResultPositions, clamp
from nmpsim.core.reference.operands import Scale, Words, element_of, float_of_bits, scale_of
from nmpsim.core.reference.rounding import quietly, real, round_even
from nmpsim.core.reference.scales import clip, fixed_point, integer_scale
from nmpsim.core.reference.scratchpad import Scratchpad, grid
from nmpsim.core.reference.step import Step
from nmpsim.core.state import Int64s
from nmpsim.isa.profiles import FLOAT, GLOW_FLOAT, GLOW_INT, NMP, Q31, check_profiles
from nmpsim.isa.words import ACTIVATION_LEAKY
from nmpsim.kernels.saturation_stages import ACTIVATION


def scale_by_sign(below: Any, d: Words) -> Scale:
    """The scale of each element: the leaky one ``below`` the zero point."""
    leaky, out = scale_of(d, "leaky"), scale_of(d, "out")
    return Scale(
        pre=np.where(below, leaky.pre, out.pre),
        mul=np.where(below, leaky.mul, out.mul),
        post=np.where(below, leaky.post, out.post),
    )


def glow_int(x: Int64s, below: Any, d: Words, place: ResultPositions) -> Int64s:
    """Glow's libjit: ``((x >> pre) * mul + half) >> post``, plus the zero point."""
    return integer_scale(x, scale_by_sign(below, d), element_of(d), place) + d["out_offset"]


@quietly
def glow_float(x: Int64s, below: Any, d: Words, place: ResultPositions) -> Int64s:
    """Glow's Interpreter dequantizes and quantizes: ``rne(m * f32(x) / S + f32(Oy))``."""
    values = scale_by_sign(below, d).factor * real(x)
    return round_even(values / float_of_bits(d["result_scale"]) + np.float32(d["out_offset"]))


def q31(x: Int64s, below: Any, d: Words, place: ResultPositions) -> Int64s:
    """TFLite's fixed point, plus the zero point."""
    return fixed_point(x, scale_by_sign(below, d), place) + d["out_offset"]


@quietly
def float_late(x: Int64s, below: Any, d: Words, place: ResultPositions) -> Int64s:
    """PyTorch: ``rne(t * r) + Oy`` of ``t = m * f32(x)``, times the leaky factor where ``below``.

    r is ``result_scale``.
    """
    values = scale_of(d, "out").factor * real(x)
    values = np.where(below, values * scale_of(d, "leaky").factor, values)
    return round_even(values * float_of_bits(d["result_scale"])) + d["out_offset"]


RESCALES: dict[int, Callable[[Int64s, Any, Words, ResultPositions], Int64s]] = {
    GLOW_INT: glow_int,
    NMP: glow_int,
    GLOW_FLOAT: glow_float,
    Q31: q31,
    FLOAT: float_late,
}
"""Profile -> a value on another scale."""
check_profiles(f"{__name__}.RESCALES", RESCALES, "rescale")


def rescale(s: Step, d: Words, account: LayerCounters) -> None:
    """``nmp.rescale``: clamp (an activation), change scale, clip."""
    spm, count, element = Scratchpad(s.core), d["count"], element_of(d)
    nbytes = element.nbytes
    place = ResultPositions(account, grid(d["event_origin"], (count, 1)))
    x = spm.read(nbytes, grid(d["input"], (count, nbytes)))
    x = clamp(x, d["in_low"], d["in_high"], (ACTIVATION, ACTIVATION), place) - d["in_offset"]
    below = (x < 0) & (d["activation"] == ACTIVATION_LEAKY)
    values = RESCALES[d["profile"]](x, below, d, place)
    spm.write(nbytes, grid(d["output"], (count, nbytes)), clip(values, d, place))
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
