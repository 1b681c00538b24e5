"""Context of commands: a run, the changes made to it, and its reference."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from nmpsim.analysis.explain import OperationFacts, explain_layers
from nmpsim.analysis.layer_moves import find_layer_moves
from nmpsim.analysis.matching import list_saved_tensors
from nmpsim.arrays import Array
from nmpsim.bundle.metadata import Layer, Tensor
from nmpsim.debugger.audit import (
    FactsByName,
    find_layer_facts,
)
from nmpsim.debugger.changes import ProgramEditor
from nmpsim.debugger.commands.results import CommandResult, ResultFormatter, to_json_data
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.divergence import complete_matching
from nmpsim.debugger.edits import ScaleChanges, list_scale_changes
from nmpsim.debugger.reference import ArrayOpener, LayerComparison, ReferenceOutputs, compare_layer
from nmpsim.debugger.scale_changes import replace_scales
from nmpsim.diagnostics import fail, locate_errors
from nmpsim.lir.layers import find_layer
from nmpsim.lir.names import map_display_names
from nmpsim.lir.nodes import Instruction, Module
from nmpsim.lir.printer import format_instruction


class CommandContext:
    """Context that all commands share: the debugger, its edits and the reference."""

    def __init__(self, debugger: Debugger, open_arrays: ArrayOpener) -> None:
        self.debugger = debugger
        self.changes = ProgramEditor(debugger)
        self.reference: ReferenceOutputs | None = None
        self.reference_names: Mapping[str, str] = {}
        """Name in the reference -> name of a layer, for the next file that is loaded."""
        self.reference_layout = "auto"
        """Layout of the 4-D tensors of the next file that is loaded."""
        self.open_arrays = open_arrays
        self._comparisons: dict[int, tuple[Array | None, ReferenceOutputs, LayerComparison]] = {}
        """Layer -> its output, the reference, and the comparison of both."""
        self._read_lir = lru_cache(maxsize=1)(self._rescale_lir)
        self._read_facts = lru_cache(maxsize=1)(self._explain_lir)

    def make_result(
        self,
        text: str | Iterable[str],
        /,
        record: Any = None,
        *,
        hints: Iterable[str] = (),
        is_worse: bool = False,
        **values: Any,
    ) -> CommandResult:
        """Create a command result from a record and values, with text from a template.

        Parameters
        ----------
        text : str or iterable of str
            Name of the template in ``results.toml``, or the lines; empty lines are left out.
        record : object, optional
            attrs record or mapping with the first JSON data.
        hints : iterable of str
            Commands to continue with, which the last line lists.
        is_worse : bool
            Whether a run trapped or an expectation failed.
        **values
            More JSON data: plain values, records, and collections of them. Values whose names begin
            with an underscore are for the template alone.
        """
        if isinstance(text, str):
            text = [self._formatter.format(text, {**values, "record": record})]
        lines = [line for one in text for line in one.split("\n") if line.strip()]
        commands = ", ".join(f"`{hint}`" for hint in hints)
        if commands:
            lines.append(f"  next: {commands}")
        fields = {} if record is None else to_json_data(record)
        public = {name: value for name, value in values.items() if not name.startswith("_")}
        return CommandResult(tuple(lines), fields | to_json_data(public), is_worse)

    @cached_property
    def _formatter(self) -> ResultFormatter:
        return ResultFormatter(self.get_display_name)

    def get_display_name(self, name: str) -> str:
        """Return the display name of a layer, tensor or constant.

        The suffix is the index of an element, or the part of a layer in a bundle:
        ``NAME.weights[3]``.
        """
        full, bracket, index = name.partition("[")
        for end in (len(full), full.rfind("."), full.rfind(".", 0, full.rfind("."))):
            if end > 0 and full[:end] in self._display_names:
                return f"{self._display_names[full[:end]]}{full[end:]}{bracket}{index}"
        return name

    @cached_property
    def _display_names(self) -> Mapping[str, str]:
        bundle = self.debugger.bundle
        constants = [one.name for one in bundle.module().weights] if bundle.has_module else []
        shown = map_display_names(constants)
        for layer in self.debugger.layers:
            if layer.display_name != layer.name:
                shown |= dict.fromkeys((layer.output.name, layer.operand), layer.display_name)
        ends = (*bundle.metadata.inputs, *bundle.metadata.outputs)
        return {**shown, **{one.name: one.name for one in ends}, **bundle.metadata.display_names}

    def load_reference(self, path: Path) -> ReferenceOutputs:
        """Load expected layer outputs from a file as the reference, and return the reference."""
        arrays = self.open_arrays(path)
        with locate_errors(path):
            self.reference = ReferenceOutputs(
                self.debugger.bundle.metadata,
                list(list_saved_tensors(arrays.keys, arrays.read)),
                self.reference_names,
                self.reference_layout,
                find_layer_moves(self.debugger.bundle),
            )
        self.debugger.events.measure_difference = self._measure_difference
        return self.reference

    def complete_reference(self) -> ReferenceOutputs:
        """Run the program and match the reference by values, if names and shapes do not suffice."""
        reference, order = self.get_reference(), self.debugger.get_layer_order()
        if reference.is_ambiguous and order:
            self.debugger.run_through_layer(order[-1])
            complete_matching(self.debugger, reference)
            self._comparisons.clear()
        return reference

    def compare_layer(self, index: int) -> LayerComparison:
        """Compare a layer's output with the reference, or return the cached comparison.

        Raises UserError DEBUG002 if no reference is loaded.
        """
        reference, output = self.get_reference(), self.debugger.layer_outputs.get(index)
        known = self._comparisons.get(index)
        if known is None or known[0] is not output or known[1] is not reference:
            known = output, reference, compare_layer(self.debugger, reference, index)
            self._comparisons[index] = known
        return known[2]

    def _measure_difference(self, index: int) -> tuple[int, str] | None:
        found = self.compare_layer(index).accumulated
        if found is None:
            return None
        text = f"{self.debugger.layers[index].display_name} differs in {found.differing} elements"
        return found.worst_ulp, f"{text}, worst {found.worst_ulp} ulp"

    def get_reference(self) -> ReferenceOutputs:
        """Return the reference; raise UserError (DEBUG002) if no reference is loaded."""
        if self.reference is None:
            hint = "Load a reference with `reference FILE`."
            raise fail("DEBUG002", "no reference is loaded", hint=hint)
        return self.reference

    def find_layer(self, text: str) -> Layer:
        """Return a layer by name or number; raise UserError (LAYER001) for an unknown layer."""
        return find_layer(self.debugger.layers, text)

    def get_current_layer(self) -> Layer:
        """Return the layer that is being computed, or the last layer at the end of the run."""
        index = self.debugger.find_current_layer()
        order = self.debugger.get_layer_order()
        if index is None and not order:
            message, expected = "the program has no layers", "at least one layer"
            raise fail("DEBUG002", message, found="0 layers", expected=expected)
        return self.debugger.layers[order[-1] if index is None else index]

    def get_module(self) -> Module:
        """Return the bundle's LIR module; scales that the session edited have their new values.

        Raises UserError BUN005 if the bundle carries none.
        """
        return self._read_lir(list_scale_changes(self.debugger.edits))

    def _rescale_lir(self, changes: ScaleChanges) -> Module:
        return replace_scales(self.debugger.bundle.module(), changes)

    def _explain_lir(self, changes: ScaleChanges) -> FactsByName:
        return {one.name: one for one in explain_layers(self._read_lir(changes))}

    def find_constant(self, name: str) -> tuple[Tensor, Array] | None:
        """Return a constant of the LIR as tensor and array, or None if the name is unknown."""
        if not self.debugger.bundle.has_module or name not in self.get_module().constants:
            return None
        type_ = next(one.type for one in self.get_module().weights if one.name == name)
        scale, offset = (type_.quant.scale, type_.quant.offset) if type_.quant else (None, None)
        tensor = Tensor(name, type_.elem, type_.shape, 0, scale, offset)
        return tensor, self.get_module().constants[name]

    def get_layer_facts(self, layer: Layer) -> OperationFacts | None:
        """Return what the LIR states about a layer, or None if the layer is not in the LIR.

        Raises UserError (BUN005) if the bundle contains no LIR.
        """
        return find_layer_facts(self._read_facts(list_scale_changes(self.debugger.edits)), layer)

    def find_instruction_numbers(self, layer: Layer) -> set[int]:
        """Return the numbers of the LIR instructions that were fused into a layer."""
        numbers = {i.name: i.number for i in self.get_module().instructions}
        return {numbers[name] for name in layer.fused if name in numbers} or {layer.number}

    def format_instruction(self, instruction: Instruction) -> str:
        """Format an instruction as in the LIR text, without its number."""
        return re.sub(r"^\s*\d+\s+", "", format_instruction(instruction))
