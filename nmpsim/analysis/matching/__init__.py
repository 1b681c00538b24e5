"""Matching of the tensors of a run or program with the tensors of a reference.

``tensors`` defines tensors and ``result`` pairs of them; ``match`` matches them by ``names``, by
order (``alignment``) and by values (``similarity``). ``layout`` infers memory layouts, and
``chains`` finds folded operations.
"""

from nmpsim.analysis.matching.layout import AXIS_ORDERS, LAYOUTS, find_axis_order, permute_shape
from nmpsim.analysis.matching.match import (
    match_layers,
    match_tensors,
    suggest_mapping,
)
from nmpsim.analysis.matching.result import TensorMatching, TensorPair
from nmpsim.analysis.matching.similarity import is_cube
from nmpsim.analysis.matching.tensors import (
    KnownValues,
    StoredTensor,
    add_program_facts,
    convert_unsigned,
    find_partial_layers,
    list_layer_tensors,
    list_saved_tensors,
    make_stored_tensor,
)

__all__ = [
    "AXIS_ORDERS",
    "LAYOUTS",
    "KnownValues",
    "StoredTensor",
    "TensorMatching",
    "TensorPair",
    "add_program_facts",
    "convert_unsigned",
    "find_axis_order",
    "find_partial_layers",
    "is_cube",
    "list_layer_tensors",
    "list_saved_tensors",
    "make_stored_tensor",
    "match_layers",
    "match_tensors",
    "permute_shape",
    "suggest_mapping",
]
