"""A view of one core's record in the machine, and the attribution of its cycles."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.reference.words import to_signed
from nmpsim.core.state import CSR_COLUMN, CoreStatus, CountColumn, CycleCause, Machine
from nmpsim.isa.table import CsrAddress, Unit


class _Integer:
    """Descriptor of a record field that is read and written as a Python integer."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, core: Core, _: type[Core]) -> int:
        return int(core.record[self._name])

    def __set__(self, core: Core, value: int) -> None:
        core.record[self._name] = value


class Core:
    """View of one core's state in the machine; assignments change the machine immediately."""

    clock = _Integer("clock")
    pc = _Integer("pc")
    descriptor = _Integer("descriptor")
    retired = _Integer("retired")
    status = _Integer("status")
    layer = _Integer("layer")
    previous_layer = _Integer("previous_layer")

    def __init__(self, machine: Machine, number: int) -> None:
        self.machine = machine
        self.number = number
        self.record: Any = machine.cores[number]

    def read_register(self, number: int) -> int:
        """Read the signed value of a register."""
        return int(self.record["registers"][number])

    def set_register(self, number: int, value: int) -> None:
        """Set a register to the low 32 bits of ``value``; x0 stays 0."""
        if number != 0:
            self.record["registers"][number] = to_signed(value)

    def read_csr(self, csr: CsrAddress) -> int:
        """Return the stored word of a CSR; for a counter this is the offset set by software."""
        return int(self.record["csr"][CSR_COLUMN[csr]])

    def set_csr(self, csr: CsrAddress, value: int) -> None:
        """Set the stored word of a CSR."""
        self.record["csr"][CSR_COLUMN[csr]] = value

    def wait_for(self, status: CoreStatus, what: int, count: int) -> None:
        """Set the core to waiting for event ``what``, with a waiting status and a count."""
        self.status = status
        self.record["wait"] = (what, count)

    def is_waiting_for(self, status: CoreStatus, what: int) -> bool:
        """Return whether the core waits with ``status`` for event ``what``."""
        return self.status == status and int(self.record["wait"][0]) == what

    @property
    def wait_count(self) -> int:
        """Job number, number of cores or semaphore count that the core waits for."""
        return int(self.record["wait"][1])

    def spend_cycles(self, activity: CountColumn, cause: CycleCause, cycles: int) -> int:
        """Advance the clock, and return the cycles without MAC or vector work, due to ``cause``."""
        idle, end, spent = cycles, self.clock + cycles, self.record["spent"]
        for unit, worked in ((Unit.MAC, CycleCause.MAC), (Unit.VECTOR, CycleCause.VECTOR)):
            # A unit's work has no gap from now on: it was all given before.
            left = int(self.record["unit_free"][unit]) - (end - idle)
            if left > 0:
                busy = min(left, idle)
                spent[worked] += busy
                idle -= busy
        spent[cause] += idle
        self.record["pending"][activity] += cycles
        self.clock = self.record["booked"] = end
        return idle

    def return_to_cycle(self, cycle: int) -> None:
        """Set the clock and the unit times back to ``cycle`` if they are later."""
        self.clock = min(self.clock, cycle)
        self.record["booked"] = min(int(self.record["booked"]), cycle)
        self.record["unit_free"] = np.minimum(self.record["unit_free"], cycle)

    def begin_layer(self, layer: int) -> None:
        """Begin a layer: attribute work since the last barrier, and later work, to ``layer``."""
        if self.layer >= 0 and self.layer != layer:
            self._assign_to_layer(self.layer)
        self.layer = layer
        self.machine.layers[layer]["worked"] |= np.int64(1) << self.number

    def mark_unused(self) -> None:
        """Attribute pending cycles without MAC array or vector work to ``CycleCause.UNUSED``."""
        spent = self.record["spent"]
        for cause in set(CycleCause) - {CycleCause.MAC, CycleCause.VECTOR, CycleCause.UNUSED}:
            spent[CycleCause.UNUSED] += spent[cause]
            spent[cause] = 0

    def leave_layer(self, ended: int) -> None:
        """End the core's layer; assign pending cycles to it, or to ``ended`` outside of layers."""
        layer = self.layer if self.layer >= 0 else ended
        self._assign_to_layer(layer)
        self.layer = -1
        self.previous_layer = layer

    def _assign_to_layer(self, layer: int) -> None:
        for account, column in (("pending", "counts"), ("spent", "spent")):
            cycles = self.record[account]
            self.machine.layers[layer][column][: cycles.size] += cycles
            cycles[:] = 0
        counts = self.machine.layers[layer]["counts"]
        counts[CountColumn.INSTRUCTIONS] += self.retired - self.record["counted"]
        self.record["counted"] = self.retired


def find_waiting_cores(machine: Machine, status: CoreStatus, what: int) -> list[Core]:
    """Return the cores that wait with ``status`` for event ``what``, in order of their numbers."""
    waits = (machine.cores["status"] == status) & (machine.cores["wait"][:, 0] == what)
    return [Core(machine, number) for number in np.flatnonzero(waits).tolist()]
