"""The instruction trace of the reference engine."""

from __future__ import annotations

from nmpsim.core.descriptor_data import find_weight_tail
from nmpsim.core.reference.context import NUMBERS
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.words import to_unsigned
from nmpsim.core.stop_conditions import TENSOR_STEPS, StopConditions, StopState
from nmpsim.core.watch import record_instruction, should_stop_after
from nmpsim.isa.codec import DecodedInstruction
from nmpsim.isa.table import RS1, RS2
from nmpsim.timing import Costs


class ExecutionMonitor:
    """Monitor that evaluates the stop conditions of a run and records its trace."""

    def __init__(self, stops: StopConditions, costs: Costs) -> None:
        self.stops = stops
        self._decoded: DecodedInstruction | None = None
        self._word, self._source = 0, 0
        self.words: list[int] = []
        """Words of the last descriptor; tensor instructions set them."""
        self._costs = costs

    def begin_instruction(self, core: Core, decoded: DecodedInstruction, word: int) -> None:
        """Store the instruction that a core begins to execute."""
        self._decoded, self._word = decoded, word
        if len(self.stops.trace) > 0:
            self.stops.noted[StopState.PC] = core.pc
            self._source = to_unsigned(
                core.get_register(RS1.decode(word))
            )  # a load may overwrite it

    def weight_tail(self, core: Core) -> int:
        """Return the address of a nonzero weight beyond the tensor after a convolution, or -1."""
        decoded = self._decoded
        if not self.stops.strict or decoded is None:
            return -1
        number, scratchpad = NUMBERS[decoded.instruction.mnemonic], core.machine.scratchpad
        return int(find_weight_tail(number, self.words, scratchpad[core.number]))

    @property
    def steps(self) -> int:
        """Number of steps that the core's last instruction counts as."""
        is_tensor = self._decoded is not None and self._decoded.instruction.unit is not None
        return TENSOR_STEPS if is_tensor else 1

    def should_stop_after(self, core: Core) -> bool:
        """Return whether the core's last instruction was one to stop after."""
        decoded = self._decoded
        return decoded is not None and bool(
            should_stop_after(self.stops, core.number, NUMBERS[decoded.instruction.mnemonic])
        )

    def record_instruction(self, core: Core) -> None:
        """Append a core's completed instruction to the trace."""
        decoded = self._decoded
        if decoded is None:
            return
        registers = self._source, to_unsigned(core.get_register(RS2.decode(self._word)))
        address = to_unsigned(self._source + decoded.operands.get("imm", 0))
        record_instruction(
            core.machine, self._costs, self.stops, core.number,
            NUMBERS[decoded.instruction.mnemonic], self._word, registers, address, self.words,
        )  # fmt: skip
