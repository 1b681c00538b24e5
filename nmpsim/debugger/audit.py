"""Does a program hold what it should: integers by its LIR's scales, constants by a file?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.explain import LayerFacts, explain_layers
from nmpsim.bundle.metadata import Layer
from nmpsim.debugger.inspect import coordinates
from nmpsim.debugger.instructions import Done
from nmpsim.isa.words import GLOW_INT
from nmpsim.lir.nodes import Module

Integers = tuple[int, int, int]
"""pre, mul, post"""


@attrs.frozen
class StageAudit:
    """One rescaling of a layer."""

    layer: str
    stage: str
    formula: str
    real: float
    expected: Integers
    """What Glow derives from the scales."""
    found: tuple[Integers, ...]
    """What the descriptors say; one if they agree."""

    @property
    def is_right(self) -> bool:
        """Do all descriptors say what is expected?"""
        return self.found == (self.expected,)


@attrs.frozen
class ConstantAudit:
    """A constant of the program beside a file's."""

    name: str
    elem: str
    shape: tuple[int, ...]
    differing: int
    first: tuple[int, ...]
    """Coordinates of the first element that differs; () if none does."""
    ours: float = 0
    theirs: float = 0
    problem: str = ""


def audit_integers(module: Module, layer: Layer, trace: Iterable[Done]) -> Iterator[StageAudit]:
    """The rescale integers of a layer in Glow's form, as expected and as its descriptors have them.

    Nothing for other profiles, and for layers whose channels have scales of their own.
    """
    facts = _facts(module, layer)
    done = [one for one in trace if one.words.get("profile", GLOW_INT) == GLOW_INT]
    for stage in facts.stages if facts else ():
        if len(set(stage.reals)) != 1 or stage.factors[0] is None:
            continue
        names = [f"{stage.name}_{part}" for part in ("pre", "mul", "post")]
        found = {
            tuple(one.words[name] for name in names)
            for one in done
            if names[0] in one.words and not one.words.get("scales")
        }
        integer = stage.factors[0].integer
        if found:
            yield StageAudit(
                layer.name,
                stage.name,
                stage.formula,
                stage.reals[0],
                (integer.pre, integer.mul, integer.post),
                tuple(sorted((pre, mul, post) for pre, mul, post in found)),
            )


def _facts(module: Module, layer: Layer) -> LayerFacts | None:
    """Of the instruction that rescales: the first of those that were fused."""
    names = {i.name for i in module.instructions}
    wanted = layer.fused[0] if layer.fused and layer.fused[0] in names else layer.name
    return next((one for one in explain_layers(module) if one.name == wanted), None)


@attrs.frozen
class OperandType:
    """An operand of a layer with its type."""

    role: str
    name: str
    text: str


def operand_types(module: Module, layer: Layer) -> list[OperandType]:
    """Operands of a layer's instruction, with element, shape, scale, offset."""
    facts = _facts(module, layer)
    found = []
    for one in facts.operands if facts else ():
        shape = "x".join(map(str, one.shape)) or "scalar"
        quant = "" if one.scale is None else f" scale {one.scale:.9g} offset {one.offset or 0}"
        found.append(OperandType(one.role, one.name, f"{one.elem} {shape}{quant}"))
    return found


def audit_constants(
    module: Module, keys: Iterable[str], read: Callable[[str], Any]
) -> Iterator[ConstantAudit]:
    """Every constant of the program beside the array of its name in a file, where there is one."""
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
