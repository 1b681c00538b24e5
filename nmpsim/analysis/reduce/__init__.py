"""The smallest part of a program that still fails.

``failures`` says what a failure is, ``extract`` copies layers of a module, ``instruction`` makes a
program of the one instruction that trapped, ``removal`` leaves out instructions, ``search`` tries
parts from the smallest up, ``repro`` writes what was found so that it checks itself.
"""

from nmpsim.analysis.reduce.failures import (
    Differs,
    Failure,
    Saturates,
    Traps,
    Violates,
    first_difference,
    with_last_results,
)
from nmpsim.analysis.reduce.repro import write_repro
from nmpsim.analysis.reduce.search import Reduced, reduce

__all__ = [
    "Differs",
    "Failure",
    "Reduced",
    "Saturates",
    "Traps",
    "Violates",
    "first_difference",
    "reduce",
    "with_last_results",
    "write_repro",
]
