"""``nmp.eltwise``: two tensors, each with its own scale, one operation.

``l`` and ``r`` are the sides less their zero points; float32 operations are rounded one by one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nmpsim.core.reference.events import LayerCounters, ResultPositions, saturate
from nmpsim.core.reference.operands import (
    INT8,
    Float32s,
    Scale,
    Words,
    element_of,
    float_of_bits,
    scale_of,
)
from nmpsim.core.reference.rounding import (
    held,
    quietly,
    real,
    round_away,
    round_even,
    shift_away,
)
from nmpsim.core.reference.scales import clip, fixed_point, integer_scale
from nmpsim.core.reference.scratchpad import Scratchpad, grid
from nmpsim.core.reference.step import Step
from nmpsim.core.state import Int64s
from nmpsim.isa.profiles import FLOAT, GLOW_FLOAT, GLOW_INT, NMP, Q31, QNNPACK, check_profiles
from nmpsim.isa.total import check_total
from nmpsim.isa.words import OP_ADD, OP_MAX, OP_MIN, OP_MUL, OP_SUB, OPERATION_NUMBERS, RHS_INT32
from nmpsim.kernels.saturation_stages import RESCALE

OPERATIONS = {
    OP_ADD: np.add,
    OP_SUB: np.subtract,
    OP_MAX: np.maximum,
    OP_MIN: np.minimum,
}
"""What is done with two sides on one scale, integers or float32; a product has its own formula."""
check_total(f"{__name__}.OPERATIONS", (*OPERATIONS, OP_MUL), OPERATION_NUMBERS)


def glow_int(left: Int64s, right: Int64s, d: Words, place: ResultPositions) -> Int64s:
    """Glow's libjit: each side on the result's scale, rounded; then the operation.

    The product of mul is scaled itself; Int8 saturates it to 32 bits first.
    """
    element = element_of(d)
    if d["operation"] == OP_MUL:
        product = left * right
        if element == INT8:
            product = saturate(product, 32, RESCALE, place)
        return integer_scale(product, scale_of(d, "out"), element, place) + d["out_offset"]
    x = integer_scale(left, scale_of(d, "lhs"), element, place)
    y = integer_scale(right, scale_of(d, "rhs"), element, place)
    return OPERATIONS[d["operation"]](x, y) + d["out_offset"]


@quietly
def glow_float(left: Int64s, right: Int64s, d: Words, place: ResultPositions) -> Int64s:
    """Glow's Interpreter, whose operations round differently.

    add: ``X = rha(l * m_l)``, ``Y = rha(r * m_r)``, ``rha(f32(X + Y) * m + f32(Oy))``.
    sub: ``rha((m_l * l - m_r * r) + f32(Oy))``. mul: ``rha(f32(l * r) * m) + Oy``.
    max, min: of ``rne(m_l * l / S + f32(Oy))`` and the same of r.
    """
    operation, offset = d["operation"], np.float32(d["out_offset"])
    factor = scale_of(d, "out").factor
    if operation == OP_MUL:
        return round_away(real(left * right) * factor) + d["out_offset"]
    x, y = real(left) * scale_of(d, "lhs").factor, real(right) * scale_of(d, "rhs").factor
    if operation == OP_ADD:
        total = held(round_away(x), 61) + held(round_away(y), 61)
        return round_away(real(total) * factor + offset)
    if operation == OP_SUB:
        return round_away((x - y) + offset)
    scale = float_of_bits(d["result_scale"])
    return OPERATIONS[operation](round_even(x / scale + offset), round_even(y / scale + offset))


def q31(left: Int64s, right: Int64s, d: Words, place: ResultPositions) -> Int64s:
    """TFLite: each side in fixed point; a sum, or the product, is scaled once more."""
    out = scale_of(d, "out")
    if d["operation"] == OP_MUL:
        return fixed_point(left * right, out, place) + d["out_offset"]
    x = fixed_point(left, scale_of(d, "lhs"), place)
    y = fixed_point(right, scale_of(d, "rhs"), place)
    values = OPERATIONS[d["operation"]](x, y)
    if d["operation"] in (OP_ADD, OP_SUB):
        values = fixed_point(values, out, place)
    return values + d["out_offset"]


@quietly
def float_late(left: Int64s, right: Int64s, d: Words, place: ResultPositions) -> Int64s:
    """PyTorch's fbgemm and onednn: real values, then ``rne(t * r) + Oy``, r in ``result_scale``.

    mul: ``rne(f32(l * r) * m) + Oy``.
    """
    if d["operation"] == OP_MUL:
        return round_even(real(left * right) * scale_of(d, "out").factor) + d["out_offset"]
    x, y = dequantized(left, scale_of(d, "lhs")), dequantized(right, scale_of(d, "rhs"))
    values: Float32s = OPERATIONS[d["operation"]](x, y)
    return round_even(values * float_of_bits(d["result_scale"])) + d["out_offset"]


def dequantized(side: Int64s, scale: Scale) -> Float32s:
    """``f32(side * m + a)``, product and sum in float64; ``post`` holds the addend, a float32."""
    product = side.astype(np.float64) * scale.factor.astype(np.float64)
    real_values: Float32s = (product + scale.addend.astype(np.float64)).astype(np.float32)
    return real_values


def qnnpack(left: Int64s, right: Int64s, d: Words, place: ResultPositions) -> Int64s:
    """PyTorch's qnnpack, add and sub: integer factors, one shift, halves away from zero."""
    total = OPERATIONS[d["operation"]](left * d["lhs_mul"], right * d["rhs_mul"])
    return shift_away(total, d["out_post"]) + d["out_offset"]


PAIRS: dict[int, Callable[[Int64s, Int64s, Words, ResultPositions], Int64s]] = {
    GLOW_INT: glow_int,
    NMP: glow_int,
    GLOW_FLOAT: glow_float,
    Q31: q31,
    FLOAT: float_late,
    QNNPACK: qnnpack,
}
"""Profile -> the result of two sides."""
check_profiles(f"{__name__}.PAIRS", PAIRS, "eltwise")


def eltwise(s: Step, d: Words, account: LayerCounters) -> None:
    """The instruction: operands, effect."""
    spm, rows, columns = Scratchpad(s.core), d["rows"], d["columns"]
    element = element_of(d)
    nbytes = element.nbytes
    right_bytes = 4 if d["rhs_kind"] == RHS_INT32 else nbytes
    index = grid(d["event_origin"], (rows, d["event_stride_y"]), (columns, 1))
    place = ResultPositions(account, index)
    lhs = spm.read(nbytes, grid(d["lhs"], (rows, d["lhs_stride"]), (columns, nbytes)))
    rhs = spm.read(right_bytes, grid(d["rhs"], (rows, d["rhs_stride"]), (columns, right_bytes)))
    left, right = lhs - d["lhs_offset"], saturate(rhs - d["rhs_offset"], 32, RESCALE, place)

    results = clip(PAIRS[d["profile"]](left, right, d, place), d, place)
    spm.write(nbytes, grid(d["output"], (rows, d["out_stride"]), (columns, nbytes)), results)
    account.add_elements(rows * columns)


INSTRUCTIONS = {"nmp.eltwise": eltwise}
"""Mnemonic -> what it does."""
