"""Traces of a run for other tools, written during the run.

``timeline`` writes a trace for Perfetto and Chrome, ``dram`` a trace for a DRAM simulator, and
``commits`` a log of executed instructions.
"""

from nmpsim.analysis.trace.commits import CommitLog
from nmpsim.analysis.trace.dram import DramTrace
from nmpsim.analysis.trace.selection import Selection, parse_selection
from nmpsim.analysis.trace.timeline import TimelineTrace

__all__ = [
    "CommitLog",
    "DramTrace",
    "Selection",
    "TimelineTrace",
    "parse_selection",
]
