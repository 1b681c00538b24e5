"""Rewriting of a float program to the quantized program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.frontends.module_builder import Value as Tensor
from nmpsim.interpreter import dequantize
from nmpsim.lir.nodes import (
    ELEM_DTYPES,
    AttributeValue,
    Instruction,
    Module,
    Quantization,
    TensorType,
)
from nmpsim.lir.opcode import WEIGHTED, Kind
from nmpsim.lir.opcodes import IN
from nmpsim.quantization.graph import Graph, Node, Value
from nmpsim.quantization.module_builder import QuantizedModuleBuilder
from nmpsim.quantization.parameters import (
    Parameters,
    Settings,
    choose_bias_and_weights,
    choose_bias_parameters,
    choose_parameters,
    count_saturated,
    quantize,
)
from nmpsim.quantization.placement import ElementwiseChain
from nmpsim.quantization.scales import ValueScales, get_parameters, make_tensor_type


@attrs.frozen(eq=False)
class RewrittenProgram:
    """Quantized module, with the writers and names of its results."""

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
) -> RewrittenProgram:
    """Write the quantized program of a float program.

    Parameters
    ----------
    graph : Graph
        The float program.
    quantized : frozenset of Value
        Values that are quantized.
    scales : ValueScales
        Quantized type of each value.
    settings : Settings
        Settings of the quantization.
    chains : mapping of Value to ElementwiseChain
        Results that look-up tables compute.
    """
    builder = QuantizedModuleBuilder(graph, quantized, scales)
    return _Rewriter(builder, settings, chains).rewritten()


class _Rewriter:
    """Walk through the nodes that writes the quantized program."""

    def __init__(
        self,
        builder: QuantizedModuleBuilder,
        settings: Settings,
        chains: Mapping[Value, ElementwiseChain],
    ) -> None:
        self._builder = builder
        self._graph = builder.graph
        self._chains = chains
        self._settings = settings
        self._last_writers: dict[Value, tuple[Node, str]] = {}
        self._names: dict[str, str] = {}

    def rewritten(self) -> RewrittenProgram:
        """Write all nodes that matter, then the outputs that are not written yet."""
        for node in self._needed():
            self._write(node)
        self._write_outputs()
        module = self._builder.build_module()
        return RewrittenProgram(module, self._last_writers, self._builder.saturated, self._names)

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
        self._builder.begin_instruction(node.instruction)
        if node.opcode == "tensorview":
            self._write_view(node)
        else:
            self._emit(node, self._form(node))

    def _form(self, node: Node) -> InstructionForm:
        """Return the instruction in its new form."""
        attributes = node.instruction.attributes
        if node.results[0] not in self._builder.quantized:
            read = tuple(self._builder.get_tensor(s, s.type) for s in node.sources)
            return InstructionForm(node.opcode, read, attributes)
        if chain := self._chains.get(node.results[0]):
            type_ = self._builder.scales.get_type(chain.source)
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
        types = [builder.scales.get_type(source) for source in node.sources]
        if node.part:
            whole = builder.get_type(node.results[0])
            types = [attrs.evolve(whole, shape=type_.shape) for type_ in types]
        if node.kind is Kind.BATCHED_ADD and (
            bias := quantize_slice_bias(node, builder, self._settings)
        ):
            return builder.get_tensor(node.sources[0], types[0]), bias
        return tuple(map(builder.get_tensor, node.sources, types))

    def _table_of(self, node: Node, chain: ElementwiseChain) -> Tensor:
        """Return the table of a node's function for each integer of its source."""
        get_type = self._builder.scales.get_type
        source, result = get_type(chain.source), get_type(node.results[0])
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
        results = iter([self._builder.get_target(node, value) for value in node.results])
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
        if self._graph.get_constant(result) is not None:
            return  # what reads it gets a constant of its own
        builder, type_ = self._builder, self._builder.get_type(result)
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
            opcode = "dequantize" if value in self._builder.quantized else "copy"
            operands = (self._builder.variables[weight], sources[weight])
            self._builder.add_instruction(opcode, f"{value.name}_{opcode}", operands)

    def _begin_output(self, weight: str) -> None:
        span = next(w.span for w in self._graph.module.weights if w.name == weight)
        self._builder.begin_instruction(Instruction(0, f"{weight}_copy", "copy", (), {}, span))

    def _final(self, weight: str, value: Value) -> Tensor:
        """Return a tensor with an output's value and shape that no other output overwrites."""
        self._begin_output(weight)
        builder, own = self._builder, self._builder.get_type(value)
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


