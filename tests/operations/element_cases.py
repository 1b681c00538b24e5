"""Cases of operations of each element by itself."""

# ruff: noqa: N803 - arguments are named as the attributes are

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import operation_oracles as oracles
from one_instruction import plain_type
from operation_case import INDEX, LIMITS, Case, F, Rng, case, grid, kind, shape, values

from nmpsim.lir.nodes import TensorType
from nmpsim.lir.opcodes import OPCODES


def sign(x: float) -> float:
    return math.copysign(1.0, x) if x else 0.0


UNARY: dict[str, Callable[[float], float]] = {
    "elementneg": lambda x: -x,
    "elementabs": abs,
    "elementsign": sign,
    "elementfloor": lambda x: float(math.floor(x)),
    "elementceil": lambda x: float(math.ceil(x)),
    "elementtruncate": lambda x: float(math.trunc(x)),
    "elementround": lambda x: float(round(x)),
    "elementsqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "elementrsqrt": lambda x: F(1) / np.sqrt(F(x)) if x > 0 else (math.inf if x == 0 else math.nan),
    "elementreciprocal": lambda x: 1 / x if x else math.copysign(math.inf, x),
    "elementsin": math.sin,
    "elementcos": math.cos,
    "elementasin": lambda x: math.asin(x) if abs(x) <= 1 else math.nan,
    "elementacos": lambda x: math.acos(x) if abs(x) <= 1 else math.nan,
    "elementatan": math.atan,
    "elementerf": math.erf,
}
"""Functions of real elements, which quantized ones take through float32."""

FLOAT_ONLY: dict[str, Callable[[float], float]] = {
    "elementexp": math.exp,
    "elementlog": lambda x: math.log(x) if x > 0 else math.nan,
    "softplus": lambda x: math.log(F(1) + F(math.exp(x))),
    "hardswish": lambda x: F(F(F(x) * min(max(F(F(x) + F(3)), F(0)), F(6))) * F(0.166666667)),
}

LOGIC: dict[str, Callable[[Any, Any], Any]] = {
    "elementand": lambda a, b: a and b,
    "elementor": lambda a, b: a or b,
    "elementxor": lambda a, b: a != b,
}

BITS: dict[str, Callable[[Any, Any], Any]] = {
    "elementbitwiseand": lambda a, b: a & b,
    "elementbitwiseor": lambda a, b: a | b,
    "elementbitwisexor": lambda a, b: a ^ b,
}

UNITS = {"elementexp": 1, "softplus": 1}
"""By how much an exponential as glibc has it may be beside the correctly rounded one."""


def elementwise(rng: Rng, opcode: str, elem: str, function: Callable[..., Any]) -> Case:
    """Build a case whose oracle is a function of elements."""
    of = shape(rng)
    at, to = grid(rng, elem), grid(rng, elem)
    roles = [role.name for role in OPCODES[opcode].operands[1:]]
    read = {name: values(rng, elem, of) for name in roles}
    result = kind(elem, of, to)
    if opcode == "elementpow" and elem == "float":
        read["LHS"] = np.abs(read["LHS"])

    def oracle(v, shapes):
        one = function
        if elem in LIMITS:
            one = oracles.quantize_function(function, [*([at] * len(roles)), to], LIMITS[elem])
        flat = [v[name].reshape(-1).tolist() for name in roles]
        results = [one(*elements) for elements in zip(*flat, strict=True)]
        return [np.array(results).astype(result.dtype).reshape(of)]

    return case(oracle, opcode, read, [result], elem, at, UNITS.get(opcode, 0))


def power(x: float, y: float) -> float:
    """Return ``x`` to the power ``y`` as ``pow`` of C does."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return math.inf
    except ValueError:  # zero to a negative power, or a negative number to a broken one
        return math.nan if x else math.inf


def convert(rng: Rng) -> Case:
    elem, to = rng.choice(["float", "index32", "index64", "bool"], 2)
    x = values(rng, elem, shape(rng))
    out = TensorType(to, x.shape)

    def oracle(v, shapes):
        cast = {"float": float, "bool": bool}.get(to, int)
        flat = [cast(i) for i in v["Input"].reshape(-1).tolist()]
        return [np.array(flat, out.dtype).reshape(x.shape)]

    return case(oracle, "convertto", {"Input": x}, [out])


def modulo(rng: Rng) -> Case:
    elem, divisor, follow = rng.choice(INDEX), int(rng.integers(1, 9)), int(rng.integers(2))
    x = values(rng, elem, shape(rng))

    def oracle(v, shapes, Divisor, SignFollowDivisor):
        rest = [int(math.fmod(i, Divisor)) for i in v["Src"].reshape(-1).tolist()]
        rest = [r + Divisor if SignFollowDivisor and r < 0 else r for r in rest]
        return [np.array(rest).reshape(x.shape)]

    attributes = {"Divisor": divisor, "SignFollowDivisor": follow}
    return case(oracle, "modulo", {"Src": x}, [plain_type(x)], **attributes)


def by_number(rng: Rng, opcode: str) -> Case:
    x = values(rng, "float", shape(rng))

    def oracle(v, shapes, LHS):
        number, y = F(LHS), v["RHS"]
        return [number * y if opcode == "elementmulconst" else number - y]

    return case(oracle, opcode, {"RHS": x}, [plain_type(x)], LHS=1.7)


def nan_to_num(rng: Rng) -> Case:
    x = values(rng, "float", shape(rng))
    attributes = {"Nan": 1.5, "PosInf": 9.0, "NegInf": -9.0}
    return case(lambda v, s, **a: [v["Src"]], "nantonum", {"Src": x}, [plain_type(x)], **attributes)


def is_nan(rng: Rng) -> Case:
    x = values(rng, "float", shape(rng))
    results = [TensorType("bool", x.shape)]
    return case(lambda v, s: [np.zeros(x.shape, bool)], "elementisnan", {"Src": x}, results)


CASES: dict[str, Callable[[Rng], Case]] = {
    "convertto": convert,
    "modulo": modulo,
    "elementmulconst": lambda rng: by_number(rng, "elementmulconst"),
    "elementrsubconst": lambda rng: by_number(rng, "elementrsubconst"),
    "nantonum": nan_to_num,
    "elementisnan": is_nan,
}


def _add(opcode: str, elems: str, function: Callable[..., Any]) -> None:
    for elem in elems.split():
        name = opcode if elem == elems.split()[0] else f"{opcode} {elem}"
        CASES[name] = lambda rng, e=elem: elementwise(rng, opcode, e, function)


for opcode, function in UNARY.items():
    _add(opcode, "float i8 i16", function)
for opcode, function in FLOAT_ONLY.items():
    _add(opcode, "float", function)
_add("elementpow", "float i8", power)
_add("elementfmod", "float index32 index64", lambda x, y: math.fmod(x, y) if y else 0)
_add("elementnot", "bool", lambda x: not x)
_add("elementbitwisenot", "index32 index64", lambda x: ~x)
for opcode, function in LOGIC.items():
    _add(opcode, "bool", function)
for opcode, function in BITS.items():
    _add(opcode, "index32 index64 bool", function)
CASES["elementneg index32"] = lambda rng: elementwise(rng, "elementneg", "index32", lambda x: -x)
