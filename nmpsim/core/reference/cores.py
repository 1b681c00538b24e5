"""One core's record in the machine, as plain integers, and where its cycles go."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.reference.words import signed
from nmpsim.core.state import CSR_COLUMN, CoreStatus, Count, CycleCause, Machine
from nmpsim.isa.table import Csr, Unit


class _Integer:
    """A field of the record, read and written as a Python integer."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, core: Core, _: type[Core]) -> int:
        return int(core.record[self._name])

    def __set__(self, core: Core, value: int) -> None:
        core.record[self._name] = value


class Core:
    """A view: what it is set to is in the machine at once."""

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

    def register(self, number: int) -> int:
        """A register's value, signed."""
        return int(self.record["registers"][number])

    def set_register(self, number: int, value: int) -> None:
        """Write the low 32 bits of ``value``; x0 stays 0."""
        if number != 0:
            self.record["registers"][number] = signed(value)

    def csr(self, csr: Csr) -> int:
        """The stored word of a CSR."""
        return int(self.record["csr"][CSR_COLUMN[csr]])

    def set_csr(self, csr: Csr, value: int) -> None:
        """Store the word of a CSR."""
        self.record["csr"][CSR_COLUMN[csr]] = value

    def wait_for(self, status: CoreStatus, what: int, count: int) -> None:
        """Stop; ``what`` and ``count`` say what has to happen first."""
        self.status = status
        self.record["wait"] = (what, count)

    def waits_for(self, status: CoreStatus, what: int) -> bool:
        """True if the core has stopped for this."""
        return self.status == status and int(self.record["wait"][0]) == what

    @property
    def wait_count(self) -> int:
        """The second number of what the core waits for."""
        return int(self.record["wait"][1])

    def spend(self, activity: Count, cause: CycleCause, cycles: int) -> int:
        """``cycles`` pass with one activity; those in which no unit worked: ``cause`` has them."""
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

    def works_on(self, layer: int) -> None:
        """The next work is for ``layer``; what was done since a barrier was for it already."""
        if self.layer >= 0 and self.layer != layer:
            self._give_to(self.layer)
        self.layer = layer
        self.machine.layers[layer]["worked"] |= np.int64(1) << self.number

    def call_unused(self) -> None:
        """What the core did since the last barrier was for nothing: the layer gave it no work."""
        spent = self.record["spent"]
        for cause in set(CycleCause) - {CycleCause.MAC, CycleCause.VECTOR, CycleCause.UNUSED}:
            spent[CycleCause.UNUSED] += spent[cause]
            spent[cause] = 0

    def leave_layer(self, ended: int) -> None:
        """A barrier is passed or the core halts; ``ended`` counts if the core named no layer."""
        layer = self.layer if self.layer >= 0 else ended
        self._give_to(layer)
        self.layer = -1
        self.previous_layer = layer

    def _give_to(self, layer: int) -> None:
        for account, column in (("pending", "counts"), ("spent", "spent")):
            cycles = self.record[account]
            self.machine.layers[layer][column][: cycles.size] += cycles
            cycles[:] = 0


def waiting_cores(machine: Machine, status: CoreStatus, what: int) -> list[Core]:
    """The cores that have stopped for this, lower numbers first."""
    waits = (machine.cores["status"] == status) & (machine.cores["wait"][:, 0] == what)
    return [Core(machine, number) for number in np.flatnonzero(waits).tolist()]
