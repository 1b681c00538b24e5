"""The current position of a run: layer, next core, next instruction, progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import attrs
import numpy as np

from nmpsim.arrays import Array
from nmpsim.bundle.metadata import ProgramStep
from nmpsim.core.state import CoreStatus
from nmpsim.debugger.breakpoints import BreakpointHit
from nmpsim.debugger.edits import Edit
from nmpsim.debugger.execution import UNLIMITED, ReversibleExecution, RunLog
from nmpsim.debugger.hazards import HazardLog
from nmpsim.debugger.work_log import CriticalPathLog, WorkLog
from nmpsim.debuginfo.source_text import read_source_line
from nmpsim.isa.assembly import disassemble_word
from nmpsim.memory.address_map import read_word

Log = TypeVar("Log", bound=RunLog)
Reason = Literal["start", "step", "breakpoint", "trap", "end", "begin", "interrupted"]
LayerOutputs = Mapping[int, Array]
_LINES = ".debug_line"
"""Section with the line table of an ELF program."""


@attrs.frozen
class RunLocation:
    """Location of a stopped run: layer, cycle, position and next instruction."""

    position: int
    cycle: int
    layer: int | None
    """Index of the layer that is being computed; None at the end."""
    layer_name: str
    layer_display_name: str
    line: int
    """Line of the layer in the LIR; 0 if there is none."""
    placement: str
    layers_done: int
    layers: int
    core: int | None
    """Core that executes next; None between segments."""
    pc: int | None
    instruction: str
    source: str = ""
    """Function and source line of the instruction; empty if the program has no source lines."""
    source_text: str = ""
    """Text of the source line; empty if the file cannot be read."""


@attrs.frozen
class StopResult:
    """Result of a step or a run: the reason and the location of the stop."""

    reason: Reason
    location: RunLocation
    hits: tuple[BreakpointHit, ...] = ()
    message: str = ""
    """Message of a trap, or what could not be done."""
    core: int | None = None
    """Core of the last instruction of a step by instructions."""


class PositionedRun(ReversibleExecution):
    """Reversible run with the current location and the outputs of all finished layers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.work: WorkLog | None = None
        """Log of work; None unless it is requested."""
        self._forget_results()

    def _forget_results(self) -> None:
        """Forget everything that is known of the run, because it changes."""
        self.layer_ends: dict[int, int] = {}
        """Layer -> position at which it ended, for all layers that have run."""
        self._outputs: dict[int, Array] = {}
        """Layer -> its output when it was done last."""
        self.paths = CriticalPathLog(self)
        self.hazards: HazardLog | None = None
        """Log of hazards; None until they are requested."""
        self.logs = [self.paths]
        if self.work is not None:
            self.work = self.add_log(WorkLog())

    def add_log(self, log: Log) -> Log:
        """Add a log that processes each move of the run, and return the log."""
        self.logs.append(log)
        return log

    def apply_edits(self, edits: Sequence[Edit]) -> None:
        """Replace the list of edits and restart the run.

        Raises :class:`~nmpsim.diagnostics.UserError` DEBUG002 if an edit lies outside of memory.
        """
        super().apply_edits(edits)
        self._forget_results()

    @property
    def layer_outputs(self) -> LayerOutputs:
        """Output of each layer that has run, by index, with the edits up to this position.

        Layers may share memory: a byte belongs to the layer that was done last there.
        """
        found = dict(self._outputs)
        order = sorted(found, key=self.layer_ends.__getitem__, reverse=True)
        for edit in self.edits:
            for address, now in edit.pieces if edit.position <= self.position else ():
                for index in order:
                    start = address - self.layers[index].output.address
                    is_inside = 0 <= start < found[index].nbytes
                    if self.layer_ends[index] < edit.position and is_inside:
                        found[index] = found[index].copy()
                        there = found[index].reshape(-1).view(np.uint8)[start : start + len(now)]
                        there[:] = np.frombuffer(now, np.uint8)[: len(there)]
                        break
        return found

    def explain_missing_output(self, index: int) -> str:
        """Return why the output of a layer is not known."""
        is_kept = self.is_layer_done(index) and self.layers[index].in_scratchpads
        return "keeps its output in scratchpads" if is_kept else "has not run yet"

    def find_next_core(self) -> int | None:
        """Return the core that executes the next instruction, or None if all cores have stopped."""
        cores = self.machine.cores
        running = np.flatnonzero(cores.status == CoreStatus.RUNNING)
        if not self.is_started or running.size == 0:
            return None
        return int(running[np.argmin(cores.clock[running])])

    def get_layer_order(self) -> list[int]:
        """Return the indices of all layers in order of execution."""
        return [index for step in self.bundle.metadata.steps for index in step.layers]

    def list_layers_before(self, index: int | None, *, is_included: bool = False) -> list[int]:
        """Return the indices of the layers executed before a layer, or of all layers for None."""
        order = self.get_layer_order()
        if index not in order:
            return order
        return order[: order.index(index) + is_included]

    def find_step(self, index: int) -> ProgramStep:
        """Return the program step that computes a layer."""
        return next(step for step in self.bundle.metadata.steps if index in step.layers)

    def get_layer_start(self, index: int) -> int:
        """Return the position at which a layer begins; all earlier layers must have run."""
        return max((self.layer_ends[one] for one in self.list_layers_before(index)), default=0)

    def is_layer_done(self, index: int) -> bool:
        """Return whether a layer is done at the current position."""
        return self.layer_ends.get(index, UNLIMITED) <= self.position

    def find_current_layer(self) -> int | None:
        """Return the index of the first layer that is not done yet, or None at the end."""
        return next((one for one in self.get_layer_order() if not self.is_layer_done(one)), None)

    def get_location(self) -> RunLocation:
        """Return the current location of the run."""
        index, core = self.find_current_layer(), self.find_next_core()
        layer = None if index is None else self.layers[index]
        pc = None if core is None else int(self.machine.cores[core].pc)
        source = self.source_map.find_line(pc) if pc and self.has_source_lines else None
        return RunLocation(
            position=self.position,
            cycle=self.cycle,
            layer=index,
            layer_name=layer.name if layer else "",
            layer_display_name=layer.display_name if layer else "",
            line=layer.line if layer else 0,
            placement=layer.placement if layer else "",
            layers_done=sum(map(self.is_layer_done, self.layer_ends)),
            layers=len(self.layers),
            core=core,
            pc=pc,
            instruction=self.disassemble_at(core, pc) if core is not None and pc else "",
            source=self.source_map.describe(pc) if pc and self.has_source_lines else "",
            source_text=read_source_line(source, self.bundle.path).strip() if source else "",
        )

    @property
    def has_source_lines(self) -> bool:
        """Whether the program has a line table."""
        return _LINES in self.bundle.debug

    def disassemble_at(self, core: int, pc: int) -> str:
        """Disassemble the instruction at an address; return "" for an invalid address."""
        word = read_word(self.machine, core, pc)
        return "" if word is None else disassemble_word(word, pc, {})

    def make_stop(self, reason: Reason, **more: Any) -> StopResult:
        """Return a stop result with a reason and the current location."""
        return StopResult(reason, self.get_location(), **more)
