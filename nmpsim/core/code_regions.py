"""Code regions, transitions between them, and counts of executions, for both engines.

Each word of the code has a *region*: a positive number for a function, with calls and returns as
regions of their own. Engines count the executions of each word, and log an instruction whose region
differs from the region of the core's previous instruction. Without regions nothing is logged.

The functions are plain Python on arrays and integers; compiled code calls them, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.state import Int, Machine

MAX_TURNS_PER_CALL = 1 << 8
"""Turns of one call of the compiled engine's inner loop, each with at most as many steps."""
MIN_STEPS = 1 << 6
"""Least number of steps of a turn for which the transition log must have space."""


def begin_instruction(m: Machine, core: Int, pc: Int, cycle: Int, retired: Int) -> None:
    """Log that a core begins the instruction at ``pc`` if its code region is another one.

    ``retired`` is the number of instructions that the core has executed. Code outside of all
    regions has region 0.
    """
    word = (pc - m.shared[0]["code_base"]) >> 2
    region = m.code_regions[word] if 0 <= word < m.code_regions.size else np.int64(0)
    if region != m.cores[core]["region"]:
        m.cores[core]["region"] = region
        entry = m.transitions[m.shared[0]["transitions"]]
        entry["core"], entry["pc"], entry["cycle"], entry["retired"] = core, pc, cycle, retired
        m.shared[0]["transitions"] += 1


def count_execution(m: Machine, pc: Int) -> None:
    """Count an execution of the instruction at ``pc``, unless it is outside of all regions."""
    word = (pc - m.shared[0]["code_base"]) >> 2
    if 0 <= word < m.execution_counts.size:
        m.execution_counts[word] += 1


def count_steps_with_space(m: Machine) -> Any:
    """Return the number of steps of a turn for which the transition log has space."""
    left = m.transitions.size - m.shared[0]["transitions"]
    return left // (MAX_TURNS_PER_CALL + 1) - MIN_STEPS
