"""Simulation of a planned layer's instructions without data, to estimate its cycles.

Modules that need LLVM are imported when they are first needed.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Annotated

import attrs
import numpy as np

from nmpsim.compile_notice import print_compile_notice
from nmpsim.compiler.tiling.compiled.items import NEVER, UNKNOWN
from nmpsim.compiler.tiling.cost_model import DramModel
from nmpsim.compiler.tiling.grid import Integers
from nmpsim.compiler.tiling.plan import LayerPlan, TileInstructions, get_word_offsets
from nmpsim.isa.codec import BY_MNEMONIC
from nmpsim.isa.words import KINDS

if TYPE_CHECKING:
    from nmpsim.compiler.tiling.compiled.state import SimulationInput

_BOX = ("run_bytes", "count_x", "count_y")


@attrs.frozen
class LayerCostEstimate:
    """Estimate of a layer's cost by simulation, from the barrier before it to its own barrier."""

    cycles: int
    compute: Annotated[int, "cycles that the busiest core's unit works"]
    memory: Annotated[int, "cycles that the DRAM serves, row misses included"]
    grants: int
    bursts: int
    row_misses: int
    nbytes: Annotated[int, "bytes moved"]
    cores: Annotated[int, "cores with work"]


def order_instructions(plan: LayerPlan) -> tuple[Integers, Integers]:
    """Return the instructions and waits of all cores in order, and each core's first index.

    See :func:`~nmpsim.compiler.tiling.compiled.schedule_instructions.schedule_instructions`.
    """
    from nmpsim.compiler.tiling.compiled.entries import schedule_instructions

    ends = (plan.loads.ends, plan.computes.ends, plan.stores.ends)
    most = sum(int(one[-1]) for one in ends) + 3 * int(plan.cores[-1]) + plan.cores.size
    items, begins = np.empty((most, 2), np.int64), np.zeros(plan.cores.size, np.int64)
    return items[: schedule_instructions(plan.cores, *ends, items, begins)], begins


def make_simulation_input(plan: LayerPlan) -> SimulationInput:
    """Convert a plan to the arrays of the compiled simulation."""
    from nmpsim.compiler.tiling.compiled.state import SimulationInput

    commands = (plan.loads, plan.stores, plan.computes)
    items, begins = order_instructions(plan)
    first = np.stack([one.ends[plan.cores] for one in commands], axis=1)
    computing = KINDS[str(BY_MNEMONIC[plan.computes.mnemonic].descriptor)]
    loads, stores, computes = (one.words for one in commands)
    return SimulationInput(items, begins, loads, stores, computes, first, computing)


@functools.cache
def _announce() -> None:
    """Report that the simulation is being compiled, which takes seconds, if it is not cached."""
    from nmpsim.compiler.tiling.compiled.entries import simulate_plan

    if not simulate_plan.is_cached():
        print_compile_notice(logging.INFO)


def simulate(plan: LayerPlan, memory: DramModel, limit: int = NEVER) -> LayerCostEstimate | None:
    """Simulate a plan; return its cost, or None if it takes more than ``limit`` cycles."""
    from nmpsim.compiler.tiling.compiled.entries import simulate_plan
    from nmpsim.compiler.tiling.compiled.state import WORKED, make_initial_state

    _announce()
    work = make_simulation_input(plan)
    state = make_initial_state(work)
    cycles = simulate_plan(work, state, memory.costs, memory.blind, limit)
    if cycles == UNKNOWN:
        return None
    compute = int(state.cores[:, WORKED].max())
    busy, grants, bursts, row_misses = state.sums.tolist()
    nbytes = _bytes_of(plan.loads) + _bytes_of(plan.stores)
    cores = int(np.count_nonzero(np.diff(plan.cores)))
    return LayerCostEstimate(cycles, compute, busy, grants, bursts, row_misses, nbytes, cores)


def simulate_fully(plan: LayerPlan, memory: DramModel) -> LayerCostEstimate:
    """Simulate a plan to its end and return its cost."""
    estimate = simulate(plan, memory)
    assert estimate is not None
    return estimate


def _bytes_of(commands: TileInstructions) -> int:
    offsets = get_word_offsets(commands.mnemonic)
    return int(commands.words[:, [offsets[name] for name in _BOX]].prod(axis=1).sum())
