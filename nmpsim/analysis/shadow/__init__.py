"""A second, exact evaluation to compare the device's with: where each layer's error comes from.

Read ``errors`` first: it says what the parts of an error are. ``recording`` finds what every
operand held, ``layers`` evaluates one layer, ``compare`` a run; ``matching`` finds the float values
of the quantized constants.
"""

from nmpsim.analysis.shadow.compare import RecordedRun, RunLayer, compare_run
from nmpsim.analysis.shadow.run import ShadowEvaluation, float_weights

__all__ = ["RecordedRun", "RunLayer", "ShadowEvaluation", "compare_run", "float_weights"]
