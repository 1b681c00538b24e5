"""Rewriting of a float program and its scales to the quantized program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import numpy as np

from nmpsim.interpreter import dequantize
from nmpsim.lir.nodes import ELEM_DTYPES, Instruction, Module
from nmpsim.lir.opcode import WEIGHTED
from nmpsim.lir.opcodes import IN, Kind
from nmpsim.quantization.graph import Graph, Node, Value
from nmpsim.quantization.lookup_tables import ElementwiseChain
from nmpsim.quantization.module_builder import QuantizedModuleBuilder, Tensor
from nmpsim.quantization.scales import ValueScales
from nmpsim.quantization.settings import Settings
from nmpsim.quantization.weighted import InstructionForm, quantize_slice, quantize_weighted_layer


@attrs.frozen(eq=False)
class Rewritten:
    """The quantized module, and facts about its values."""

    module: Module
    last_writers: dict[Value, tuple[Node, str]]
    """Value -> the last node that writes it, and its instruction's name."""
    saturated: dict[Value, int]
    """Result of an operation with a bias -> number of saturated elements of the bias."""
    names: dict[str, str]
    """Computing instruction of the float program -> its name in the quantized program."""


def rewrite(
    graph: Graph,
    quantized: frozenset[Value],
    scales: ValueScales,
    settings: Settings,
    chains: Mapping[Value, ElementwiseChain],
) -> Rewritten:
    """Return the quantized program of a float program.

    ``quantized`` says which values are, ``scales`` how, ``chains`` which are looked up.
    """
    return _Rewriter(graph, quantized, scales, settings, chains).rewritten()


