"""Compare two runs layer by layer, in units of the last place.

``tensors`` defines tensors and pairs them, ``compare`` compares them; ``glow_folder`` and
``glow_console`` read the output of Glow's instrumentation; ``reports`` compares reports.
"""

from nmpsim.analysis.diff.compare import (
    QuantizationParameters,
    RunDifference,
    TensorDifference,
    compare_runs,
)
from nmpsim.analysis.diff.document import report_document, run_document
from nmpsim.analysis.diff.glow_console import console_tensors, is_console_text
from nmpsim.analysis.diff.glow_folder import folder_tensors
from nmpsim.analysis.diff.reports import Change, ReportDifference, compare_reports
from nmpsim.analysis.diff.tensors import LAYOUTS, Tensor, saved_tensors

__all__ = [
    "LAYOUTS",
    "Change",
    "QuantizationParameters",
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
