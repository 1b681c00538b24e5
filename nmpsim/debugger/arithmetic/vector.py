"""The vector unit: pools, pairs, rescalings, look-ups, fills, copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from nmpsim.core.reference.elementwise import PAIRS, dequantized
from nmpsim.core.reference.operands import (
    INT8,
    Float32s,
    Scale,
    Words,
    element_of,
    float_of_bits,
    scale_of,
)
from nmpsim.core.reference.pool import AVERAGES
from nmpsim.core.reference.rounding import quietly, real, round_away
from nmpsim.core.reference.scratchpad import Scratchpad
from nmpsim.core.reference.unary import RESCALES, scale_by_sign
from nmpsim.core.state import Int64s
from nmpsim.debugger.arithmetic.formulas import (
    INTEGER_PROFILES,
    clip_step,
    factor_of,
    held_to_32_bits,
    scaled_steps,
)
from nmpsim.debugger.arithmetic.records import Element, Made, Term, WhyStep, nowhere
from nmpsim.isa.profiles import FBGEMM, FLOAT, GLOW_FLOAT, Q31, QNNPACK
from nmpsim.isa.table import DESCRIPTORS
from nmpsim.isa.words import (
    ACTIVATION_LEAKY,
    DIVIDE_BY_VALID_TAPS,
    OP_ADD,
    OP_MAX,
    OP_MIN,
    OP_MUL,
    OP_SUB,
    RHS_INT32,
)

OPERATIONS = next(w.choices for w in DESCRIPTORS["eltwise"] if w.name == "operation")


def _value(spm: Scratchpad, nbytes: int, address: int) -> int:
    return int(spm.read(nbytes, np.array([address]))[0])


def _made(terms: tuple[Term, ...], *steps: WhyStep) -> Made:
    return Made(terms, steps, int(steps[-1].value))


def _clipped(d: Words, value: int) -> WhyStep:
    return clip_step(d, int(np.clip(value, d["clip_low"], d["clip_high"])))


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
    total = int(sum(term.input - d["in_offset"] for term in terms))
    divisor = max(len(terms), 1) if d["divide"] == DIVIDE_BY_VALID_TAPS else 1
    out = scale_of(d, "out")
    average = int(AVERAGES[d["profile"]](np.array([total]), divisor, d, nowhere())[0])
    return _made(
        terms,
        WhyStep("sum", f"of {len(terms)} taps less {d['in_offset']}", total),
        *scaled_steps("sum", total, out, d),
        WhyStep("average", _average_formula(d, out, divisor), average),
        _clipped(d, average),
    )


def _average_formula(d: Words, out: Scale, divisor: int) -> str:
    offset, by = d["out_offset"], f" / {divisor}" if divisor != 1 else ""
    if d["profile"] == FLOAT:
        return f"rne(sum * ({factor_of(out):.9g}{by})) + {offset}"
    if d["profile"] in (GLOW_FLOAT, FBGEMM):
        rounding = "rha" if d["profile"] == GLOW_FLOAT else "rne"
        return f"{rounding}(sum * ({factor_of(out):.9g}{by}) + {offset})"
    return f"rescaled{by}, rounded, + {offset}" if by else f"rescaled + {offset}"


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
    own["rhs"] = held_to_32_bits(stored["rhs"] - d["rhs_offset"])
    left, right = np.array([own["lhs"]]), np.array([own["rhs"]])
    value = int(PAIRS[d["profile"]](left, right, d, nowhere())[0])
    terms = tuple(Term((n,), addresses[s], stored[s]) for n, s in enumerate(addresses))
    sides = [step for side in addresses for step in _side_steps(side, stored[side], own[side], d)]
    return _made(terms, *sides, *_pair_steps(own, d), _pair_result(d, value), _clipped(d, value))


def _side_steps(side: str, stored: int, own: int, d: Words) -> Iterator[WhyStep]:
    """A side, and what it is on the scale of the result."""
    yield WhyStep(side, f"{stored} - {d[f'{side}_offset']}", own)
    if d["operation"] == OP_MUL:
        return
    scale, x = scale_of(d, side), np.array([own])
    if d["profile"] == QNNPACK:
        yield WhyStep(f"{side} scaled", f"* {scale.mul}", own * scale.mul)
    elif d["profile"] == FLOAT:
        added = float(scale.addend)
        formula = f"* {factor_of(scale):.9g} + {added:.9g}, as float32"
        yield WhyStep(f"{side} scaled", formula, float(quietly(dequantized)(x, scale)[0]))
    elif d["profile"] == GLOW_FLOAT:
        product = _real_product(x, scale)
        if d["operation"] == OP_ADD:
            rounded = int(round_away(product)[0])
            yield WhyStep(f"{side} scaled", f"rha(* {factor_of(scale):.9g})", rounded)
        else:
            yield WhyStep(f"{side} scaled", f"* {factor_of(scale):.9g}", float(product[0]))
    else:
        *steps, last = scaled_steps(side, own, scale, d)
        yield from (WhyStep(f"{side} {one.name}", one.formula, one.value) for one in steps)
        yield WhyStep(f"{side} scaled", last.formula, last.value)


@quietly
def _real_product(x: Int64s, scale: Scale) -> Float32s:
    return np.asarray(real(x) * scale.factor)


def _pair_steps(own: Mapping[str, int], d: Words) -> Iterator[WhyStep]:
    """A product, or a sum that is scaled once more."""
    operation = d["operation"]
    if operation == OP_MUL:
        exact = own["lhs"] * own["rhs"]
        is_held = d["profile"] in INTEGER_PROFILES and element_of(d) == INT8
        product = held_to_32_bits(exact) if is_held else exact
        note = f" = {exact}, held to 32 bits" if product != exact else ""
        yield WhyStep("mul", f"lhs * rhs{note}", product)
        yield from scaled_steps("product", product, scale_of(d, "out"), d)
    elif d["profile"] == Q31 and operation in (OP_ADD, OP_SUB):
        left, right = (
            int([*scaled_steps(side, own[side], scale_of(d, side), d)][-1].value)
            for side in ("lhs", "rhs")
        )
        total = left + right if operation == OP_ADD else left - right
        yield WhyStep(OPERATIONS[operation], "of both", total)
        yield from scaled_steps("sum", total, scale_of(d, "out"), d)


def _pair_result(d: Words, value: int) -> WhyStep:
    operation, offset = d["operation"], d["out_offset"]
    name, out = OPERATIONS[operation], scale_of(d, "out")
    if operation == OP_MUL and d["profile"] in (GLOW_FLOAT, FLOAT):
        rounding = "rha" if d["profile"] == GLOW_FLOAT else "rne"
        formula = f"{rounding}(product * {factor_of(out):.9g}) + {offset}"
    elif operation == OP_MUL or (d["profile"] == Q31 and operation in (OP_ADD, OP_SUB)):
        formula = f"rescaled + {offset}"
    elif d["profile"] == FLOAT:
        formula = f"rne({name} * {float(float_of_bits(d['result_scale'])):.9g}) + {offset}"
    elif d["profile"] == QNNPACK:
        formula = f"{name} / 2^{d['out_post']}, halves away from 0, + {offset}"
    elif d["profile"] == GLOW_FLOAT and operation == OP_ADD:
        formula = f"rha((lhs + rhs) * {factor_of(out):.9g} + {offset})"
    elif d["profile"] == GLOW_FLOAT and operation in (OP_MAX, OP_MIN):
        scale = float(float_of_bits(d["result_scale"]))
        formula = f"{name} of rne(each / {scale:.9g} + {offset})"
    elif d["profile"] == GLOW_FLOAT:
        formula = f"rha(lhs - rhs + {offset})"
    else:
        formula = f"{name} of both, + {offset}"
    return WhyStep("result", formula, value)


# --- one tensor -----------------------------------------------------------------------------


def _rescale(spm: Scratchpad, d: Words, at: Element) -> Made:
    nbytes = element_of(d).nbytes
    address = d["input"] + at.channel * nbytes
    stored = _value(spm, nbytes, address)
    held = min(max(stored, d["in_low"]), d["in_high"])
    x = held - d["in_offset"]
    is_below = x < 0 and d["activation"] == ACTIVATION_LEAKY
    below = np.array([is_below])
    value = int(RESCALES[d["profile"]](np.array([x]), below, d, nowhere())[0])
    return _made(
        (Term((at.channel,), address, stored),),
        WhyStep("clamped", f"to {d['in_low']} ... {d['in_high']}, an activation", held),
        WhyStep("x", f"less {d['in_offset']}", x),
        *(scaled_steps("x", x, scale_by_sign(below, d), d)),
        WhyStep("result", _rescale_formula(d, is_below), value),
        _clipped(d, value),
    )


def _rescale_formula(d: Words, is_below: bool) -> str:
    offset = d["out_offset"]
    scale = float(float_of_bits(d["result_scale"]))
    leaky = " * {:.9g}".format(factor_of(scale_of(d, "leaky"))) if is_below else ""
    if d["profile"] == GLOW_FLOAT:
        return f"rne(x * factor / {scale:.9g} + {offset})"
    if d["profile"] == FLOAT:
        factor = factor_of(scale_of(d, "out"))
        return f"rne(x * {factor:.9g}{leaky} * {scale:.9g}) + {offset}"
    return f"rescaled + {offset}" + (", leaky: x is below 0" if is_below else "")


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
