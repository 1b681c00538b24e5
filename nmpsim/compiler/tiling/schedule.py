"""The order of a core's instructions in one layer, with the waits that make its tiles overlap.

While the unit computes tile t, the results of t-1 are stored and the operands of t+1 are loaded.
Operands and results lie in two buffers each, used in turn; so before a unit begins tile t the
loads of t and the stores of t-2 must be done, and before the loads of t+1 begin, tile t-1 must be
computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nmpsim.compiler.tiling.plan import Command, TileStep
from nmpsim.isa.table import Unit

MAX_OUTSTANDING = 31
"""Largest count that ``nmp.wait`` can name."""

Item = Command | tuple[Unit, int]
"""A tensor instruction, or a wait for a unit until this many of its instructions are unfinished."""


def schedule(steps: Sequence[TileStep], unit: Unit) -> Iterable[Item]:
    """A core's instructions for one layer, in order."""
    if not steps:
        return
    yield from steps[0].loads
    for index, step in enumerate(steps):
        yield (Unit.LOAD, 0)
        yield (Unit.STORE, 0)
        yield from step.computes
        if index > 0:
            yield (unit, min(len(step.computes), MAX_OUTSTANDING))
            yield from steps[index - 1].stores
        if index + 1 < len(steps):
            yield from steps[index + 1].loads
    yield (unit, 0)
    yield from steps[-1].stores
    yield (Unit.STORE, 0)
