"""The hazard check: whether an output depends on the time of a transfer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nmpsim.arrays import Arrays
from nmpsim.bundle import Bundle
from nmpsim.checking.expectations import (
    make_failed_layer,
)
from nmpsim.checking.results import CheckResult, FailedLayer
from nmpsim.config import DeviceConfig
from nmpsim.core.limits import NO_LIMITS, TimeBudget, TimeLimitError
from nmpsim.core.run import Progress, ProgressCallback
from nmpsim.debugger.execution import ReversibleExecution
from nmpsim.debugger.hazards import Hazard, HazardLog
from nmpsim.report.data import LayerReport

MAX_HAZARDS = 1000
"""Number of hazards after which a search ends."""


def find_hazards(
    bundle: Bundle,
    inputs: Arrays,
    config: DeviceConfig,
    progress: ProgressCallback | None = None,
    max_memory: int | None = None,
    budget: TimeBudget | None = None,
    max_found: int = MAX_HAZARDS,
) -> HazardLog:
    """Run a program instruction by instruction, and return a log of the hazards found.

    Parameters
    ----------
    bundle, inputs, config
        The program, its inputs and its device.
    progress
        Called after each layer.
    max_memory
        Memory limit in bytes.
    budget
        Time limit.
    max_found
        Number of hazards after which the search ends.

    Raises
    ------
    UserError
        BUN004, INPUT001, INPUT002 or MEM001; LIMIT002 (``TimeLimitError``) if the time is over.
    """
    execution = ReversibleExecution(bundle, inputs, config, max_memory=max_memory)
    hazards, layers, done = HazardLog(execution), bundle.metadata.layers, 0
    with execution.limit_time(budget or TimeBudget(NO_LIMITS)):
        while len(hazards.found) < max_found:
            pause = execution.advance()
            hazards.add(pause)
            done += len(pause.layers)
            if progress is not None and pause.layers:
                progress(
                    Progress("layer", done, len(layers), layers[pause.layers[-1]].display_name)
                )
            if pause.is_final:
                break
    return hazards


def make_unfinished_check(error: TimeLimitError) -> CheckResult:
    """Return the failed check of a hazard search that exceeded its time limit."""
    return CheckResult("hazards", "wrong", error.diagnostics[0].message)


def check_hazards(
    hazards: Sequence[Hazard], layers: Sequence[LayerReport], note: str = ""
) -> CheckResult:
    """Check that a run has no hazards.

    ``note`` says which accesses could not be checked, and ends the message.
    """
    note = f"; {note}" if note else ""
    if not hazards:
        return CheckResult("hazards", "passed", f"none{note}")
    more = "or more " if len(hazards) >= MAX_HAZARDS else ""
    count = "1 hazard" if len(hazards) == 1 else f"{len(hazards):,} {more}hazards, the first"
    message = f"{count}: {_placed(hazards[0], layers)}{note}"
    return CheckResult("hazards", "wrong", message, _culprits(hazards, layers))


def _placed(hazard: Hazard, layers: Sequence[LayerReport]) -> str:
    if hazard.layer is None:
        return hazard.description
    return f"layer {layers[hazard.layer].display_name}: {hazard.description}"


def _culprits(found: Sequence[Hazard], layers: Sequence[LayerReport]) -> tuple[FailedLayer, ...]:
    """Return each layer's first hazard, and how many more it has."""
    placed = [(one.layer, one) for one in found if one.layer is not None]
    first, counts = dict(reversed(placed)), Counter(index for index, _ in placed)
    return tuple(
        make_failed_layer(
            layers[index], first[index].description + (f"; {count - 1:,} more" if count > 1 else "")
        )
        for index, count in sorted(counts.items())
    )
