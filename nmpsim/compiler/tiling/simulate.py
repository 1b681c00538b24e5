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
from nmpsim.compiler.tiling.plan import (
    NO_INSTRUCTIONS,
    InstructionSequence,
    LayerPlan,
    UnitInstructions,
    get_word_offsets,
)
from nmpsim.isa.codec import BY_MNEMONIC
from nmpsim.isa.table import SCRATCHPAD_BASE, Unit
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


def order_instructions(plan: LayerPlan, layer: int = 0) -> InstructionSequence:
    """Order the instructions of the plan of ``layer`` for each core, and insert the waits.

    See :func:`~nmpsim.compiler.tiling.compiled.schedule_instructions.schedule_instructions`.
    """
    from nmpsim.compiler.tiling.compiled.entries import schedule_instructions

    ends = (plan.loads.ends, plan.computes.ends, plan.stores.ends)
    most = sum(int(one[-1]) for one in ends) + 3 * int(plan.cores[-1]) + plan.cores.size
    items, begins = np.empty((most, 2), np.int64), np.zeros(plan.cores.size, np.int64)
    items = items[: schedule_instructions(int(plan.unit), plan.cores, *ends, items, begins)]
    units, first = [NO_INSTRUCTIONS] * len(Unit), np.zeros((plan.cores.size, len(Unit)), np.int64)
    commands = {Unit.LOAD: plan.loads, Unit.STORE: plan.stores, plan.unit: plan.computes}
    for unit, one in commands.items():
        one.words[:, get_word_offsets(one.mnemonic)["layer"]] = layer
        which = np.zeros(one.words.shape[0], np.int64)
        units[unit] = UnitInstructions((one.mnemonic,), which, one.words)
        first[:, unit] = one.ends[plan.cores]
    return InstructionSequence(items, begins, tuple(units), first, (SCRATCHPAD_BASE, plan.end))


def make_simulation_input(plan: LayerPlan | InstructionSequence) -> SimulationInput:
    """Convert a plan to the arrays of the compiled simulation."""
    from nmpsim.compiler.tiling.compiled.state import SimulationInput

    ordered = order_instructions(plan) if isinstance(plan, LayerPlan) else plan
    loads, stores, macs, vectors = (one.words for one in ordered.units)
    mac_kinds, vector_kinds = (
        np.array([KINDS[str(BY_MNEMONIC[name].descriptor)] for name in one.mnemonics], np.int64)[
            one.which
        ]
        for one in ordered.units[Unit.MAC :]
    )
    return SimulationInput(
        ordered.items,
        ordered.begins,
        loads,
        stores,
        macs,
        vectors,
        mac_kinds,
        vector_kinds,
        ordered.first,
    )


@functools.cache
def _announce() -> None:
    """Report that the simulation is being compiled, which takes seconds, if it is not cached."""
    from nmpsim.compiler.tiling.compiled.entries import simulate_plan

    if not simulate_plan.is_cached():
        print_compile_notice(logging.INFO)


def simulate(
    plan: LayerPlan | InstructionSequence, memory: DramModel, limit: int = NEVER
) -> LayerCostEstimate | None:
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
    nbytes = _count_bytes("nmp.load", work.loads) + _count_bytes("nmp.store", work.stores)
    cores = int(np.count_nonzero(np.diff(work.begins)))
    return LayerCostEstimate(cycles, compute, busy, grants, bursts, row_misses, nbytes, cores)


def simulate_fully(plan: LayerPlan | InstructionSequence, memory: DramModel) -> LayerCostEstimate:
    """Simulate a plan to its end and return its cost."""
    estimate = simulate(plan, memory)
    assert estimate is not None
    return estimate


def _count_bytes(mnemonic: str, words: Integers) -> int:
    offsets = get_word_offsets(mnemonic)
    return int(words[:, [offsets[name] for name in _BOX]].prod(axis=1).sum())