class _Rewriter:
    """Walk through the nodes that writes the quantized program."""

    def __init__(
        self,
        graph: Graph,
        quantized: frozenset[Value],
        scales: ValueScales,
        settings: Settings,
        chains: Mapping[Value, ElementwiseChain],
    ) -> None:
        self._graph = graph
        self._chains = chains
        self._quantized = quantized
        self._settings = settings
        self._builder = QuantizedModuleBuilder(graph, quantized, scales)
        self._last_writers: dict[Value, tuple[Node, str]] = {}
        self._names: dict[str, str] = {}

    def rewritten(self) -> Rewritten:
        """Write all nodes that matter, then the outputs that are not written yet."""
        for node in self._needed():
            self._write(node)
        self._write_outputs()
        module = self._builder.build_module()
        return Rewritten(module, self._last_writers, self._builder.saturated, self._names)

    def _needed(self) -> list[Node]:
        """Return the nodes that outputs depend on."""
        needed = self._shown(self._graph.outputs.values())
        nodes = []
        for node in reversed(self._graph.nodes):
            if needed.intersection(node.results):
                chain = self._chains.get(node.results[0])
                needed |= self._shown([chain.source] if chain else node.sources)
                nodes.append(node)
        return nodes[::-1]

    def _shown(self, values: Iterable[Value]) -> set[Value]:
        """Return the values, and the sources of those that are views."""
        found = set(values)
        for value in values:
            while value in self._graph.views:
                value, _ = self._graph.views[value]
                found.add(value)
        return found

    def _write(self, node: Node) -> None:
        self._builder.begin(node.instruction)
        if node.opcode == "tensorview":
            self._write_view(node)
        else:
            self._emit(node, self._form(node))

    def _form(self, node: Node) -> InstructionForm:
        """Return the instruction in its new form."""
        attributes = node.instruction.attributes
        if node.results[0] not in self._quantized:
            read = tuple(self._builder.get_tensor(s, s.type) for s in node.sources)
            return InstructionForm(node.opcode, read, attributes)
        if chain := self._chains.get(node.results[0]):
            type_ = self._builder.scales.type_of(chain.source)
            source = self._builder.get_tensor(chain.source, type_)
            return InstructionForm("intlookuptable", (source, self._table_of(node, chain)), {})
        if node.kind in WEIGHTED:
            return quantize_weighted_layer(node, self._builder, self._settings)
        if node.kind is Kind.FUNCTION:
            table = self._table_of(node, ElementwiseChain(node.sources[0], (node,)))
            return InstructionForm("intlookuptable", (*self._sources(node), table), {})
        return InstructionForm(node.opcode, self._sources(node), attributes)

    def _sources(self, node: Node) -> tuple[Tensor, ...]:
        """Return the sources as a quantized operation reads them."""
        builder = self._builder
        types = [builder.scales.type_of(source) for source in node.sources]
        if node.part:
            whole = builder.type_of(node.results[0])
            types = [attrs.evolve(whole, shape=type_.shape) for type_ in types]
        if node.kind is Kind.BATCHED_ADD and (
            bias := quantize_slice(node, builder, self._settings)
        ):
            return builder.get_tensor(node.sources[0], types[0]), bias
        return tuple(map(builder.get_tensor, node.sources, types))

    def _table_of(self, node: Node, chain: ElementwiseChain) -> Tensor:
        """Return the table of a node's function for each integer of its source."""
        type_of = self._builder.scales.type_of
        source, result = type_of(chain.source), type_of(node.results[0])
        limits = np.iinfo(ELEM_DTYPES[source.elem])
        integers = np.arange(limits.min, int(limits.max) + 1)
        reals = dequantize(integers, attrs.evolve(source, shape=integers.shape))
        table = attrs.evolve(result, shape=integers.shape)
        name = f"{node.instruction.name}_table"
        values = chain.evaluate(self._graph, reals)
        return self._builder.add_real_constant(name, values, table)

    def _emit(self, node: Node, form: InstructionForm) -> None:
        instruction = node.instruction
        kinds = ["@out", IN] if node.is_implicit else [o.kind for o in instruction.operands]
        results = iter([self._builder.target(node, value) for value in node.results])
        read = iter(form.sources)
        operands = [next(read) if kind == IN else next(results) for kind in kinds]
        operands += read  # an opcode in place of another one may have more, after the others
        name = self._builder.add_instruction(
            form.opcode, instruction.name, operands, **form.attributes
        )
        self._last_writers.update(dict.fromkeys(node.results, (node, name)))
        if not node.is_implicit:
            self._names[instruction.name] = name

    def _write_view(self, node: Node) -> None:
        (result,), (source,) = node.results, node.sources
        if self._graph.constant(result) is not None:
            return  # what reads it gets a constant of its own
        builder, type_ = self._builder, self._builder.type_of(result)
        whole = builder.get_tensor(source, attrs.evolve(type_, shape=source.type.shape))
        view = builder.add_view(whole, type_, _offsets(node.instruction), result.name)
        builder.set_tensor(result, view)

    def _write_outputs(self) -> None:
        """Write outputs from the tensors that hold their values elsewhere."""
        direct = self._builder.direct_outputs
        left = {w: v for w, v in self._graph.outputs.items() if direct.get(v) != w}
        sources = {weight: self._final(weight, value) for weight, value in left.items()}
        for weight, value in left.items():
            self._begin_output(weight)
            opcode = "dequantize" if value in self._quantized else "copy"
            operands = (self._builder.variables[weight], sources[weight])
            self._builder.add_instruction(opcode, f"{value.name}_{opcode}", operands)

    def _begin_output(self, weight: str) -> None:
        span = next(w.span for w in self._graph.module.weights if w.name == weight)
        self._builder.begin(Instruction(0, f"{weight}_copy", "copy", (), {}, span))

    def _final(self, weight: str, value: Value) -> Tensor:
        """Return a tensor with an output's value and shape that no other output overwrites."""
        self._begin_output(weight)
        builder, own = self._builder, self._builder.type_of(value)
        shown = attrs.evolve(own, shape=builder.variables[weight].shape)
        tensor = builder.get_tensor(value, own)
        if own.shape != shown.shape:
            tensor = builder.add_view(tensor, shown, (), f"{tensor.name}_view")
        if any(v.kind == "input" and v.name in self._graph.outputs for v in self._shown([value])):
            name = builder.reader.name
            saved = builder.allocate(f"{name}_res", shown)
            builder.add_instruction("copy", name, (saved, tensor))
            tensor = saved
        return tensor


def _offsets(view: Instruction) -> tuple[int, ...]:
    offsets = view.attributes["Offsets"]
    return tuple(int(o) for o in offsets) if isinstance(offsets, tuple) else ()
