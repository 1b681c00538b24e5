"""Compiled functions that Python calls; modules to compile are imported when needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nmpsim.kernels.entries import CompiledEntry


def _schedule() -> Callable[..., Any]:
    from nmpsim.compiler.tiling.compiled.schedule import schedule_instructions

    return schedule_instructions


def _simulated() -> Callable[..., Any]:
    from nmpsim.compiler.tiling.compiled.events import simulate_plan
    from nmpsim.memory.pure import register_pure_functions

    register_pure_functions()
    return simulate_plan


schedule_instructions = CompiledEntry("schedule.schedule", _schedule)
"""See :func:`nmpsim.compiler.tiling.compiled.schedule_instructions.schedule_instructions`."""
simulate_plan = CompiledEntry("events.simulated", _simulated)
"""See :func:`nmpsim.compiler.tiling.compiled.events.simulate_plan`."""
