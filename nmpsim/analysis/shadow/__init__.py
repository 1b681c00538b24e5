"""Attribution of each layer's error to its sources, by an evaluation in real arithmetic.

``compare`` defines the parts of an error and compares a run; ``run`` restores the operands of each
layer; ``constants`` and ``matching`` find the float values of quantized constants.
"""

from nmpsim.analysis.shadow.compare import RecordedResults, RunLayer, compare_run
from nmpsim.analysis.shadow.run import ShadowEvaluation, match_float_weights

__all__ = [
    "RecordedResults",
    "RunLayer",
    "ShadowEvaluation",
    "compare_run",
    "match_float_weights",
]
