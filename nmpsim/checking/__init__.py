"""Checks of programs for CI: suites of cases with expectations, budgets and baselines."""

from nmpsim.checking.case import CaseWork, ExpectedArrays, check_case
from nmpsim.checking.results import (
    CaseResult,
    Check,
    FailedLayer,
    LayerOutcome,
    get_exit_code,
    make_check_document,
)
from nmpsim.checking.suite import (
    Budget,
    Case,
    Expect,
    InputFile,
    SaturationLimit,
    Suite,
)
from nmpsim.checking.suite_file import read_suite
from nmpsim.checking.suite_run import check_cases

__all__ = [
    "Budget",
    "Case",
    "CaseResult",
    "CaseWork",
    "Check",
    "FailedLayer",
    "Expect",
    "ExpectedArrays",
    "InputFile",
    "LayerOutcome",
    "SaturationLimit",
    "Suite",
    "check_case",
    "check_cases",
    "make_check_document",
    "get_exit_code",
    "read_suite",
]
