"""Panes of the screen, one in each file."""

from nmpsim.debugger.commands.results import CommandResult
from nmpsim.tui.line_pane import LinePane
from nmpsim.tui.panes.layers import LayersPane
from nmpsim.tui.panes.log import LogPane
from nmpsim.tui.panes.memory import MemoryPane
from nmpsim.tui.panes.program import ProgramPane
from nmpsim.tui.panes.registers import RegistersPane
from nmpsim.tui.panes.saturation import SaturationPane
from nmpsim.tui.panes.source import SourcePane
from nmpsim.tui.panes.tensor import TensorPane
from nmpsim.tui.panes.timeline import TimelinePane

PANES: tuple[tuple[str, type[LinePane]], ...] = (
    ("Layers", LayersPane),
    ("Source", SourcePane),
    ("Tensor", TensorPane),
    ("Satur", SaturationPane),
    ("Code", ProgramPane),
    ("Regs", RegistersPane),
    ("Memory", MemoryPane),
    ("Time", TimelinePane),
    ("Log", LogPane),
)
"""Short name and class, in the order of the tabs and of the keys 1, 2, ..."""
TENSOR, LOG = ([name for name, _ in PANES].index(name) for name in ("Tensor", "Log"))


def find_answer_pane(answer: CommandResult, columns: int) -> int | None:
    """Return the index of the pane for a long answer, or None if the status line is sufficient.

    The status line shows why a run has stopped unless that is longer than the screen is wide.
    """
    if "values" in answer.data:
        return TENSOR
    if "reason" in answer.data:
        return LOG if answer.lines and len(answer.lines[0]) > columns else None
    return LOG if len(answer.lines) > 1 else None