Array = npt.NDArray[Any]

_DUMMY = Quantization(1.0, 0, 0.0, 0.0)
"""Parameters in the type of a constant whose scales are constants of their own."""


@attrs.frozen
class InstructionForm:
    """Opcode, operands and attributes of an instruction that replaces a float one."""

    opcode: str
    sources: tuple[Tensor, ...]
    attributes: Mapping[str, AttributeValue]


def quantize_weighted_layer(
    node: Node, builder: QuantizedModuleBuilder, settings: Settings
) -> InstructionForm:
    """Return the quantized form of a convolution or fully connected layer."""
    if settings.per_channel and node.kind is Kind.CONVOLUTION:
        return _channelwise(node, builder, settings)
    if settings.per_channel and settings.elem == "i8":  # there is no row-wise Int16
        return _rowwise(node, builder, settings)
    weights = builder.scales.get_type(node.sources[1])
    names = (
        _source(node, builder),
        builder.get_tensor(node.sources[1], weights),
        _bias(node, builder, settings),
    )
    return InstructionForm(node.opcode, names, node.instruction.attributes)


def quantize_slice_bias(
    node: Node, builder: QuantizedModuleBuilder, settings: Settings
) -> Tensor | None:
    """Return the quantized bias of a ``batchedadd`` after a constant product, or None.

    Glow makes these two of a fully connected layer, and quantizes the bias as that layer's.
    """
    batch, bias = node.sources
    producers = builder.producers.get(batch, [])
    if [node.kind for node in producers] != [Kind.PRODUCT] or builder.graph.get_constant(
        bias
    ) is None:
        return None
    source, weights = producers[0].sources
    if batch not in builder.quantized or builder.graph.get_constant(weights) is None:
        return None
    chosen = _on_product(bias, source, weights, builder, settings)
    type_ = make_tensor_type(settings.bias_elem, bias.type.shape, chosen)
    return builder.get_tensor(bias, type_)


def _source(node: Node, builder: QuantizedModuleBuilder) -> Tensor:
    source = node.sources[0]
    return builder.get_tensor(source, builder.scales.get_type(source))


def _bias(node: Node, builder: QuantizedModuleBuilder, settings: Settings) -> Tensor:
    """Return a bias with one scale: the result's if so chosen, else Glow's."""
    source, weights, bias = node.sources
    if settings.bias_on_result:
        chosen = get_parameters(builder.get_type(node.results[0]))
    else:
        chosen = _on_product(bias, source, weights, builder, settings)
    _record_saturation(node, _array(bias, builder), chosen, builder, settings)
    type_ = make_tensor_type(settings.bias_elem, bias.type.shape, chosen)
    return builder.get_tensor(bias, type_)


def _record_saturation(
    node: Node, bias: Array, chosen: Parameters, builder: QuantizedModuleBuilder, settings: Settings
) -> None:
    count = count_saturated(bias, chosen, settings.bias_elem)
    if count:
        builder.saturated[node.results[0]] = count


def _on_product(
    bias: Value, source: Value, weights: Value, builder: QuantizedModuleBuilder, settings: Settings
) -> Parameters:
    """Return the parameters of a bias that is added to a sum of products."""
    array = _array(bias, builder)
    return choose_bias_parameters(
        choose_parameters(array.min(), array.max(), settings.schema, settings.bias_elem),
        get_parameters(builder.scales.get_type(source)).scale,
        get_parameters(builder.scales.get_type(weights)).scale,
        settings.bias_elem,
        not array.any(),
    )


