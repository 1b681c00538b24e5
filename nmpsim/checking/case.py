"""Checking of one case: run the program, check the run, or write its baseline."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from nmpsim.arrays import Arrays
from nmpsim.bundle import Bundle
from nmpsim.checking.baseline import (
    Baseline,
    ComparedRun,
    check_same_program,
    find_other_version,
    make_baseline,
    read_baseline,
    write_baseline,
)
from nmpsim.checking.budgets import (
    check_area,
    check_cycles,
    check_energy,
    check_memory,
    check_saturation,
    find_device_mismatch,
)
from nmpsim.checking.expectations import (
    check_all_outputs,
    check_end,
    check_layers,
    check_layers_against_baseline,
    check_top1,
)
from nmpsim.checking.hazards import check_hazards, find_hazards, make_unfinished_check
from nmpsim.checking.results import CaseResult, CheckResult, CoreFile
from nmpsim.checking.run import CheckedRun, ProgramCache, list_changed_settings
from nmpsim.checking.suite import Budget, Expectations, SaturationLimit, SuiteCase
from nmpsim.config import DeviceConfig, load_device, make_device_config
from nmpsim.core.inputs import prepare_inputs
from nmpsim.core.limits import TimeBudget, TimeLimitError
from nmpsim.core.run import ProgressCallback
from nmpsim.debugger import Debugger
from nmpsim.debugger.core_dump import CoreDump, write_core_file
from nmpsim.debugger.hazards import Hazard
from nmpsim.diagnostics import Diagnostic, Place, UserError

_SLOW = ("cycles", "trap")
"""Checks whose failure makes a report about another device unnecessary."""


@attrs.frozen(eq=False)
class ExpectedArrays:
    """Expected arrays of a case: outputs and layer outputs, read from its files."""

    outputs: Arrays | None = None
    layers: Arrays | None = None


@attrs.frozen(eq=False)
class CaseWork:
    """Work of checking a suite case: its bundle, arrays and options."""

    case: SuiteCase
    bundle: Bundle
    inputs: Arrays
    expected: ExpectedArrays
    update_baseline: bool = False
    core: Path | None = None
    """Path of a core file that is written if the case fails."""
    max_memory: int | None = None
    """Memory limit in bytes."""
    strict: bool = True
    """Whether violations of the instruction set's contract stop the run."""


def check_case(
    work: CaseWork, progress: ProgressCallback | None = None, cache: ProgramCache | None = None
) -> CaseResult:
    """Run and check a case; errors in the user's input become part of the result.

    Parameters
    ----------
    work
        The case.
    progress
        Called when kernels must be compiled, and after each layer.
    cache
        Cache with the program of the previous case.
    """
    begin = time.perf_counter()
    result = _checked(work, progress, ProgramCache() if cache is None else cache)
    return attrs.evolve(result, seconds=time.perf_counter() - begin)


def _checked(work: CaseWork, progress: ProgressCallback | None, last: ProgramCache) -> CaseResult:
    case = work.case
    before = None
    try:
        if case.baseline is not None and not work.update_baseline:
            before = read_baseline(case.baseline)
        loaded = last.load(
            work.bundle, _device(case, work.bundle), case.limits, work.strict, work.max_memory
        )
        run = loaded.run(work.inputs, progress, case.limits, work.strict)
        result = check_run(case, run, work.expected, before)
        hazards: Sequence[Hazard] = ()
        trap = run.report.trap
        took_too_long = trap is not None and trap.kind == "timeout"
        config = case.limits.apply_to_device(loaded.device.config)
        budget = TimeBudget(case.limits, run.report.host_seconds)
        if case.budget.hazards is not None and (trap is None or trap.kind == "contract"):
            try:
                log = find_hazards(
                    loaded.bundle, work.inputs, config, progress, work.max_memory, budget
                )
                hazards, check = log.found, check_hazards(log.found, run.layers, log.message)
            except TimeLimitError as error:
                check, took_too_long = make_unfinished_check(error), True
            result = attrs.evolve(result, checks=(*result.checks, check))
        if work.core is not None and result.failed_checks and not took_too_long:
            result = _attach_core_file(result, work.core, work, run, config, hazards, budget)
        if work.update_baseline and case.baseline is not None and not result.failed_checks:
            write_baseline(case.baseline, make_baseline(run))
            result = attrs.evolve(result, baseline_written=True)
        return result
    except UserError as error:
        return CaseResult(
            case.name,
            case.lir,
            baseline_version=find_other_version(before),
            errors=error.diagnostics,
        )


