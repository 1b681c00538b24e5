"""Rewriting of a float program to the quantized program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Array
from nmpsim.frontends.module_builder import BuilderTensor as Tensor
from nmpsim.frontends.module_builder import ModuleBuilder
from nmpsim.interpreter import dequantize
from nmpsim.lir.nodes import (
    ELEM_DTYPES,
    AttributeValue,
    Module,
    Quantization,
    TensorType,
)
from nmpsim.lir.opcode import WEIGHTED, OpcodeKind
from nmpsim.lir.opcodes import IN
from nmpsim.quantization.graph import FloatNode, FloatValue
from nmpsim.quantization.parameters import (
    Parameters,
    choose_bias_parameters,
    choose_bias_weights_parameters,
    choose_parameters,
    count_saturated,
    quantize,
)
from nmpsim.quantization.placement import ElementwiseChain
from nmpsim.quantization.scales import ValueScales, get_parameters, make_tensor_type

_QuantizedForm: TypeAlias = tuple[str, Sequence[Tensor], Mapping[str, AttributeValue]]
"""Opcode, operands and attributes of the instruction that replaces a float one."""
_DUMMY = Quantization(1.0, 0, 0.0, 0.0)
"""Parameters in the type of a constant whose scales are constants of their own."""


@attrs.frozen(eq=False)
class RewrittenProgram:
    """Program after quantization: module, last writers, saturation counts and names."""

    module: Module
    last_writers: dict[FloatValue, tuple[FloatNode, str]]
    """Value -> the last node that writes it, and its instruction's name."""
    saturated: dict[FloatValue, int]
    """Result of an operation with a bias -> number of saturated elements of the bias."""
    names: dict[str, str]
    """Computing instruction of the float program -> its name in the quantized program."""


def rewrite_program(
    scales: ValueScales, chains: Mapping[FloatValue, ElementwiseChain]
) -> RewrittenProgram:
    """Rewrite a float program as a quantized program.

    Parameters
    ----------
    scales : ValueScales
        The float program, the values that are quantized, and their types.
    chains : mapping of FloatValue to ElementwiseChain
        Results that look-up tables compute.
    """
    return _Rewriter(scales, chains).rewrite()


