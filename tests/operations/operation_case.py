"""Case with a random instruction and its expected result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from one_instruction import Array, OneInstruction, plain_type, quantized_type

from nmpsim.lir.nodes import TensorType
from nmpsim.lir.opcodes import OPCODES

Rng = np.random.Generator

Grid = tuple[float, int]

F = np.float32

LIMITS = {"i8": (-128, 127), "i16": (-32768, 32767)}


@attrs.frozen(eq=False)
class Case:
    """Instruction with its expected results and a tolerance in units in the last place."""

    it: OneInstruction
    expected: list[Array]
    units: int = 0
    near: float = 0.0
    """Absolute tolerance, for a difference of large numbers; 0 asks for equality."""


def shape(rng: Rng, low: int = 1, high: int = 4, most: int = 5) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, most, rng.integers(low, high + 1)))


def values(rng: Rng, elem: str, of: tuple[int, ...]) -> Array:
    if elem == "float":
        return rng.normal(0, 3, of).astype(F)
    if elem == "bool":
        return rng.integers(0, 2, of).astype(np.bool_)
    dtype = TensorType(elem, ()).dtype
    limits = (-50, 50) if elem.startswith("index") else LIMITS[elem]
    return rng.integers(*limits, of, endpoint=True).astype(dtype)


def ties(rng: Rng, elem: str, of: tuple[int, ...]) -> Array:
    """Draw from few different values, so that some are equal."""
    return rng.integers(-2, 3, of).astype(TensorType(elem, ()).dtype)


def grid(rng: Rng, elem: str = "i8") -> Grid:
    power = int(rng.integers(-5, 0)) - (8 if elem == "i16" else 0)
    return 2.0**power, int(rng.integers(-20, 20))


def kind(elem: str, of: tuple[int, ...], at: Grid) -> TensorType:
    if elem in LIMITS:
        return quantized_type(elem, of, *at)
    return TensorType(elem, of)


def case(
    oracle: Callable[..., list[Array]],
    opcode: str,
    read: dict[str, Array],
    results: list[TensorType],
    elem: str | None = None,
    at: Grid = (0.25, 3),
    units: int = 0,
    near: float = 0.0,
    **attributes: Any,
) -> Case:
    """Build a case whose operands have one type ``elem`` and grid if they hold such values."""
    written = iter(results)
    types = []
    for role in OPCODES[opcode].operands:
        if role.is_scratch:
            types.append(quantized_type("i8", (8,), 0.0, 0))
        elif role.kind == "@out":
            types.append(next(written))
        elif elem in LIMITS and read[role.name].dtype == TensorType(elem or "", ()).dtype:
            types.append(kind(elem or "", read[role.name].shape, at))
        else:
            types.append(plain_type(read[role.name]))
    if opcode == "scatterdata":
        results = [types[0]]
    it = OneInstruction(opcode, tuple(types), read, attributes)
    shapes = [result.shape for result in results]
    return Case(it, oracle(read, shapes, **attributes), units, near)


INDEX = ["index32", "index64"]

MOVED = ["float", "i8", "i16", "index32", "index64", "bool"]