def check_run(
    case: SuiteCase, run: CheckedRun, expected: ExpectedArrays, baseline: Baseline | None
) -> CaseResult:
    """Check a run against expectations, budget and baseline.

    Raises
    ------
    UserError
        BASE002 for a baseline of something else; INPUT001, INPUT002, DATA001 or SUITE002 for
        expectations that do not fit the program.
    """
    place = Place(str(case.baseline))
    if baseline is not None:
        check_same_program(baseline, run, place)
    compared = ComparedRun(run, baseline)
    checks = check_end(run.report)
    if run.report.trap is None:
        checks += [*_check_results(compared, case.expect, expected)]
        checks += _check_costs(compared, case.budget)
    errors: tuple[Diagnostic, ...] = ()
    if not any(one.failed and one.name in _SLOW for one in checks):
        errors = find_device_mismatch(compared, case.budget, place)
    if errors:
        checks = [one for one in checks if one.name != "cycles"]
    return CaseResult(
        name=case.name,
        source=case.lir or run.source,
        checks=tuple(checks),
        layers=compared.layers,
        contract=run.report.contract.status,
        cycles=run.report.cycles,
        cycles_before=None if baseline is None else baseline.cycles,
        device_changes=()
        if baseline is None
        else list_changed_settings(baseline.device, run.report.device),
        baseline_version=find_other_version(baseline),
        errors=errors,
    )


def _check_results(
    compared: ComparedRun, expect: Expectations, expected: ExpectedArrays
) -> Iterator[CheckResult]:
    baseline = compared.baseline
    if expected.outputs is not None or baseline is not None:
        yield check_all_outputs(compared, expected.outputs, expect)
    if expected.layers is not None:
        yield check_layers(compared, expected.layers, expect)
    elif baseline is not None and expect.only:
        yield check_layers_against_baseline(compared, expect)
    if expect.top1 is not None:
        yield check_top1(compared, expect.top1)


def _check_costs(compared: ComparedRun, budget: Budget) -> Iterator[CheckResult]:
    baseline = compared.baseline
    if budget.cycles is not None or baseline is not None:
        yield check_cycles(compared, budget)
    limit = budget.saturation or SaturationLimit(None)
    if limit.at_most is not None or baseline is not None:
        yield check_saturation(compared, limit)
    if budget.memory_bytes is not None:
        yield check_memory(compared, budget.memory_bytes)
    if budget.energy_pj is not None:
        yield check_energy(compared, budget.energy_pj)
    if budget.area_um2 is not None:
        yield check_area(compared, budget.area_um2)


def _device(case: SuiteCase, bundle: Bundle) -> DeviceConfig:
    if case.device is not None:
        return load_device(case.device)
    return make_device_config(bundle.metadata.device)


ENGINE = "compiled"


def _attach_core_file(
    result: CaseResult,
    path: Path,
    work: CaseWork,
    run: CheckedRun,
    config: DeviceConfig,
    hazards: Sequence[Hazard],
    budget: TimeBudget,
) -> CaseResult:
    """Write a core file for a failed case; return the result with it.

    The core file is positioned at the trap, at the first wrong layer, at the first hazard, or at
    the layer that is most over budget. If it cannot be written, the reason is one of the result's
    errors. For a violation of the contract without known hazards, the first hazard is searched for,
    because the debugger does not stop at violations.
    """
    bundle, inputs = work.bundle, work.inputs
    try:
        if run.report.contract.violation is not None and not hazards:
            hazards = find_hazards(bundle, inputs, config, budget=budget, max_found=1).found
        wrong = {check.name for check in result.failed_checks if check.status == "wrong"}
        is_safe = wrong.isdisjoint(("trap", "hazards"))
        debugger = Debugger(bundle, inputs, config=config, engine=ENGINE, removes_chains=is_safe)
        bundle = debugger.bundle
        with debugger.limit_time(budget):
            position, description = _place(result, debugger, hazards)
        values = prepare_inputs(bundle, inputs)
        write_core_file(path, CoreDump(bytes(bundle.file), values, config, ENGINE, position))
    except UserError as error:
        return attrs.evolve(result, errors=(*result.errors, *error.diagnostics))
    return attrs.evolve(result, core=CoreFile(str(path), description))


def _place(
    result: CaseResult, debugger: Debugger, hazards: Sequence[Hazard]
) -> tuple[int | None, str]:
    """Return the position for the core file (None for the end of the run), also in words."""
    wrong = [check.name for check in result.failed_checks if check.status == "wrong"]
    if hazards and set(wrong) <= {"trap", "hazards"}:  # a race is a violation of the contract, too
        return hazards[0].position, "at the first hazard"
    if "trap" in wrong:
        return None, "at the trap"
    index = _layer(result)
    if index is None:
        return None, "at the end"
    stopped = debugger.run_through_layer(index)
    return stopped.location.position, f"after layer {result.layers[index].name}"


def _layer(result: CaseResult) -> int | None:
    """Return the first wrong layer, or the one that exceeds its budget most."""
    failed = [check for check in result.failed_checks if check.culprits]
    wrong = [check.culprits[0].index for check in failed if check.status == "wrong"]
    if wrong:
        return min(wrong)
    return failed[0].culprits[0].index if failed else None
