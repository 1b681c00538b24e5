"""Where a run stands: which layer, which core goes on, what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nmpsim.bundle.metadata import Layer
from nmpsim.bundle.read import Bundle
from nmpsim.core.state import Status
from nmpsim.debugger.execution import FOREVER, Execution
from nmpsim.debugger.known import Known, Outputs, outputs_at
from nmpsim.debugger.pathlog import PathLog
from nmpsim.debugger.records import Location, Reason, Stopped
from nmpsim.debugger.worklog import WorkLog
from nmpsim.isa.assembly import disassemble_word
from nmpsim.memory.address_map import word_at


class RunPosition:
    """A run that stands still."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self._known = Known(execution.edits, PathLog(execution))

    @property
    def known(self) -> Known:
        """What is known of the run that the edits make now."""
        if self._known.edits is not self.execution.edits:
            work = None if self._known.work is None else WorkLog()
            paths = PathLog(self.execution)
            self._known = Known(self.execution.edits, paths, work=work)
        return self._known

    @property
    def ends(self) -> Mapping[int, int]:
        """Position at which each layer was done, as far as the run has come once."""
        return self.known.ends

    @property
    def outputs(self) -> Outputs:
        """Output of each layer as it was left, as far as the run has come once."""
        return outputs_at(self.known, self.layers, self.execution.position)

    @property
    def bundle(self) -> Bundle:
        """The program."""
        return self.execution.bundle

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The program's layers."""
        return self.execution.layers

    def next_core(self) -> int | None:
        """The core that goes on next, unless the DRAM is earlier; None if all have stopped."""
        cores = self.execution.machine.cores
        running = np.flatnonzero(cores.status == Status.RUNNING)
        if not self.execution.is_started or running.size == 0:
            return None
        return int(running[np.argmin(cores.clock[running])])

    def layer_order(self) -> list[int]:
        """Layers in the order in which they are computed."""
        return [index for step in self.bundle.metadata.steps for index in step.layers]

    def start_of(self, index: int) -> int:
        """Position where a layer begins; those before it must have run."""
        order = self.layer_order()
        return max((self.ends[one] for one in order[: order.index(index)]), default=0)

    def current_layer(self) -> int | None:
        """The first layer that is not done yet; None at the end."""
        position = self.execution.position
        for index in self.layer_order():
            if self.ends.get(index, FOREVER) > position:
                return index
        return None

    def location(self) -> Location:
        """Where the run is."""
        index, core = self.current_layer(), self.next_core()
        layer = None if index is None else self.layers[index]
        pc = None if core is None else int(self.execution.machine.cores[core].pc)
        position = self.execution.position
        return Location(
            position=position,
            cycle=self.execution.cycle,
            layer=index,
            layer_name=layer.name if layer else "",
            layer_display_name=layer.display_name if layer else "",
            line=layer.line if layer else 0,
            placement=layer.placement if layer else "",
            layers_done=sum(end <= position for end in self.ends.values()),
            layers=len(self.layers),
            core=core,
            pc=pc,
            instruction=self.instruction_at(core, pc) if core is not None and pc else "",
        )

    def instruction_at(self, core: int, pc: int) -> str:
        """The instruction at an address, as a core sees it; empty if there is none."""
        word = word_at(self.execution.machine, core, pc)
        return "" if word is None else disassemble_word(word, pc, {})

    def stopped(self, reason: Reason, **more: Any) -> Stopped:
        """An answer that says where the run is now."""
        return Stopped(reason, self.location(), **more)
