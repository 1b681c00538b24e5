"""What commands work on: a run, the changes made to it, and what it is compared with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy.typing as npt

from nmpsim.analysis.explain import LayerFacts
from nmpsim.bundle.metadata import Layer, Tensor
from nmpsim.debugger.arrays import OpenArrays
from nmpsim.debugger.audit import OperandType, bias_note, operand_types
from nmpsim.debugger.changes import Changes
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.integers import Facts, all_facts, facts_of
from nmpsim.debugger.reference import Reference, compare_layer
from nmpsim.diagnostics import about, fail
from nmpsim.lir.nodes import Instruction, Module
from nmpsim.lir.printer import format_instruction


class Context:
    """What every command is given."""

    def __init__(self, debugger: Debugger, open_arrays: OpenArrays) -> None:
        self.debugger = debugger
        self.changes = Changes(debugger)
        self.reference: Reference | None = None
        self.open_arrays = open_arrays
        self._module: Module | None = None
        self._facts: Facts | None = None

    def load_reference(self, path: Path) -> Reference:
        """Compare with a file from now on."""
        arrays = self.open_arrays(path)
        with about(path):
            self.reference = Reference(self.debugger.layers, arrays.keys, arrays.read)
        self.debugger.events.differs = self._differs
        return self.reference

    def _differs(self, index: int) -> tuple[int, str] | None:
        if self.reference is None:
            return None
        found = compare_layer(self.debugger, self.reference, index).accumulated
        if found is None:
            return None
        text = f"{self.debugger.layers[index].name} differs in {found.differing} elements"
        return found.worst_ulp, f"{text}, worst {found.worst_ulp} ulp"

    def current_layer(self) -> Layer:
        """The layer that is being computed; the last one at the end."""
        index = self.debugger.current_layer()
        order = self.debugger.layer_order()
        if index is None and not order:
            raise fail("DEBUG002", "the program has no layers")
        return self.debugger.layers[order[-1] if index is None else index]

    def module(self) -> Module:
        """The LIR that the bundle carries; UserError BUN005 if it carries none."""
        if self._module is None:
            self._module = self.debugger.bundle.module()
        return self._module

    def constant(self, name: str) -> tuple[Tensor, npt.NDArray[Any]] | None:
        """A constant of the LIR, without an address; None if there is none of this name."""
        if not self.debugger.bundle.debug or name not in self.module().constants:
            return None
        type_ = next(one.type for one in self.module().weights if one.name == name)
        scale, offset = (type_.quant.scale, type_.quant.offset) if type_.quant else (None, None)
        tensor = Tensor(name, type_.elem, type_.shape, 0, scale, offset)
        return tensor, self.module().constants[name]

    def operands(self, layer: Layer) -> list[OperandType]:
        """Operands of a layer as the LIR has them; none if the bundle carries no LIR."""
        if not self.debugger.bundle.debug:
            return []
        return operand_types(self.facts(layer))

    def bias_note(self, layer: Layer) -> str:
        """What is particular about the scale of a layer's bias; empty if nothing is known to be."""
        return bias_note(self.facts(layer)) if self.debugger.bundle.debug else ""

    def facts(self, layer: Layer) -> LayerFacts | None:
        """What the LIR says of a layer's instruction; UserError BUN005 if there is no LIR."""
        if self._facts is None:
            self._facts = all_facts(self.module())
        return facts_of(self._facts, layer)

    def numbers_of(self, layer: Layer) -> set[int]:
        """Numbers of the LIR instructions that a layer is made of."""
        numbers = {i.name: i.number for i in self.module().instructions}
        return {numbers[name] for name in layer.fused if name in numbers} or {layer.number}

    def printed(self, instruction: Instruction) -> str:
        """An instruction as the LIR text has it."""
        return re.sub(r"^\s*\d+\s+", "", format_instruction(instruction))
