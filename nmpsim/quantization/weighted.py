"""Quantization of operations with weights: constants and opcode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.lir.nodes import AttributeValue, Quantization, TensorType
from nmpsim.lir.opcode import Kind
from nmpsim.quantization.graph import Node, Value
from nmpsim.quantization.module_builder import QuantizedModuleBuilder, Tensor
from nmpsim.quantization.parameters import (
    Parameters,
    choose_bias_and_weights,
    choose_bias_parameters,
    choose_parameters,
    count_saturated,
    quantize,
)
from nmpsim.quantization.scales import get_parameters, make_quantized_type
from nmpsim.quantization.settings import Settings

Array = npt.NDArray[Any]

_DUMMY = Quantization(1.0, 0, 0.0, 0.0)
"""Parameters in the type of a constant whose scales are constants of their own."""


@attrs.frozen
class InstructionForm:
    """An instruction that replaces a float one: opcode, tensors read, and attributes."""

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
    weights = builder.scales.type_of(node.sources[1])
    names = (
        _source(node, builder),
        builder.get_tensor(node.sources[1], weights),
        _bias(node, builder, settings),
    )
    return InstructionForm(node.opcode, names, node.instruction.attributes)


def quantize_slice(
    node: Node, builder: QuantizedModuleBuilder, settings: Settings
) -> Tensor | None:
    """Return the quantized bias that ``batchedadd`` adds to a constant product, or None.

    Glow makes these two of a fully connected layer, and quantizes the bias as that layer's.
    """
    batch, bias = node.sources
    producers = builder.producers.get(batch, [])
    if [node.kind for node in producers] != [Kind.PRODUCT] or builder.graph.constant(bias) is None:
        return None
    source, weights = producers[0].sources
    if batch not in builder.quantized or builder.graph.constant(weights) is None:
        return None
    chosen = _on_product(bias, source, weights, builder, settings)
    type_ = make_quantized_type(settings.bias_elem, bias.type.shape, chosen)
    return builder.get_tensor(bias, type_)


def _source(node: Node, builder: QuantizedModuleBuilder) -> Tensor:
    source = node.sources[0]
    return builder.get_tensor(source, builder.scales.type_of(source))


def _bias(node: Node, builder: QuantizedModuleBuilder, settings: Settings) -> Tensor:
    """Return a bias with one scale: the result's if so chosen, else Glow's."""
    source, weights, bias = node.sources
    if settings.bias_on_result:
        chosen = get_parameters(builder.type_of(node.results[0]))
    else:
        chosen = _on_product(bias, source, weights, builder, settings)
    _record_saturation(node, _array(bias, builder), chosen, builder, settings)
    type_ = make_quantized_type(settings.bias_elem, bias.type.shape, chosen)
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
        get_parameters(builder.scales.type_of(source)).scale,
        get_parameters(builder.scales.type_of(weights)).scale,
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
        result = get_parameters(builder.type_of(node.results[0]))
        return chosen, Parameters(
            np.full(bias.shape, result.scale), np.full(bias.shape, result.offset)
        )
    own = choose_parameters(bias, bias, schema, settings.bias_elem)
    source = get_parameters(builder.scales.type_of(node.sources[0])).scale
    of_bias, chosen = choose_bias_and_weights(own, source, chosen, settings.bias_elem, bias == 0)
    return chosen, of_bias


def _array(value: Value, builder: QuantizedModuleBuilder) -> Array:
    """Return the elements of weights or a bias, which are constant on the device."""
    array = builder.graph.constant(value)
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
