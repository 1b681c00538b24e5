"""Sums of products: convolutions, depthwise convolutions, matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nmpsim.core.reference.mac import (
    PartialSums,
    accumulate,
    channel_tables,
    scale_tables,
    unpack_weights,
    windows,
)
from nmpsim.core.reference.operands import Scale, Scratchpad, Words, element_of, grid, scale_of
from nmpsim.core.reference.requantize import finish, requantizer_of, start
from nmpsim.debugger.arithmetic.formulas import why_steps
from nmpsim.debugger.arithmetic.records import Element, Made, Term, WhyStep, nowhere
from nmpsim.isa.words import PART_FIRST, PART_ONLY


def conv_terms(spm: Scratchpad, d: Words, at: Element) -> tuple[Term, ...]:
    """Window and weights of a convolution, in the order in which they are added."""
    group = at.channel // (d["out_channels"] // d["groups"])
    ins, nbytes = d["in_channels"], element_of(d).nbytes
    offsets, _, _ = scale_tables(spm, d, d["out_channels"])
    weights = unpack_weights(spm, d)[at.channel] - offsets[at.channel]
    inputs = windows(spm, d, d["groups"] * ins)[at.y, at.x]
    chosen = inputs[:, group * ins : (group + 1) * ins].reshape(-1)
    block = 4 // nbytes
    row_blocks = -(-d["kernel_w"] * ins // block)
    terms = []
    for index, (x, w) in enumerate(zip(chosen.tolist(), weights.tolist(), strict=True)):
        ky, rest = divmod(index, d["kernel_w"] * ins)
        kx, channel = divmod(rest, ins)
        address = _input_address(d, at, ky, kx) + (group * ins + channel) * nbytes
        place = ((at.channel // 16 * d["kernel_h"] + ky) * row_blocks + rest // block) * 64
        place += (at.channel % 16 * block + rest % block) * nbytes
        terms.append(Term((ky, kx, group * ins + channel), address, x, w, d["weights"] + place))
    return tuple(terms)


def _input_address(d: Words, at: Element, ky: int, kx: int) -> int:
    y = at.y * d["stride_h"] + ky * d["dilation_h"]
    x = at.x * d["stride_w"] + kx * d["dilation_w"]
    return d["input"] + y * d["in_row_stride"] + x * d["in_pixel_stride"]


def dwconv_terms(spm: Scratchpad, d: Words, at: Element) -> tuple[Term, ...]:
    """Window and weights of one channel."""
    channels, nbytes, c = d["channels_count"], element_of(d).nbytes, at.channel
    taps = d["kernel_h"] * d["kernel_w"]
    offsets, _, _ = scale_tables(spm, d, channels)
    table = grid(d["weights"], (taps, channels * nbytes), (channels, nbytes))
    weights = (spm.read(nbytes, table) - offsets)[:, c].tolist()
    inputs = windows(spm, d, channels)[at.y, at.x, :, c].tolist()
    terms = []
    for tap, (x, w) in enumerate(zip(inputs, weights, strict=True)):
        ky, kx = divmod(tap, d["kernel_w"])
        address = _input_address(d, at, ky, kx) + c * nbytes
        terms.append(Term((ky, kx, c), address, x, w, int(table[tap, c])))
    return tuple(terms)


def weighted(
    spm: Scratchpad, d: Words, at: Element, own: Sequence[Term], earlier: Sequence[Term]
) -> Made:
    """From products to a result, with the numbers that the profile takes for its channel.

    ``own`` are the instruction's products, ``earlier`` those of the parts of the sum before it.
    """
    c, channels = at.channel, d["out_channels"] if "out_channels" in d else d["channels_count"]
    bias, zero = channel_tables(spm, d, channels)
    _, bias_scale, out_scale = scale_tables(spm, d, channels)
    one = slice(c, c + 1)
    q = requantizer_of(d, bias[one], _of_channel(bias_scale, c), _of_channel(out_scale, c))
    begin = why_steps(start(d, zero[one], q, nowhere()))
    cell = (at.y * d["out_w"] + at.x, c, channels)
    total, products = _sum_steps(spm, d, int(begin[-1].value), cell, own)
    steps = (*begin, *products, *why_steps(finish(np.array([total]), d, q, nowhere())))
    return Made((*earlier, *own), steps, int(steps[-1].value))


def _sum_steps(
    spm: Scratchpad, d: Words, begin: int, cell: tuple[int, int, int], own: Sequence[Term]
) -> tuple[int, list[WhyStep]]:
    """The accumulator, which saturates at every step, and how it came about.

    ``cell`` is where its running sum lies in memory, if it is one of several parts: row, column and
    columns of a row.
    """
    steps = []
    if d.get("part", PART_ONLY) not in (PART_ONLY, PART_FIRST):
        row, column, columns = cell
        begin = int(PartialSums(spm, d, columns).read(row)[column])
        steps.append(WhyStep("sum before", "what the parts before left in memory", begin))
    products = np.array([[term.product for term in own]], np.int64)
    total = int(accumulate(np.array([begin]), products, element_of(d), nowhere())[0])
    factors = "(l - O_l) * (r - O_r)" if "rhs_offset" in d else "x * (w - O_w)"
    steps += [
        WhyStep("products", f"sum of {len(own)} products {factors}", int(products.sum())),
        WhyStep("accumulator", f"of {element_of(d).accumulator_bits} bits, saturating", total),
    ]
    return total, steps


def _of_channel(scale: Scale, channel: int) -> Scale:
    """One channel's scale, if they are many."""

    def one(value: Any) -> Any:
        return value if np.ndim(value) == 0 else np.asarray(value)[channel : channel + 1]

    return Scale(one(scale.pre), one(scale.mul), one(scale.post))


def gemm_terms(spm: Scratchpad, d: Words, at: Element) -> tuple[Term, ...]:
    """A row of the left side and a column of the right one."""
    nbytes = element_of(d).nbytes
    lhs = grid(d["lhs"] + at.y * d["lhs_stride"], (d["inner"], nbytes))
    rhs = grid(d["rhs"] + at.channel * nbytes, (d["inner"], d["rhs_stride"]))
    left = (spm.read(nbytes, lhs) - d["lhs_offset"]).tolist()
    right = (spm.read(nbytes, rhs) - d["rhs_offset"]).tolist()
    return tuple(Term((k,), int(lhs[k]), left[k], right[k], int(rhs[k])) for k in range(d["inner"]))


def product(
    spm: Scratchpad, d: Words, at: Element, own: Sequence[Term], earlier: Sequence[Term]
) -> Made:
    """From products to a result of a matrix product; as ``weighted``."""
    out = scale_of(d, "out")
    q = requantizer_of(d, np.zeros(1, np.int64), out, out)
    total, products = _sum_steps(spm, d, 0, (at.y, at.channel, d["columns"]), own)
    steps = (*products, *why_steps(finish(np.array([total]), d, q, nowhere())))
    return Made((*earlier, *own), steps, int(steps[-1].value))
