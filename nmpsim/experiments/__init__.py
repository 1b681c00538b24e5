"""Many runs of a program: over devices (sweep), over a data set (evaluate); in parallel."""

from nmpsim.experiments.sweep import SweepResult, sweep

__all__ = ["SweepResult", "sweep"]
