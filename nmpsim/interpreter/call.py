"""One instruction with its operands, as the real operations see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from nmpsim.interpreter.arithmetic import Arithmetic, RealArray
from nmpsim.lir.constraints import Site
from nmpsim.lir.nodes import Instruction, TensorType
from nmpsim.lir.opcodes import OPCODES


@attrs.frozen(eq=False)
class Call:
    """Types and values by role (``Src``, ``Filter``; see :mod:`nmpsim.lir.opcodes`)."""

    site: Site
    values: Mapping[str, RealArray]
    arithmetic: Arithmetic

    @classmethod
    def of(
        cls,
        instruction: Instruction,
        types: Sequence[TensorType],
        values: Sequence[RealArray],
        arithmetic: Arithmetic,
    ) -> Call:
        """From operands in print order."""
        roles = [role.name for role in OPCODES[instruction.opcode].operands]
        site = Site(instruction, dict(zip(roles, types, strict=True)))
        return cls(site, dict(zip(roles, values, strict=True)), arithmetic)

    @property
    def instruction(self) -> Instruction:
        """The instruction itself."""
        return self.site.instruction

    def __getitem__(self, role: str) -> RealArray:
        return self.values[role]

    def number(self, name: str) -> RealArray:
        """A number attribute in the dtype of the arithmetic (0-d)."""
        return np.asarray(self.site.number(name), dtype=self.arithmetic.dtype)
