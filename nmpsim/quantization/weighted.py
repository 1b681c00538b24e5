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
from nmpsim.quantization.module_writer import TensorMap
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
    sources: tuple[str, ...]
    attributes: Mapping[str, AttributeValue]


def quantize_weighted_layer(node: Node, tensors: TensorMap, settings: Settings) -> InstructionForm:
    """Return the quantized form of a convolution or fully connected layer."""
    if settings.per_channel and node.kind is Kind.CONVOLUTION:
        return _channelwise(node, tensors, settings)
    if settings.per_channel and settings.elem == "i8":  # there is no row-wise Int16
        return _rowwise(node, tensors, settings)
    weights = tensors.scales.type_of(node.sources[1])
    names = (
        _source(node, tensors),
        tensors.get(node.sources[1], weights, node.instruction),
        _bias(node, tensors, settings),
    )
    return InstructionForm(node.opcode, names, node.instruction.attributes)


def quantize_slice(node: Node, tensors: TensorMap, settings: Settings) -> str | None:
    """Return the quantized bias that ``batchedadd`` adds to a constant product, or None.

    Glow makes these two of a fully connected layer, and quantizes the bias as that layer's.
    """
    batch, bias = node.sources
    producers = tensors.producers.get(batch, [])
    if [node.kind for node in producers] != [Kind.PRODUCT] or tensors.graph.constant(bias) is None:
        return None
    source, weights = producers[0].sources
    if batch not in tensors.quantized or tensors.graph.constant(weights) is None:
        return None
    chosen = _on_product(bias, source, weights, tensors, settings)
    type_ = make_quantized_type(settings.bias_elem, bias.type.shape, chosen)
    return tensors.get(bias, type_, node.instruction)


def _source(node: Node, tensors: TensorMap) -> str:
    source = node.sources[0]
    return tensors.get(source, tensors.scales.type_of(source), node.instruction)


def _bias(node: Node, tensors: TensorMap, settings: Settings) -> str:
    """Return a bias with one scale: the result's if so chosen, else Glow's."""
    source, weights, bias = node.sources
    if settings.bias_on_result:
        chosen = get_parameters(tensors.type_of(node.results[0]))
    else:
        chosen = _on_product(bias, source, weights, tensors, settings)
    _record_saturation(node, _array(bias, tensors), chosen, tensors, settings)
    type_ = make_quantized_type(settings.bias_elem, bias.type.shape, chosen)
    return tensors.get(bias, type_, node.instruction)


def _record_saturation(
    node: Node, bias: Array, chosen: Parameters, tensors: TensorMap, settings: Settings
) -> None:
    count = count_saturated(bias, chosen, settings.bias_elem)
    if count:
        tensors.saturated[node.results[0]] = count


def _on_product(
    bias: Value, source: Value, weights: Value, tensors: TensorMap, settings: Settings
) -> Parameters:
    """Return the parameters of a bias that is added to a sum of products."""
    array = _array(bias, tensors)
    return choose_bias_parameters(
        choose_parameters(array.min(), array.max(), settings.schema, settings.bias_elem),
        get_parameters(tensors.scales.type_of(source)).scale,
        get_parameters(tensors.scales.type_of(weights)).scale,
        settings.bias_elem,
        not array.any(),
    )


def _rowwise(node: Node, tensors: TensorMap, settings: Settings) -> InstructionForm:
    """Return the form with a scale and an offset for each output, and one for the bias."""
    rows = _array(node.sources[1], tensors).T
    chosen = choose_parameters(rows.min(1), rows.max(1), settings.schema, settings.elem)
    weights = quantize(rows, _column(chosen, 2), settings.elem)
    names = (
        _source(node, tensors),
        _constant(node, tensors, 1, weights, rows, settings.elem),
        _bias(node, tensors, settings),
        *_scales(node, tensors, "", chosen),
    )
    return InstructionForm("rowwisequantizedfullyconnected", names, {})


def _channelwise(node: Node, tensors: TensorMap, settings: Settings) -> InstructionForm:
    """Return the form with a scale for each output channel of filter and bias.

    Filters have no offsets: where the schema is asymmetric, Glow takes the symmetric one here.
    """
    filters, bias = (_array(value, tensors) for value in node.sources[1:])
    chosen, of_bias = _channel_parameters(node, filters, bias, tensors, settings)
    integers = quantize(filters, _column(chosen, 4), settings.elem)
    biases = quantize(bias, of_bias, settings.bias_elem)
    _record_saturation(node, bias, of_bias, tensors, settings)
    names = (
        _source(node, tensors),
        _constant(node, tensors, 1, integers, filters, settings.elem),
        _constant(node, tensors, 2, biases, bias, settings.bias_elem),
        *_scales(node, tensors, "filter", chosen),
        *_scales(node, tensors, "bias", of_bias),
    )
    attributes = {k: v for k, v in node.instruction.attributes.items() if k != "Layout"}
    return InstructionForm("channelwisequantizedconvolution", names, attributes)


def _channel_parameters(
    node: Node, filters: Array, bias: Array, tensors: TensorMap, settings: Settings
) -> tuple[Parameters, Parameters]:
    """Return the parameters of filter and bias."""
    schema = "symmetric" if settings.schema == "asymmetric" else settings.schema
    low, high = filters.min((1, 2, 3)), filters.max((1, 2, 3))
    chosen = choose_parameters(low, high, schema, settings.elem)
    if settings.bias_on_result:
        result = get_parameters(tensors.type_of(node.results[0]))
        return chosen, Parameters(
            np.full(bias.shape, result.scale), np.full(bias.shape, result.offset)
        )
    own = choose_parameters(bias, bias, schema, settings.bias_elem)
    source = get_parameters(tensors.scales.type_of(node.sources[0])).scale
    of_bias, chosen = choose_bias_and_weights(own, source, chosen, settings.bias_elem, bias == 0)
    return chosen, of_bias


def _array(value: Value, tensors: TensorMap) -> Array:
    """Return the elements of weights or a bias, which are constant on the device."""
    array = tensors.graph.constant(value)
    if array is None:
        raise TypeError(f"%{value.name} is not a constant")
    return array


def _column(parameters: Parameters, dimensions: int) -> Parameters:
    """Return parameters that broadcast along dimension 0."""
    shape = (-1, *(1,) * (dimensions - 1))
    return Parameters(parameters.scale.reshape(shape), parameters.offset.reshape(shape))


def _constant(
    node: Node, tensors: TensorMap, place: int, values: Array, reals: Array, elem: str
) -> str:
    """Add a constant whose scales are elsewhere, named after the source at this place."""
    type_ = TensorType(elem, values.shape, _DUMMY)
    wanted, span = node.sources[place].name, node.instruction.span
    name = tensors.writer.constant(wanted, values, type_, span)
    tensors.record_float(name, reals)
    return name


def _scales(node: Node, tensors: TensorMap, what: str, parameters: Parameters) -> tuple[str, str]:
    """Add constants with scales and offsets."""
    stem, span = f"{node.instruction.name}_{what}", node.instruction.span
    scales = TensorType("float", parameters.scale.shape)
    offsets = TensorType("index32", parameters.offset.shape)
    return (
        tensors.writer.constant(f"{stem}Scales", parameters.scale, scales, span),
        tensors.writer.constant(f"{stem}Offsets", parameters.offset, offsets, span),
    )
