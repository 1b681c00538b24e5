"""Elementwise operations that are one formula: one row each, with all that there is to say.

The LIR's table of opcodes, its rules on types, the host's table and the evaluation in real numbers
are made from these rows. A formula works in the dtype of its arguments, so in float32 each step
rounds as in C++, and in float64 it is the real function. On quantized values it is what Glow's
Interpreter does with all of these: ``quantize(formula(dequantize(q)))``.

Index integers are calculated in integers, as libjit does; the Interpreter takes some of them
through float32, which is the same up to 2**24.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nmpsim.kernels.hostops.functions import (
    arccos,
    arcsin,
    arctan,
    cos,
    erf,
    exp,
    log,
    power,
    sin,
)
from nmpsim.kernels.hostops.rounding import quantize_reals
from nmpsim.kernels.hostops.tensors import (
    BOOL,
    FLOAT,
    INDEX,
    REAL,
    AnyArray,
    Attributes,
    DtypeNames,
    HostResult,
    HostTensor,
    UnsupportedHostOp,
    saturate,
    store,
)
from nmpsim.records import frozen


@frozen
class Elementwise:
    """An elementwise operation: its formula, operands and dtypes."""

    opcode: str
    formula: Callable[..., Any]
    """(arrays of the sources, then the numbers of the attributes) -> result."""
    summary: str
    dtypes: DtypeNames = REAL
    """dtypes that the sources, all of one dtype, may have."""
    sources: tuple[str, ...] = ("Src",)
    attributes: tuple[str, ...] = ()
    to_bool: bool = False
    """Whether Dest is bool instead of the dtype of the sources."""

    def run(self, dest: HostTensor, *sources: HostTensor, attributes: Attributes) -> HostResult:
        """Apply the formula to the sources and store the result in Dest."""
        numbers = [attributes[name] for name in self.attributes]
        if sources[0].dtype in (np.int8, np.int16):
            reals = self.formula(*(source.reals() for source in sources), *numbers)
            return saturate(quantize_reals(reals, dest), dest)
        if any(source.quantized for source in sources):
            reason = f"quantized {sources[0].dtype} has no defined arithmetic"
            raise UnsupportedHostOp(self.opcode, reason)
        return store(self.formula(*(source.values for source in sources), *numbers), dest)


def _modulo(x: AnyArray, divisor: int, sign_follows: int) -> AnyArray:
    """Return the remainder of a division that rounds to zero, as in C, or down."""
    wide = x.astype(np.int64)
    return np.mod(wide, divisor) if sign_follows else np.fmod(wide, divisor)


def _sign(x: AnyArray) -> AnyArray:
    """Return 1, 0 or -1; 0 for NaN."""
    return np.subtract(x > 0, x < 0, dtype=x.dtype)


def _finite(x: AnyArray, nan: float, top: float, bottom: float) -> AnyArray:
    return np.where(np.isnan(x), nan, np.where(x == np.inf, top, np.where(x == -np.inf, bottom, x)))


_PAIR = ("LHS", "RHS")
_BITS = INDEX | BOOL

# fmt: off
ELEMENTWISE = (
    Elementwise("elementneg", np.negative, "-Src", REAL | INDEX),
    Elementwise("elementabs", np.abs, "absolute value"),
    Elementwise("elementsign", _sign, "1, 0 or -1"),
    Elementwise("elementfloor", np.floor, "round down"),
    Elementwise("elementceil", np.ceil, "round up"),
    Elementwise("elementtruncate", np.trunc, "round towards zero"),
    Elementwise("elementround", np.rint, "round, halves to even"),
    Elementwise("elementsqrt", np.sqrt, "square root"),
    Elementwise("elementrsqrt", lambda x: 1 / np.sqrt(x), "1 / sqrt(Src)"),
    Elementwise("elementreciprocal", lambda x: 1 / x, "1 / Src"),
    Elementwise("elementsin", sin, "sine"),
    Elementwise("elementcos", cos, "cosine"),
    Elementwise("elementasin", arcsin, "arc sine"),
    Elementwise("elementacos", arccos, "arc cosine"),
    Elementwise("elementatan", arctan, "arc tangent"),
    Elementwise("elementerf", erf, "error function"),
    Elementwise("elementexp", exp, "exponential", FLOAT),
    Elementwise("elementlog", log, "natural logarithm", FLOAT),
    Elementwise("softplus", lambda x: log(1 + exp(x)), "log(1 + exp(Src))", FLOAT),
    Elementwise(
        "hardswish", lambda x: x * np.clip(x + 3, 0, 6) * 0.166666667,
        "Src * clip(Src + 3, 0, 6) / 6", FLOAT,
    ),
    Elementwise("elementisnan", np.isnan, "whether it is NaN", FLOAT, to_bool=True),
    Elementwise("elementnot", np.logical_not, "not", BOOL),
    Elementwise("elementbitwisenot", np.invert, "each bit inverted", INDEX),
    Elementwise(
        "modulo", _modulo, "remainder by Divisor", INDEX,
        attributes=("Divisor", "SignFollowDivisor"),
    ),
    Elementwise(
        "nantonum", _finite, "Src with NaN and infinities replaced", FLOAT,
        attributes=("Nan", "PosInf", "NegInf"),
    ),
    Elementwise(
        "elementmulconst", lambda x, factor: x * factor, "LHS * RHS, LHS a number", FLOAT,
        sources=("RHS",), attributes=("LHS",),
    ),
    Elementwise(
        "elementrsubconst", lambda x, base: base - x, "LHS - RHS, LHS a number", FLOAT,
        sources=("RHS",), attributes=("LHS",),
    ),
    Elementwise("elementpow", power, "LHS to the power of RHS", REAL, _PAIR),
    Elementwise(
        "elementfmod", np.fmod, "remainder of LHS / RHS, with the sign of LHS", FLOAT | INDEX,
        sources=_PAIR,
    ),
    Elementwise("elementand", np.logical_and, "LHS and RHS", BOOL, _PAIR),
    Elementwise("elementor", np.logical_or, "LHS or RHS", BOOL, _PAIR),
    Elementwise("elementxor", np.logical_xor, "either LHS or RHS", BOOL, _PAIR),
    Elementwise("elementbitwiseand", np.bitwise_and, "LHS and RHS bit by bit", _BITS, _PAIR),
    Elementwise("elementbitwiseor", np.bitwise_or, "LHS or RHS bit by bit", _BITS, _PAIR),
    Elementwise("elementbitwisexor", np.bitwise_xor, "LHS xor RHS bit by bit", _BITS, _PAIR),
)
# fmt: on
"""All operations of this form."""
