"""The vector unit: pools, pairs, rescalings, look-ups, fills, copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from nmpsim.core.reference.elementwise import pair
from nmpsim.core.reference.operands import Scratchpad, Words, element_of
from nmpsim.core.reference.pool import average, total
from nmpsim.core.reference.unary import rescaled
from nmpsim.debugger.arithmetic.formulas import why_steps
from nmpsim.debugger.arithmetic.records import Element, Made, Term, WhyStep, nowhere
from nmpsim.isa.words import DIVIDE_BY_VALID_TAPS, RHS_INT32


def _value(spm: Scratchpad, nbytes: int, address: int) -> int:
    return int(spm.read(nbytes, np.array([address]))[0])


def _made(terms: tuple[Term, ...], *steps: WhyStep) -> Made:
    return Made(terms, steps, int(steps[-1].value))


# --- windows --------------------------------------------------------------------------------


def _taps(spm: Scratchpad, d: Words, at: Element) -> tuple[Term, ...]:
    """The values of the window that exist."""
    nbytes, terms = element_of(d).nbytes, []
    for ky in range(d["kernel_h"]):
        for kx in range(d["kernel_w"]):
            y = at.y * d["stride_h"] + ky - d["pad_top"]
            x = at.x * d["stride_w"] + kx - d["pad_left"]
            if 0 <= y < d["in_h"] and 0 <= x < d["in_w"]:
                address = d["input"] + y * d["in_row_stride"] + x * d["in_pixel_stride"]
                address += at.channel * nbytes
                terms.append(Term((ky, kx, at.channel), address, _value(spm, nbytes, address)))
    return tuple(terms)


def _maxpool(spm: Scratchpad, d: Words, at: Element) -> Made:
    terms = _taps(spm, d, at)
    result = max((term.input for term in terms), default=d["empty_value"])
    formula = f"of {len(terms)} taps" if terms else "nothing but padding: the descriptor's value"
    return _made(terms, WhyStep("maximum", formula, result))


def _avgpool(spm: Scratchpad, d: Words, at: Element) -> Made:
    terms = _taps(spm, d, at)
    taps = np.array([[term.input - d["in_offset"]] for term in terms], np.int64).reshape(-1, 1)
    (added,) = total(taps, d)
    divisor = max(len(terms), 1) if d["divide"] == DIVIDE_BY_VALID_TAPS else 1
    return _made(
        terms,
        WhyStep("sum", f"of {len(terms)} taps less {d['in_offset']}", added.item()),
        *why_steps(average(np.array([added]), divisor, d, nowhere())),
    )


# --- pairs ----------------------------------------------------------------------------------


def _eltwise(spm: Scratchpad, d: Words, at: Element) -> Made:
    nbytes = element_of(d).nbytes
    wide = 4 if d["rhs_kind"] == RHS_INT32 else nbytes
    addresses = {
        "lhs": d["lhs"] + at.y * d["lhs_stride"] + at.channel * nbytes,
        "rhs": d["rhs"] + at.y * d["rhs_stride"] + at.channel * wide,
    }
    stored = {"lhs": _value(spm, nbytes, addresses["lhs"])}
    stored["rhs"] = _value(spm, wide, addresses["rhs"])
    own = {"lhs": stored["lhs"] - d["lhs_offset"]}
    limit = 1 << 31
    own["rhs"] = max(min(stored["rhs"] - d["rhs_offset"], limit - 1), -limit)
    sides = (WhyStep(s, f"{stored[s]} - {d[f'{s}_offset']}", own[s]) for s in addresses)
    terms = tuple(Term((n,), addresses[s], stored[s]) for n, s in enumerate(addresses))
    left, right = np.array([own["lhs"]]), np.array([own["rhs"]])
    return _made(terms, *sides, *why_steps(pair(left, right, d, nowhere())))


# --- one tensor -----------------------------------------------------------------------------


def _rescale(spm: Scratchpad, d: Words, at: Element) -> Made:
    nbytes = element_of(d).nbytes
    address = d["input"] + at.channel * nbytes
    stored = _value(spm, nbytes, address)
    held = min(max(stored, d["in_low"]), d["in_high"])
    x = held - d["in_offset"]
    return _made(
        (Term((at.channel,), address, stored),),
        WhyStep("clamped", f"to {d['in_low']} ... {d['in_high']}, an activation", held),
        WhyStep("x", f"less {d['in_offset']}", x),
        *why_steps(rescaled(np.array([x]), d, nowhere())),
    )


def _lut(spm: Scratchpad, d: Words, at: Element) -> Made:
    address = d["input"] + at.channel
    x = _value(spm, 1, address)
    entry = d["table"] + x + 128
    result = _value(spm, 1, entry)
    terms = (Term((at.channel,), address, x), Term((x + 128,), entry, result))
    return _made(terms, WhyStep("entry", f"table[{x} + 128]", result))


def _fill(spm: Scratchpad, d: Words, at: Element) -> Made:
    bits = 8 * element_of(d).nbytes
    held = (d["value"] + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    return _made((), WhyStep("value", "the descriptor's, everywhere", held))


def _transpose(spm: Scratchpad, d: Words, at: Element) -> Made:
    address = d["input"] + sum(p * d[f"in_stride_{n}"] for n, p in enumerate(at.at))
    value = int.from_bytes(bytes(spm.run(address, d["element_bytes"])), "little", signed=True)
    return _made((Term(at.at, address, value),), WhyStep("copied", "as it is", value))


Explain = Callable[[Scratchpad, Words, Element], Made]

EXPLAIN: Mapping[str, Explain] = {
    "maxpool": _maxpool,
    "avgpool": _avgpool,
    "eltwise": _eltwise,
    "rescale": _rescale,
    "lut": _lut,
    "fill": _fill,
    "transpose": _transpose,
}
"""Descriptor -> how a result came about."""
