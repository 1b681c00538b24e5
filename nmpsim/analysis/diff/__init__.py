"""Where two runs part: by layer, in units of the last place.

``tensors`` says what is compared; ``glow_folder`` and ``glow_console`` read what Glow's own
instrumentation writes; ``pairs`` matches, ``compare`` compares; ``reports`` does both for reports.
"""

from nmpsim.analysis.diff.compare import (
    Parameters,
    RunDifference,
    TensorDifference,
    compare_runs,
)
from nmpsim.analysis.diff.document import report_document, run_document
from nmpsim.analysis.diff.glow_console import console_tensors, is_console_text
from nmpsim.analysis.diff.glow_folder import folder_tensors
from nmpsim.analysis.diff.pairs import LAYOUTS
from nmpsim.analysis.diff.reports import Change, ReportDifference, compare_reports
from nmpsim.analysis.diff.tensors import Tensor, saved_tensors

__all__ = [
    "LAYOUTS",
    "Change",
    "Parameters",
    "ReportDifference",
    "RunDifference",
    "Tensor",
    "TensorDifference",
    "compare_reports",
    "compare_runs",
    "console_tensors",
    "folder_tensors",
    "is_console_text",
    "report_document",
    "run_document",
    "saved_tensors",
]
