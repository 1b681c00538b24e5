"""A view of one core's record in the machine."""

from __future__ import annotations

from typing import Any

from nmpsim.core.reference.words import to_signed
from nmpsim.core.state import CSR_COLUMN, Machine
from nmpsim.isa.table import CsrAddress


class _Integer:
    """Descriptor of a record field that is read and written as a Python integer."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, core: Core, _: type[Core]) -> int:
        return int(core.record[self._name])

    def __set__(self, core: Core, value: int) -> None:
        core.record[self._name] = value


class Core:
    """A view of one core's state in the machine; writes take effect at once."""

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

    def get_register(self, number: int) -> int:
        """Return the value of a register, signed."""
        return int(self.record["registers"][number])

    def set_register(self, number: int, value: int) -> None:
        """Write the low 32 bits of ``value`` to a register; x0 stays 0."""
        if number != 0:
            self.record["registers"][number] = to_signed(value)

    def get_csr(self, csr: CsrAddress) -> int:
        """Return the stored word of a CSR."""
        return int(self.record["csr"][CSR_COLUMN[csr]])

    def set_csr(self, csr: CsrAddress, value: int) -> None:
        """Store the word of a CSR."""
        self.record["csr"][CSR_COLUMN[csr]] = value
