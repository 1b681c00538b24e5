"""How one result of a tensor instruction came about, from what lies in the scratchpad.

Everything is read back from the machine as it stood when the instruction was issued and worked out
with the reference engine's own functions, so it is what the device did, whoever made the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.elementwise import PAIRS
from nmpsim.core.reference.events import Account, Place
from nmpsim.core.reference.mac import (
    accumulate,
    channel_tables,
    scale_tables,
    sum_starts,
    unpack_weights,
    windows,
)
from nmpsim.core.reference.operands import Scale, Words, element_of, scale_of
from nmpsim.core.reference.pool import AVERAGES
from nmpsim.core.reference.profiles import BIASES, RESULTS, finish, requantizer_of
from nmpsim.core.reference.scratchpad import Scratchpad, grid
from nmpsim.core.state import Machine
from nmpsim.isa.descriptors import PROFILES
from nmpsim.isa.words import GLOW_INT, NMP, Q31


class _NoAccount(Account):
    """Nothing is counted: this is only a look."""

    def __init__(self) -> None:
        pass

    def cut(self, *_: Any) -> None:
        """Forget it."""


@attrs.frozen
class Term:
    """One product of a sum, or one value of a window."""

    at: tuple[int, ...]
    """Row, column and channel of the window; of a matrix product the inner index."""
    address: int
    """Of the input, in the scratchpad."""
    input: int
    weight: int | None = None
    """Less its zero point; None where there are no weights."""
    weight_address: int | None = None

    @property
    def product(self) -> int:
        """What it adds."""
        return self.input if self.weight is None else self.input * self.weight


@attrs.frozen
class Step:
    """One step from terms to result."""

    name: str
    formula: str
    value: float


@attrs.frozen
class Made:
    """All that made a result."""

    terms: tuple[Term, ...]
    steps: tuple[Step, ...]
    result: int
    """What the arithmetic gives; the device wrote the same, or something is wrong with it."""


@attrs.frozen
class Element:
    """A result of an instruction: which of its channels at which pixel."""

    y: int
    x: int
    channel: int


def made_by(
    machine: Machine, core: int, name: str, words: Words, at: Element, earlier: Sequence[Term] = ()
) -> Made | None:
    """How an instruction makes one of its results; None for those that only move values.

    ``earlier`` are the terms of the parts of the sum before it.
    """
    spm = Scratchpad(Core(machine, core))
    if name in ("conv", "dwconv"):
        terms = _conv_terms(spm, words, at) if name == "conv" else _dwconv_terms(spm, words, at)
        return _weighted(spm, words, at.channel, (*earlier, *terms))
    if name == "gemm":
        return _product(words, (*earlier, *_gemm_terms(spm, words, at)))
    explain = _EXPLAIN.get(name)
    return None if explain is None else explain(spm, words, at)


def terms_of_part(
    machine: Machine, core: int, name: str, words: Words, at: Element
) -> tuple[Term, ...]:
    """What one part of a sum adds."""
    spm = Scratchpad(Core(machine, core))
    return _conv_terms(spm, words, at) if name == "conv" else _gemm_terms(spm, words, at)


def _conv_terms(spm: Scratchpad, d: Words, at: Element) -> tuple[Term, ...]:
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


def _dwconv_terms(spm: Scratchpad, d: Words, at: Element) -> tuple[Term, ...]:
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


def _weighted(spm: Scratchpad, d: Words, c: int, terms: Sequence[Term]) -> Made:
    """From products to the result, with the numbers that the profile takes for this channel."""
    channels = d["out_channels"] if "out_channels" in d else d["channels_count"]
    bias, zero = channel_tables(spm, d, channels)
    _, bias_scale, out_scale = scale_tables(spm, d, channels)
    own = slice(c, c + 1)
    q = requantizer_of(d, bias[own], _of_channel(bias_scale, c), _of_channel(out_scale, c))
    place = Place(_NoAccount(), np.zeros(1, np.int64))
    begin = int(sum_starts(d, zero[own], q, place)[0])
    own_bias = int(BIASES[d["profile"]](q, place)[0])
    total = _total(begin, terms, d, place)
    steps = [
        Step("bias", "as it lies in memory, less its zero point", int(bias[c])),
        Step("bias in the sum", _scaled("bias", q.bias_scale, d), own_bias),
        Step("zero term", "taps * O_w * O_x - O_x * sum(w), by the compiler", int(zero[c])),
        Step("products", f"sum of {len(terms)} products x * (w - O_w)", total - begin),
        Step("accumulator", "bias + zero term + products", total),
    ]  # fmt: skip
    sums = np.array([total])
    rescaled = int(RESULTS[d["profile"]](sums, q, place)[0])
    steps.append(
        Step("rescale", f"{_scaled('accumulator', q.out, d)} + {d['out_offset']}", rescaled)
    )
    result = int(finish(sums, d, q, place)[0])
    steps.append(_clip_step(d, result))
    return Made(tuple(terms), tuple(steps), result)


def _total(begin: int, terms: Sequence[Term], d: Words, place: Place) -> int:
    """The accumulator, which saturates at every step."""
    products = np.array([[term.product for term in terms]], np.int64)
    return int(accumulate(np.array([begin]), products, element_of(d), place)[0])


def _of_channel(scale: Scale, channel: int) -> Scale:
    """One channel's scale, if they are many."""

    def one(value: Any) -> Any:
        return value if np.ndim(value) == 0 else np.asarray(value)[channel : channel + 1]

    return Scale(one(scale.pre), one(scale.mul), one(scale.post))


