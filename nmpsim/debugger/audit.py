"""Does a program hold what it should: types of operands, constants compared with a file's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.explain import LayerFacts
from nmpsim.debugger.inspect import coordinates
from nmpsim.lir.nodes import Module

SAME_SCALE = 1e-4
"""Scales that are no further apart, of one another, are the same but for rounding."""


@attrs.frozen
class ConstantAudit:
    """A constant of the program compared with a file's."""

    name: str
    elem: str
    shape: tuple[int, ...]
    differing: int
    first: tuple[int, ...]
    """Coordinates of the first element that differs; () if none does."""
    ours: float = 0
    theirs: float = 0
    problem: str = ""


@attrs.frozen
class OperandType:
    """An operand of a layer with its type."""

    role: str
    name: str
    text: str


def operand_types(facts: LayerFacts | None) -> list[OperandType]:
    """Operands of a layer's instruction, with element, shape, scale, offset."""
    found = []
    for one in facts.operands if facts else ():
        shape = "x".join(map(str, one.shape)) or "scalar"
        quant = "" if one.scale is None else f" scale {one.scale:.9g} offset {one.offset or 0}"
        found.append(OperandType(one.role, one.name, f"{one.elem} {shape}{quant}"))
    return found


def bias_note(facts: LayerFacts | None) -> str:
    """How a bias's scale differs from that of the sum; empty where it does not, or has none."""
    scales = {one.role: one.scale for one in facts.operands} if facts else {}
    source, bias, dest = scales.get("Src"), scales.get("Bias"), scales.get("Dest")
    weights = scales.get("Filter", scales.get("Weights"))
    by_channel = facts is not None and facts.channels > 1
    if not source or not weights or not bias or by_channel:
        return ""
    ratio = bias / (source * weights)
    if abs(ratio - 1) < SAME_SCALE:
        return ""
    which = ", that of the result" if dest and abs(bias / dest - 1) < SAME_SCALE else ""
    return f"the bias has {ratio:.6g} times the scale of Src times weights{which}"


def audit_constants(
    module: Module, keys: Iterable[str], read: Callable[[str], Any]
) -> Iterator[ConstantAudit]:
    """Every constant of the program compared with the array of its name, where a file has one."""
    known = {key.removeprefix("const/"): key for key in keys}
    for weight in module.weights:
        if not weight.constant or weight.name not in known:
            continue
        ours: npt.NDArray[Any] = module.constants[weight.name]
        theirs = read(known[weight.name])
        found = ConstantAudit(weight.name, weight.type.elem, weight.type.shape, 0, ())
        if theirs.shape != ours.shape:
            shape = "x".join(map(str, theirs.shape))
            yield attrs.evolve(found, problem=f"the file's has the shape {shape}")
            continue
        apart = np.flatnonzero(ours.reshape(-1) != theirs.reshape(-1))
        if apart.size:
            at = coordinates(int(apart[0]), ours.shape)
            found = attrs.evolve(
                found, differing=int(apart.size), first=at, ours=ours[at].item(),
                theirs=theirs[at].item(),
            )  # fmt: skip
        yield found
