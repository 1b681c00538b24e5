"""The panes of the screen, one a file."""

from nmpsim.debugger.commands.command import CommandResult
from nmpsim.tui.lines import LinePane
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
"""Short name and pane, in the order of the tabs and of the keys 1, 2, ..."""
TENSOR, LOG = ([name for name, _ in PANES].index(name) for name in ("Tensor", "Log"))


def answer_pane(answer: CommandResult, columns: int) -> int | None:
    """The pane in which a long answer is read; None if the line on top is enough.

    That line has room for why a run has stopped unless it is longer than the whole screen.
    """
    if "values" in answer.data:
        return TENSOR
    if "reason" in answer.data:
        return LOG if answer.lines and len(answer.lines[0]) > columns else None
    return LOG if len(answer.lines) > 1 else None
