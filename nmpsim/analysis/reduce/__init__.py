"""Reduction of a failing program to the smallest part that still fails.

``failures`` defines failures, ``extract`` copies layers of a module, ``crop`` reduces a layer to
one element, ``instruction`` makes a program of one instruction or removes instructions, ``search``
tries parts in order of size, ``repro`` writes the result as a folder that checks itself.
"""

from nmpsim.analysis.reduce.failures import (
    DifferenceFailure,
    Failure,
    SaturationFailure,
    TrapFailure,
    ViolationFailure,
    add_program_outputs,
    find_first_difference,
    match_layer_outputs,
)
from nmpsim.analysis.reduce.repro import write_repro
from nmpsim.analysis.reduce.search import reduce_program

__all__ = [
    "DifferenceFailure",
    "Failure",
    "SaturationFailure",
    "TrapFailure",
    "ViolationFailure",
    "add_program_outputs",
    "find_first_difference",
    "match_layer_outputs",
    "reduce_program",
    "write_repro",
]
