"""Many runs of a program: over devices (sweep), over a data set (evaluate); in parallel."""

from nmpsim.experiments.accuracy import evaluate, write_confusion
from nmpsim.experiments.accuracy_result import Evaluation, evaluation_json
from nmpsim.experiments.grid import Grid, read_grid
from nmpsim.experiments.program import SweptProgram, load_swept
from nmpsim.experiments.samples import Samples
from nmpsim.experiments.sweeping import SweepResult, sweep, sweep_program

__all__ = [
    "Evaluation",
    "Grid",
    "Samples",
    "SweepResult",
    "SweptProgram",
    "evaluate",
    "evaluation_json",
    "load_swept",
    "read_grid",
    "sweep",
    "sweep_program",
    "write_confusion",
]
