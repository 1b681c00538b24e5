"""How long a planned layer takes: its instructions simulated, without data.

What needs Numba is imported when it is needed first.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Annotated

import attrs
import numpy as np

from nmpsim.compiler.tiling.compiled.items import NEVER, UNKNOWN
from nmpsim.compiler.tiling.cost_model import Memory
from nmpsim.compiler.tiling.plan import Commands, Integers, LayerPlan, words_of
from nmpsim.compiling import say_compiling
from nmpsim.isa.codec import BY_MNEMONIC
from nmpsim.isa.words import KINDS

if TYPE_CHECKING:
    from nmpsim.compiler.tiling.compiled.events import Work

_BOX = ("run_bytes", "count_x", "count_y")


@attrs.frozen
class Estimate:
    """What a layer is expected to take, from barrier to barrier."""

    cycles: int
    compute: Annotated[int, "cycles that the busiest core's unit works"]
    memory: Annotated[int, "cycles that the DRAM serves, row misses included"]
    grants: int
    bursts: int
    row_misses: int
    nbytes: Annotated[int, "bytes moved"]
    cores: Annotated[int, "cores with work"]


def items_of(plan: LayerPlan) -> tuple[Integers, Integers]:
    """Every core's instructions in order, and where each core's begin: see ``scheduled``."""
    from nmpsim.compiler.tiling.compiled.schedule import scheduled

    items, begins = scheduled(plan.cores, plan.loads.ends, plan.computes.ends, plan.stores.ends)
    return items, begins


def work_of(plan: LayerPlan) -> Work:
    """A plan as the simulation takes it."""
    from nmpsim.compiler.tiling.compiled.events import Work

    commands = (plan.loads, plan.stores, plan.computes)
    items, begins = items_of(plan)
    first = np.stack([one.ends[plan.cores] for one in commands], axis=1)
    computing = KINDS[str(BY_MNEMONIC[plan.computes.mnemonic].descriptor)]
    loads, stores, computes = (one.words for one in commands)
    return Work(items, begins, loads, stores, computes, first, computing)


@functools.cache
def _prepare() -> None:
    """What is to be done before anything is compiled; it takes some seconds, which is said."""
    from nmpsim.compiler.tiling.compiled.events import simulated
    from nmpsim.kernels.jit import is_cached
    from nmpsim.memory.pure import register_pure_functions

    register_pure_functions()
    if not is_cached(simulated):
        say_compiling(logging.INFO)


def simulate(plan: LayerPlan, memory: Memory, limit: int = NEVER) -> Estimate | None:
    """Simulate a plan; None if it takes more than ``limit`` cycles."""
    from nmpsim.compiler.tiling.compiled.events import new_state, simulated

    _prepare()
    work = work_of(plan)
    cycles, compute, *sums = simulated(work, new_state(work), memory.costs, memory.blind, limit)
    if cycles == UNKNOWN:
        return None
    busy, grants, bursts, row_misses = sums
    nbytes = _bytes_of(plan.loads) + _bytes_of(plan.stores)
    cores = int(np.count_nonzero(np.diff(plan.cores)))
    return Estimate(cycles, compute, busy, grants, bursts, row_misses, nbytes, cores)


def complete(plan: LayerPlan, memory: Memory) -> Estimate:
    """Simulate a plan to its end."""
    estimate = simulate(plan, memory)
    assert estimate is not None
    return estimate


def _bytes_of(commands: Commands) -> int:
    offsets = words_of(commands.mnemonic)
    return int(commands.words[:, [offsets[name] for name in _BOX]].prod(axis=1).sum())
