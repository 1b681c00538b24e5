"""Attribution of each layer's error to its sources, by an evaluation in real arithmetic.

``compare`` defines the parts of an error; ``evaluate`` evaluates the layers of recorded runs;
``constants`` and ``matching`` find the float values of quantized constants.
"""

from nmpsim.analysis.shadow.compare import compare_run
from nmpsim.analysis.shadow.evaluate import RecordedResults, RunEvaluator, RunLayer
from nmpsim.analysis.shadow.run import ShadowEvaluation, match_float_weights

__all__ = [
    "RecordedResults",
    "RunEvaluator",
    "RunLayer",
    "ShadowEvaluation",
    "compare_run",
    "match_float_weights",
]
