"""A failed case as a core file: ``nmpsim debug`` opens it where the case went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from nmpsim.bundle import Bundle
from nmpsim.checking.hazards import find_hazards
from nmpsim.checking.results import CaseResult, CoreFile
from nmpsim.checking.run import Arrays
from nmpsim.config import DeviceConfig
from nmpsim.core.inputs import checked_inputs
from nmpsim.core.limits import NO_LIMITS, TimeBudget
from nmpsim.debugger import Debugger
from nmpsim.debugger.corefile import Core, save_core
from nmpsim.debugger.hazards import Hazard
from nmpsim.diagnostics import UserError

ENGINE = "compiled"


def with_core_file(
    result: CaseResult,
    path: Path,
    bundle: Bundle,
    inputs: Arrays,
    config: DeviceConfig,
    hazards: Sequence[Hazard] = (),
    budget: TimeBudget | None = None,
    is_violation: bool = False,
) -> CaseResult:
    """The result of a case that failed, with a core file at ``path``.

    It stands at the trap, at the first layer that is wrong, at the first hazard, or at the layer
    that is most over budget. If the run broke the contract (``is_violation``) and ``hazards`` were
    not looked for, the first one is: the debugger does not stop at violations by itself. What
    keeps it from being written, also that ``budget`` has no time left, is one of the result's
    errors.
    """
    try:
        if is_violation and not hazards:
            hazards = find_hazards(bundle, inputs, config, budget=budget, max_found=1)
        debugger = Debugger(bundle, inputs, config=config, engine=ENGINE)
        with debugger.execution.within(budget or TimeBudget(NO_LIMITS)):
            position, stands = _place(result, debugger, hazards)
        values = checked_inputs(bundle.metadata, inputs)
        save_core(path, Core(bytes(bundle.file), values, config, ENGINE, position))
    except UserError as error:
        return attrs.evolve(result, errors=(*result.errors, *error.diagnostics))
    return attrs.evolve(result, core=CoreFile(str(path), stands))


def _place(
    result: CaseResult, debugger: Debugger, hazards: Sequence[Hazard]
) -> tuple[int | None, str]:
    """Position, None for as far as the run comes, and that in words."""
    wrong = [check.name for check in result.failed if check.status == "wrong"]
    if hazards and set(wrong) <= {"trap", "hazards"}:  # a race is a violation of the contract, too
        return hazards[0].position, "at the first hazard"
    if "trap" in wrong:
        return None, "at the trap"
    index = _layer(result)
    if index is None:
        return None, "at the end"
    stopped = debugger.reach_layer(index)
    return stopped.location.position, f"after layer {result.layers[index].name}"


def _layer(result: CaseResult) -> int | None:
    """The first layer that is wrong; if none is, the one that is most over budget."""
    failed = [check for check in result.failed if check.culprits]
    wrong = [check.culprits[0].index for check in failed if check.status == "wrong"]
    if wrong:
        return min(wrong)
    return failed[0].culprits[0].index if failed else None