def _number(value: Any) -> int:
    return int(np.asarray(value).reshape(-1)[0])


def _scaled(what: str, scale: Scale, d: Words) -> str:
    """The formula with its integers."""
    pre, mul, post = _number(scale.pre), _number(scale.mul), _number(scale.post)
    profile = d["profile"]
    if profile in (GLOW_INT, NMP):
        return f"(({what} >> {pre}) * {mul} + {(1 << post) >> 1}) >> {post}"
    if profile == Q31:
        return f"{what} << {pre} times {mul} / 2^31 >> {post}, rounded"
    factor = float(np.asarray(scale.factor).reshape(-1)[0])
    return f"{what} * {factor:.9g} as {PROFILES[profile]} rounds"


def _clip_step(d: Words, result: int) -> Step:
    wanted = d["clip_wanted"]
    sides = [name for bit, name in ((1, "lower"), (2, "upper")) if wanted & bit]
    note = f" ({' and '.join(sides)} clip is an activation)" if sides else ""
    return Step("clip", f"to {d['clip_low']} ... {d['clip_high']}{note}", result)


def _gemm_terms(spm: Scratchpad, d: Words, at: Element) -> tuple[Term, ...]:
    nbytes = element_of(d).nbytes
    lhs = grid(d["lhs"] + at.y * d["lhs_stride"], (d["inner"], nbytes))
    rhs = grid(d["rhs"] + at.channel * nbytes, (d["inner"], d["rhs_stride"]))
    left = (spm.read(nbytes, lhs) - d["lhs_offset"]).tolist()
    right = (spm.read(nbytes, rhs) - d["rhs_offset"]).tolist()
    return tuple(Term((k,), int(lhs[k]), left[k], right[k], int(rhs[k])) for k in range(d["inner"]))


def _product(d: Words, terms: Sequence[Term]) -> Made:
    out = scale_of(d, "out")
    q = requantizer_of(d, np.zeros(1, np.int64), out, out)
    place = Place(_NoAccount(), np.zeros(1, np.int64))
    total = _total(0, terms, d, place)
    result = int(finish(np.array([total]), d, q, place)[0])
    rescaled = int(RESULTS[d["profile"]](np.array([total]), q, place)[0])
    steps = (
        Step("accumulator", f"sum of {len(terms)} products (l - O_l) * (r - O_r)", total),
        Step("rescale", f"{_scaled('accumulator', out, d)} + {d['out_offset']}", rescaled),
        _clip_step(d, result),
    )
    return Made(tuple(terms), steps, result)


