"""What will go wrong with a program, before it does."""

from nmpsim.analysis.lint.document import lint_json
from nmpsim.analysis.lint.findings import SEVERITIES, Finding, Rule, Severity
from nmpsim.analysis.lint.load import References, load_subject
from nmpsim.analysis.lint.rules import RULES, LintReport, run_rules
from nmpsim.analysis.lint.subject import Subject

__all__ = [
    "RULES",
    "SEVERITIES",
    "Finding",
    "LintReport",
    "References",
    "Rule",
    "Severity",
    "Subject",
    "lint_json",
    "load_subject",
    "run_rules",
]
