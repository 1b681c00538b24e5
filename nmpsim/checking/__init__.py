"""Checks of programs for CI: suites of cases with expectations, budgets and baselines."""

from nmpsim.checking.case import CaseWork, ExpectedArrays, check_case
from nmpsim.checking.results import (
    CaseResult,
    CheckResult,
    FailedLayer,
    LayerOutcome,
    get_exit_code,
    make_check_document,
)
from nmpsim.checking.suite import Budget, Expectations, InputFile, SaturationLimit, Suite, SuiteCase
from nmpsim.checking.suite_file import read_suite
from nmpsim.checking.suite_run import check_cases

__all__ = [
    "Budget",
    "SuiteCase",
    "CaseResult",
    "CaseWork",
    "CheckResult",
    "FailedLayer",
    "Expectations",
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