class _Rewriter(ModuleBuilder):
    """Builder of the quantized module that walks through the nodes of the float program."""

    replaces_suffix = True
    reader: str
    """Name of the float instruction that is being rewritten."""

    def __init__(self, scales: ValueScales, chains: Mapping[FloatValue, ElementwiseChain]) -> None:
        module = scales.graph.module
        super().__init__(module.name, module.file)
        self.graph = scales.graph
        self.quantized = scales.quantized
        self.scales = scales
        self._settings = scales.settings
        self._chains = chains
        self._last_writers: dict[FloatValue, tuple[FloatNode, str]] = {}
        self._saturated: dict[FloatValue, int] = {}
        self._layer_names: dict[str, str] = {}
        self._variables = [weight for weight in module.weights if not weight.constant]
        self.variables = {
            one.name: Tensor(self.make_unique(one.name), one.type, one.name)
            for one in self._variables
        }
        """Inputs and outputs of the program."""
        self._tensors = {(one, one.type): self.variables[one.name] for one in self.graph.inputs}
        inputs = {value.name for value in self.graph.inputs}
        self.direct_outputs = {
            value: weight
            for weight, value in self.graph.outputs.items()
            if weight not in inputs
            and value in self.graph.producers
            and value not in self.quantized
            and value not in self.graph.views
            and value.type == self.variables[weight].type
        }
        """Float result -> name of the output that it is written to directly."""
        self._floats: dict[str, npt.NDArray[np.float32]] = {}
        """Constant of the program -> its values before quantization."""

    def rewrite(self) -> RewrittenProgram:
        """Write all nodes that matter, then the outputs that are not written yet."""
        for node in self._find_needed_nodes():
            self.reader, self.span = node.instruction.name, node.instruction.span
            if node.opcode == "tensorview":
                self._write_view(node)
            else:
                self._write(node, self._make_form(node))
        self._write_outputs()
        module = attrs.evolve(self.build(self._variables), floats=self._floats)
        return RewrittenProgram(module, self._last_writers, self._saturated, self._layer_names)

    def _find_needed_nodes(self) -> list[FloatNode]:
        """Return the nodes that outputs depend on."""
        needed = self._with_viewed(self.graph.outputs.values())
        nodes = []
        for node in reversed(self.graph.nodes):
            if needed.intersection(node.results):
                chain = self._chains.get(node.results[0])
                needed |= self._with_viewed([chain.source] if chain else node.sources)
                nodes.append(node)
        return nodes[::-1]

    def _with_viewed(self, values: Iterable[FloatValue]) -> set[FloatValue]:
        """Return the values, and the sources of those that are views."""
        found = set(values)
        for value in values:
            while value in self.graph.views:
                value, _ = self.graph.views[value]
                found.add(value)
        return found

    # --- tensors -----------------------------------------------------------------------------

    def get_type(self, value: FloatValue) -> TensorType:
        """Return the type of a value in the quantized program."""
        return self.scales.choose_type(value) if value in self.quantized else value.type

    def set_tensor(self, value: FloatValue, tensor: Tensor) -> None:
        """Set the tensor that holds a value in the type of the quantized program."""
        self._tensors[value, self.get_type(value)] = tensor

    def get_tensor(self, value: FloatValue, type_: TensorType) -> Tensor:
        """Return a tensor that holds a value in a given type; convert the value if necessary."""
        known = self._tensors.get((value, type_))
        if known is not None:
            return known
        array = self.graph.get_constant(value)
        if array is None:
            tensor = self._convert(value, type_)
        else:
            tensor = self.add_real_constant(value.name, array, type_)
            if type_.quant is not None:
                self.record_float_values(tensor, array)
        if len(self.graph.producers.get(value, ())) < 2:  # parts may change before the next use
            self._tensors[value, type_] = tensor
        return tensor

    def record_float_values(self, constant: Tensor, array: Array) -> None:
        """Record the float values from which a constant was quantized."""
        if array.dtype == np.float32:
            self._floats[constant.name] = array

    def add_real_constant(self, name: str, array: Array, type_: TensorType) -> Tensor:
        """Add a constant from real values, which are quantized if its type is quantized."""
        if type_.quant is not None:
            array = quantize(array, get_parameters(type_), type_.elem)
        return self.add_constant(name, array, type_)

    def _convert(self, value: FloatValue, type_: TensorType) -> Tensor:
        own = self.get_type(value)
        if own.quant is None:
            opcode, name = "quantize", f"{self.reader}_quantize"
        elif type_.quant is None:
            opcode, name = "dequantize", f"{value.name}_dequantize"
        else:
            opcode, name = "rescalequantized", f"{self.reader}_rescale"
        buffer = self.allocate(f"{name}_res", type_)
        self.add_instruction(opcode, name, (buffer, self._tensors[value, own]))
        return buffer

    def get_result_tensor(self, node: FloatNode, value: FloatValue) -> Tensor:
        """Return the tensor for a node's result: a buffer, an output, or a view of a region."""
        type_, output = self.get_type(value), self.direct_outputs.get(value)
        if (value, type_) not in self._tensors:
            self._tensors[value, type_] = (
                self.variables[output] if output else self.allocate(f"{self.reader}_res", type_)
            )
        whole, part = self._tensors[value, type_], node.region
        if part is None or part.type.shape == value.type.shape:
            return whole
        offsets = np.unravel_index(part.start, value.type.shape) if value.type.shape else ()
        view = attrs.evolve(type_, shape=part.type.shape)
        return self.add_view(whole, view, tuple(map(int, offsets)), f"{whole.name}_part")

    # --- instructions ------------------------------------------------------------------------

    def _write_view(self, node: FloatNode) -> None:
        (result,), (source,) = node.results, node.sources
        if self.graph.get_constant(result) is not None:
            return  # what reads it gets a constant of its own
        type_ = self.get_type(result)
        whole = self.get_tensor(source, attrs.evolve(type_, shape=source.type.shape))
        self.set_tensor(result, self.add_view(whole, type_, _offsets(node), result.name))

    def _write(self, node: FloatNode, form: _QuantizedForm) -> None:
        (opcode, sources, attributes), instruction = form, node.instruction
        kinds = ["@out", IN] if node.is_implicit else [o.kind for o in instruction.operands]
        results = iter([self.get_result_tensor(node, value) for value in node.results])
        read = iter(sources)
        operands = [next(read) if kind == IN else next(results) for kind in kinds]
        operands += read  # an opcode in place of another one may have more, after the others
        name = self.add_instruction(opcode, instruction.name, operands, **attributes)
        self._last_writers.update(dict.fromkeys(node.results, (node, name)))
        if not node.is_implicit:
            self._layer_names[instruction.name] = name

    def _make_form(self, node: FloatNode) -> _QuantizedForm:
        """Return the instruction in its new form."""
        result, attributes = node.results[0], node.instruction.attributes
        if result not in self.quantized:
            return node.opcode, [self.get_tensor(s, s.type) for s in node.sources], attributes
        chain = self._chains.get(result)
        if chain is None and node.kind is OpcodeKind.FUNCTION:
            chain = ElementwiseChain(node.sources[0], (node,))
        if chain:
            return "intlookuptable", (self._read(chain.source), self._add_table(node, chain)), {}
        if node.kind in WEIGHTED:
            return self._make_weighted_form(node)
        return node.opcode, self._read_sources(node), attributes

    def _read(self, value: FloatValue) -> Tensor:
        """Return a value as a quantized operation reads it."""
        return self.get_tensor(value, self.scales.choose_type(value))

    def _read_sources(self, node: FloatNode) -> list[Tensor]:
        """Return the sources of a node, those of a part with the parameters of the whole."""
        if node.region:
            whole = self.get_type(node.results[0])
            types = [attrs.evolve(whole, shape=source.type.shape) for source in node.sources]
            return list(map(self.get_tensor, node.sources, types))
        if node.kind is OpcodeKind.BATCHED_ADD and (chosen := self._find_slice_parameters(node)):
            batch, bias = node.sources
            return [self._read(batch), self._add_bias(bias, chosen)]
        return list(map(self._read, node.sources))

    def _find_slice_parameters(self, node: FloatNode) -> Parameters | None:
        """Return the parameters of the bias in a ``batchedadd`` after a constant product, or None.

        Glow makes these two of a fully connected layer, and quantizes the bias as that layer's.
        """
        batch, bias = node.sources
        producers = self.graph.producers.get(batch, [])
        is_product = [one.kind for one in producers] == [
            OpcodeKind.PRODUCT
        ] and batch in self.quantized
        if not is_product or self.graph.get_constant(bias) is None:
            return None
        source, weights = producers[0].sources
        is_constant = self.graph.get_constant(weights) is not None
        return self._choose_bias(bias, source, weights) if is_constant else None

    def _add_table(self, node: FloatNode, chain: ElementwiseChain) -> Tensor:
        """Add the table of a node's function for each integer of the chain's source."""
        source, result = (
            self.scales.choose_type(chain.source),
            self.scales.choose_type(node.results[0]),
        )
        limits = np.iinfo(ELEM_DTYPES[source.elem])
        integers = np.arange(limits.min, int(limits.max) + 1)
        reals = dequantize(integers, attrs.evolve(source, shape=integers.shape))
        table = attrs.evolve(result, shape=integers.shape)
        name = f"{node.instruction.name}_table"
        return self.add_real_constant(name, chain.evaluate(self.graph, reals), table)

    # --- weights and biases ------------------------------------------------------------------

    def _make_weighted_form(self, node: FloatNode) -> _QuantizedForm:
        """Return the quantized form of a convolution or fully connected layer."""
        source, settings = self._read(node.sources[0]), self._settings
        if settings.per_channel and node.kind is OpcodeKind.CONVOLUTION:
            return self._make_channelwise_form(node, source)
        if settings.per_channel and settings.elem == "i8":  # there is no row-wise Int16
            return self._make_rowwise_form(node, source)
        operands = source, self._read(node.sources[1]), self._add_layer_bias(node)
        return node.opcode, operands, node.instruction.attributes

    def _make_rowwise_form(self, node: FloatNode, source: Tensor) -> _QuantizedForm:
        """Return the form with a scale and an offset for each output, and one for the bias."""
        rows = self._array(node.sources[1]).T
        chosen = self._choose(rows.min(1), rows.max(1), self._settings.elem)
        operands = (
            source,
            self._add_channels(node.sources[1], rows, chosen, self._settings.elem),
            self._add_layer_bias(node),
            *self._add_scales("", chosen),
        )
        return "rowwisequantizedfullyconnected", operands, {}

    def _make_channelwise_form(self, node: FloatNode, source: Tensor) -> _QuantizedForm:
        """Return the form with a scale for each output channel of filter and bias.

        Filters have no offsets: where the schema is asymmetric, Glow takes the symmetric one here.
        """
        settings, (filters, bias) = self._settings, map(self._array, node.sources[1:])
        low, high = filters.min((1, 2, 3)), filters.max((1, 2, 3))
        chosen = self._choose(low, high, settings.elem, is_symmetric=True)
        if settings.bias_on_result:
            result = get_parameters(self.get_type(node.results[0]))
            chosen_bias = Parameters(
                np.full(bias.shape, result.scale), np.full(bias.shape, result.offset)
            )
        else:
            chosen_bias, chosen = choose_bias_weights_parameters(
                self._choose(bias, bias, settings.bias_elem, is_symmetric=True),
                get_parameters(source.type).scale,
                chosen,
                settings.bias_elem,
                bias == 0,
            )
        self._record_saturation(node, bias, chosen_bias)
        operands = (
            source,
            self._add_channels(node.sources[1], filters, chosen, settings.elem),
            self._add_channels(node.sources[2], bias, chosen_bias, settings.bias_elem),
            *self._add_scales("filter", chosen),
            *self._add_scales("bias", chosen_bias),
        )
        attributes = {k: v for k, v in node.instruction.attributes.items() if k != "Layout"}
        return "channelwisequantizedconvolution", operands, attributes

    def _choose(self, low: Array, high: Array, elem: str, is_symmetric: bool = False) -> Parameters:
        """Return the parameters of a range by the schema, or by the symmetric one instead."""
        schema = self._settings.schema
        if is_symmetric and schema == "asymmetric":
            schema = "symmetric"
        return choose_parameters(low, high, schema, elem)

    def _choose_bias(self, bias: FloatValue, source: FloatValue, weights: FloatValue) -> Parameters:
        """Return the parameters of a bias that is added to a sum of products."""
        array, elem = self._array(bias), self._settings.bias_elem
        first, second = (
            get_parameters(self.scales.choose_type(one)).scale for one in (source, weights)
        )
        own = self._choose(array.min(), array.max(), elem)
        return choose_bias_parameters(own, first, second, elem, not array.any())

    def _add_layer_bias(self, node: FloatNode) -> Tensor:
        """Add a bias with one scale: the result's if so chosen, else Glow's."""
        source, weights, bias = node.sources
        if self._settings.bias_on_result:
            chosen = get_parameters(self.get_type(node.results[0]))
        else:
            chosen = self._choose_bias(bias, source, weights)
        self._record_saturation(node, self._array(bias), chosen)
        return self._add_bias(bias, chosen)

    def _add_bias(self, bias: FloatValue, chosen: Parameters) -> Tensor:
        type_ = make_tensor_type(self._settings.bias_elem, bias.type.shape, chosen)
        return self.get_tensor(bias, type_)

    def _record_saturation(self, node: FloatNode, bias: Array, chosen: Parameters) -> None:
        if count := count_saturated(bias, chosen, self._settings.bias_elem):
            self._saturated[node.results[0]] = count

    def _array(self, value: FloatValue) -> Array:
        """Return the elements of weights or a bias, which are constant on the device."""
        array = self.graph.get_constant(value)
        if array is None:
            raise TypeError(f"%{value.name} is not a constant")
        return array

    def _add_channels(
        self, source: FloatValue, reals: Array, parameters: Parameters, elem: str
    ) -> Tensor:
        """Add a quantized constant with other parameters for each index of dimension 0."""
        column = (-1, *(1,) * (reals.ndim - 1))
        wide = Parameters(parameters.scale.reshape(column), parameters.offset.reshape(column))
        type_ = TensorType(elem, reals.shape, _DUMMY)
        constant = self.add_constant(source.name, quantize(reals, wide, elem), type_)
        self.record_float_values(constant, reals)
        return constant

    def _add_scales(self, what: str, parameters: Parameters) -> list[Tensor]:
        """Add constants with scales and offsets."""
        return [
            self.add_constant(
                f"{self.reader}_{what}{suffix}", values, TensorType(elem, values.shape)
            )
            for suffix, values, elem in (
                ("Scales", parameters.scale, "float"),
                ("Offsets", parameters.offset, "index32"),
            )
        ]

    # --- outputs -----------------------------------------------------------------------------

    def _write_outputs(self) -> None:
        """Write outputs from the tensors that hold their values elsewhere."""
        left = {w: v for w, v in self.graph.outputs.items() if self.direct_outputs.get(v) != w}
        sources = {weight: self._read_output(weight, value) for weight, value in left.items()}
        for weight, value in left.items():
            self._begin_output(weight)
            opcode = "dequantize" if value in self.quantized else "copy"
            operands = (self.variables[weight], sources[weight])
            self.add_instruction(opcode, f"{value.name}_{opcode}", operands)

    def _begin_output(self, weight: str) -> None:
        self.reader = f"{weight}_copy"
        self.span = next(one.span for one in self._variables if one.name == weight)

    def _read_output(self, weight: str, value: FloatValue) -> Tensor:
        """Return a tensor with an output's value and shape that no other output overwrites."""
        self._begin_output(weight)
        own = self.get_type(value)
        shown = attrs.evolve(own, shape=self.variables[weight].shape)
        tensor = self.get_tensor(value, own)
        if own.shape != shown.shape:
            tensor = self.add_view(tensor, shown, (), f"{tensor.name}_view")
        viewed = self._with_viewed([value])
        if any(one.kind == "input" and one.name in self.graph.outputs for one in viewed):
            saved = self.allocate(f"{self.reader}_res", shown)
            self.add_instruction("copy", self.reader, (saved, tensor))
            tensor = saved
        return tensor


def _offsets(node: FloatNode) -> tuple[int, ...]:
    offsets = node.instruction.attributes["Offsets"]
    return tuple(int(o) for o in offsets) if isinstance(offsets, tuple) else ()
