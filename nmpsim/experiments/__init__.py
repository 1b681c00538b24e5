"""Many runs of a program: on many devices (sweep) or over a data set (evaluate), in parallel."""

from nmpsim.experiments.accuracy import evaluate, write_confusion
from nmpsim.experiments.accuracy_result import Evaluation, make_evaluation_document
from nmpsim.experiments.device_sweep import SweepResult, load_sweep_program, sweep
from nmpsim.experiments.grid import read_grid

__all__ = [
    "Evaluation",
    "SweepResult",
    "evaluate",
    "make_evaluation_document",
    "load_sweep_program",
    "read_grid",
    "sweep",
    "write_confusion",
]
