"""What the units of a run did, cycle by cycle, for tools that draw or replay it.

``timeline`` writes a trace for Perfetto and Chrome, ``dram`` the addresses for a DRAM simulator;
both are listeners of :mod:`nmpsim.core.work` and write while the run goes on.
"""

from nmpsim.analysis.trace.dram import DramTrace
from nmpsim.analysis.trace.selection import Selection, selection
from nmpsim.analysis.trace.timeline import TimelineTrace

__all__ = ["DramTrace", "Selection", "TimelineTrace", "selection"]
