"""nmpsim as an execution target for CI: a suite of programs, expectations, budgets, baselines."""

from nmpsim.checking.case import CaseWork, Expected, check_case
from nmpsim.checking.document import check_json
from nmpsim.checking.results import CaseResult, Check, Culprit, LayerOutcome, exit_code
from nmpsim.checking.running import check_cases
from nmpsim.checking.suite import (
    Budget,
    Case,
    Expect,
    InputFile,
    SaturationLimit,
    Suite,
)
from nmpsim.checking.suite_file import read_suite

__all__ = [
    "Budget",
    "Case",
    "CaseResult",
    "CaseWork",
    "Check",
    "Culprit",
    "Expect",
    "Expected",
    "InputFile",
    "LayerOutcome",
    "SaturationLimit",
    "Suite",
    "check_case",
    "check_cases",
    "check_json",
    "exit_code",
    "read_suite",
]