def _pool_terms(spm: Scratchpad, d: Words, at: Element) -> tuple[Term, ...]:
    """The taps that exist."""
    nbytes, terms = element_of(d).nbytes, []
    for ky in range(d["kernel_h"]):
        for kx in range(d["kernel_w"]):
            y = at.y * d["stride_h"] + ky - d["pad_top"]
            x = at.x * d["stride_w"] + kx - d["pad_left"]
            if 0 <= y < d["in_h"] and 0 <= x < d["in_w"]:
                address = d["input"] + y * d["in_row_stride"] + x * d["in_pixel_stride"]
                address += at.channel * nbytes
                value = int(spm.read(nbytes, np.array([address]))[0])
                terms.append(Term((ky, kx, at.channel), address, value))
    return tuple(terms)


def _maxpool(spm: Scratchpad, d: Words, at: Element) -> Made:
    terms = _pool_terms(spm, d, at)
    result = max((term.input for term in terms), default=d["empty_value"])
    return Made(terms, (Step("maximum", f"of {len(terms)} taps", result),), result)


def _avgpool(spm: Scratchpad, d: Words, at: Element) -> Made:
    terms = _pool_terms(spm, d, at)
    total = sum(term.input - d["in_offset"] for term in terms)
    divisor = max(len(terms), 1) if d["divide"] else 1
    place = Place(_NoAccount(), np.zeros(1, np.int64))
    average = int(AVERAGES[d["profile"]](np.array([total]), divisor, d, place)[0])
    result = int(np.clip(average, d["clip_low"], d["clip_high"]))
    steps = (
        Step("sum", f"of {len(terms)} taps less {d['in_offset']}", total),
        Step("average", f"{_scaled('sum', scale_of(d, 'out'), d)}, divided by {divisor},"
             f" + {d['out_offset']}", average),
        _clip_step(d, result),
    )  # fmt: skip
    return Made(terms, steps, result)


def _eltwise(spm: Scratchpad, d: Words, at: Element) -> Made:
    nbytes = element_of(d).nbytes
    wide = 4 if d["rhs_kind"] else nbytes
    lhs = d["lhs"] + at.y * d["lhs_stride"] + at.channel * nbytes
    rhs = d["rhs"] + at.y * d["rhs_stride"] + at.channel * wide
    left, right = spm.read(nbytes, np.array([lhs])), spm.read(wide, np.array([rhs]))
    place = Place(_NoAccount(), np.zeros(1, np.int64))
    left_own, right_own = left - d["lhs_offset"], right - d["rhs_offset"]
    value = int(PAIRS[d["profile"]](left_own, right_own, d, place)[0])
    result = int(np.clip(value, d["clip_low"], d["clip_high"]))
    names = ("add", "sub", "max", "min", "mul")
    steps = (
        Step("lhs", f"{int(left[0])} - {d['lhs_offset']}, then "
             + _scaled("lhs", scale_of(d, "lhs"), d), int(left_own[0])),
        Step("rhs", f"{int(right[0])} - {d['rhs_offset']}, then "
             + _scaled("rhs", scale_of(d, "rhs"), d), int(right_own[0])),
        Step(names[d["operation"]], f"of both, rescaled, + {d['out_offset']}", value),
        _clip_step(d, result),
    )  # fmt: skip
    terms = (Term((0,), lhs, int(left[0])), Term((1,), rhs, int(right[0])))
    return Made(terms, steps, result)


_EXPLAIN: Mapping[str, Any] = {
    "maxpool": _maxpool,
    "avgpool": _avgpool,
    "eltwise": _eltwise,
}
"""Descriptor -> how a result came about, for those without sums of products."""
