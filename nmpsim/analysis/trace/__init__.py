"""Traces of a run for other tools, written during the run.

``timeline`` writes a trace for Perfetto and Chrome, ``dram`` a trace for a DRAM simulator.
"""

from nmpsim.analysis.trace.dram import DramTrace
from nmpsim.analysis.trace.selection import Selection, parse_selection
from nmpsim.analysis.trace.timeline import TimelineTrace

__all__ = [
    "DramTrace",
    "Selection",
    "TimelineTrace",
    "parse_selection",
]
