"""Check a program for numerical problems without running it."""

from nmpsim.analysis.lint.document import make_lint_document
from nmpsim.analysis.lint.findings import SEVERITIES, LocatedFinding
from nmpsim.analysis.lint.load import ReferenceFiles, load_subject
from nmpsim.analysis.lint.rules import RULES, LintReport, run_rules
from nmpsim.analysis.lint.subject import LintSubject

__all__ = [
    "RULES",
    "SEVERITIES",
    "LocatedFinding",
    "LintReport",
    "LintSubject",
    "ReferenceFiles",
    "make_lint_document",
    "load_subject",
    "run_rules",
]
