"""What is wrong with a type by itself: its size, element kind and quantization."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from nmpsim.lir.constraints import Problem, describe
from nmpsim.lir.limits import size_problem
from nmpsim.lir.nodes import (
    MODULE_ELEMS,
    QUANTIZABLE_ELEMS,
    QUANTIZED_ELEMS,
    Quantization,
    TensorType,
)


def type_problems(type: TensorType, dummy_scale: bool = False) -> Iterator[Problem]:
    """Everything wrong with a type.

    ``dummy_scale``: the scale has no meaning and may be 0, as for weights whose scales are in
    an operand of their own.
    """
    if type.elem not in MODULE_ELEMS:
        yield Problem(None, "unknown element kind", type.elem, ", ".join(MODULE_ELEMS))
        return
    if problem := size_problem(type.shape):
        yield Problem(None, "the tensor is too large", *problem, "LIR011")
    if any(dim < 1 for dim in type.shape):
        yield Problem(None, "a dimension is not positive", describe(type.shape), "at least 1 each")
    if type.alignments and (
        len(type.alignments) != len(type.shape) or any(a < 1 for a in type.alignments)
    ):
        found = str(list(type.alignments))
        yield Problem(None, "wrong alignments", found, "one a dimension, at least 1 each")
    yield from _quantization_problems(type, dummy_scale)


def _quantization_problems(type: TensorType, dummy_scale: bool) -> Iterator[Problem]:
    if type.quant is None:
        if type.elem in QUANTIZED_ELEMS:
            found = f"{type.elem} without scale and offset"
            yield Problem(None, "the type lacks its quantization", found, "[S:scale O:offset]")
        return
    if type.elem not in QUANTIZABLE_ELEMS:
        found = f"{type.elem} with scale and offset"
        expected = " or ".join(sorted(QUANTIZABLE_ELEMS))
        yield Problem(None, "the type cannot be quantized", found, expected)
        return
    yield from _parameter_problems(type.quant, np.iinfo(type.dtype), dummy_scale)


def _parameter_problems(
    quant: Quantization, integers: np.iinfo[np.signedinteger], dummy_scale: bool
) -> Iterator[Problem]:
    usable = math.isfinite(quant.scale) and quant.scale > 0
    if not usable and not (dummy_scale and quant.scale == 0):
        yield Problem(None, "the scale cannot be used", f"{quant.scale:g}", "finite and above 0")
    if not integers.min <= quant.offset <= integers.max:
        expected = f"{integers.min} to {integers.max}"
        yield Problem(None, "the offset is not a value of the type", str(quant.offset), expected)