def _rowwise(node: Node, builder: QuantizedModuleBuilder, settings: Settings) -> InstructionForm:
    """Return the form with a scale and an offset for each output, and one for the bias."""
    rows = _array(node.sources[1], builder).T
    chosen = choose_parameters(rows.min(1), rows.max(1), settings.schema, settings.elem)
    weights = quantize(rows, _column(chosen, 2), settings.elem)
    names = (
        _source(node, builder),
        _constant(node, builder, 1, weights, rows, settings.elem),
        _bias(node, builder, settings),
        *_scales(node, builder, "", chosen),
    )
    return InstructionForm("rowwisequantizedfullyconnected", names, {})


def _channelwise(
    node: Node, builder: QuantizedModuleBuilder, settings: Settings
) -> InstructionForm:
    """Return the form with a scale for each output channel of filter and bias.

    Filters have no offsets: where the schema is asymmetric, Glow takes the symmetric one here.
    """
    filters, bias = (_array(value, builder) for value in node.sources[1:])
    chosen, of_bias = _channel_parameters(node, filters, bias, builder, settings)
    integers = quantize(filters, _column(chosen, 4), settings.elem)
    biases = quantize(bias, of_bias, settings.bias_elem)
    _record_saturation(node, bias, of_bias, builder, settings)
    names = (
        _source(node, builder),
        _constant(node, builder, 1, integers, filters, settings.elem),
        _constant(node, builder, 2, biases, bias, settings.bias_elem),
        *_scales(node, builder, "filter", chosen),
        *_scales(node, builder, "bias", of_bias),
    )
    attributes = {k: v for k, v in node.instruction.attributes.items() if k != "Layout"}
    return InstructionForm("channelwisequantizedconvolution", names, attributes)


def _channel_parameters(
    node: Node, filters: Array, bias: Array, builder: QuantizedModuleBuilder, settings: Settings
) -> tuple[Parameters, Parameters]:
    """Return the parameters of filter and bias."""
    schema = "symmetric" if settings.schema == "asymmetric" else settings.schema
    low, high = filters.min((1, 2, 3)), filters.max((1, 2, 3))
    chosen = choose_parameters(low, high, schema, settings.elem)
    if settings.bias_on_result:
        result = get_parameters(builder.get_type(node.results[0]))
        return chosen, Parameters(
            np.full(bias.shape, result.scale), np.full(bias.shape, result.offset)
        )
    own = choose_parameters(bias, bias, schema, settings.bias_elem)
    source = get_parameters(builder.scales.get_type(node.sources[0])).scale
    of_bias, chosen = choose_bias_and_weights(own, source, chosen, settings.bias_elem, bias == 0)
    return chosen, of_bias


def _array(value: Value, builder: QuantizedModuleBuilder) -> Array:
    """Return the elements of weights or a bias, which are constant on the device."""
    array = builder.graph.get_constant(value)
    if array is None:
        raise TypeError(f"%{value.name} is not a constant")
    return array


def _column(parameters: Parameters, dimensions: int) -> Parameters:
    """Return parameters that broadcast along dimension 0."""
    shape = (-1, *(1,) * (dimensions - 1))
    return Parameters(parameters.scale.reshape(shape), parameters.offset.reshape(shape))


def _constant(
    node: Node, builder: QuantizedModuleBuilder, place: int, values: Array, reals: Array, elem: str
) -> Tensor:
    """Add a constant whose scales are elsewhere, named after the source at this place."""
    type_ = TensorType(elem, values.shape, _DUMMY)
    constant = builder.add_constant(node.sources[place].name, values, type_)
    builder.record_float(constant, reals)
    return constant


def _scales(
    node: Node, builder: QuantizedModuleBuilder, what: str, parameters: Parameters
) -> tuple[Tensor, Tensor]:
    """Add constants with scales and offsets."""
    stem = f"{node.instruction.name}_{what}"
    scales = TensorType("float", parameters.scale.shape)
    offsets = TensorType("index32", parameters.offset.shape)
    return (
        builder.add_constant(f"{stem}Scales", parameters.scale, scales),
        builder.add_constant(f"{stem}Offsets", parameters.offset, offsets),
    )
