"""Causes of a wrong layer, found by trying changes of the layer.

``constant_changes``, ``window_changes`` and ``operation_changes`` list the changes by family,
``solved`` computes numbers from the expected result, ``search`` executes the changed layers.
"""

from nmpsim.analysis.hypotheses.change_filter import SearchLimits
from nmpsim.analysis.hypotheses.search import (
    HypothesisResults,
    LayerExplanation,
    search_hypotheses,
)

__all__ = ["HypothesisResults", "LayerExplanation", "SearchLimits", "search_hypotheses"]
