"""Compare two runs layer by layer, in units of the last place.

``compare`` compares the tensors that ``nmpsim.analysis.matching`` matches; ``glow_folder`` and
``glow_console`` read the output of Glow's instrumentation; ``reports`` compares reports.
"""

from nmpsim.analysis.diff.compare import (
    QuantizationParameters,
    RunDifference,
    TensorDifference,
    compare_runs,
)
from nmpsim.analysis.diff.document import ReportDifferenceDocument, make_run_document
from nmpsim.analysis.diff.glow_console import is_console_text, read_console_tensors
from nmpsim.analysis.diff.glow_folder import read_folder_tensors
from nmpsim.analysis.diff.reports import ReportChange, ReportDifference, compare_reports
from nmpsim.analysis.matching import StoredTensor, list_saved_tensors

__all__ = [
    "ReportChange",
    "QuantizationParameters",
    "ReportDifference",
    "RunDifference",
    "StoredTensor",
    "TensorDifference",
    "compare_reports",
    "compare_runs",
    "read_console_tensors",
    "read_folder_tensors",
    "is_console_text",
    "ReportDifferenceDocument",
    "make_run_document",
    "list_saved_tensors",
]
