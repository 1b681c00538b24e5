"""Operations with weights: their quantized constants, and the opcode that goes with these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.lir.nodes import AttributeValue, Quantization, TensorType
from nmpsim.lir.opcode import Kind
from nmpsim.quantization.graph import Node, Value
from nmpsim.quantization.parameters import (
    Parameters,
    choose_bias_and_weights,
    choose_bias_parameters,
    choose_parameters,
    count_saturated,
    quantize,
)
from nmpsim.quantization.scales import parameters_of, quantized_type
from nmpsim.quantization.settings import Settings
from nmpsim.quantization.tensors import Tensors

Array = npt.NDArray[Any]

_DUMMY = Quantization(1.0, 0, 0.0, 0.0)
"""In the type of a constant whose scales are in constants of their own."""


@attrs.frozen
class Form:
    """An instruction in place of a float one: its opcode, the tensors it reads, attributes."""

    opcode: str
    sources: tuple[str, ...]
    attributes: Mapping[str, AttributeValue]


def weighted_form(node: Node, tensors: Tensors, settings: Settings) -> Form:
    """A convolution or fully connected layer, quantized."""
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
    return Form(node.opcode, names, node.instruction.attributes)


def slice_of(node: Node, tensors: Tensors, settings: Settings) -> str | None:
    """The bias that a ``batchedadd`` adds to a product with constant weights; None if it is other.

    Glow makes these two of a fully connected layer, and quantizes the bias as that layer's.
    """
    batch, bias = node.sources
    makers = tensors.makers.get(batch, [])
    if [node.kind for node in makers] != [Kind.PRODUCT] or tensors.graph.constant(bias) is None:
        return None
    source, weights = makers[0].sources
    if batch not in tensors.quantized or tensors.graph.constant(weights) is None:
        return None
    chosen = _on_product(bias, source, weights, tensors, settings)
    type_ = quantized_type(settings.bias_elem, bias.type.shape, chosen)
    return tensors.get(bias, type_, node.instruction)


def _source(node: Node, tensors: Tensors) -> str:
    source = node.sources[0]
    return tensors.get(source, tensors.scales.type_of(source), node.instruction)


def _bias(node: Node, tensors: Tensors, settings: Settings) -> str:
    """A bias with one scale: that of the result if so chosen, else as Glow has it."""
    source, weights, bias = node.sources
    if settings.bias_on_result:
        chosen = parameters_of(tensors.type_of(node.results[0]))
    else:
        chosen = _on_product(bias, source, weights, tensors, settings)
    _note_saturation(node, _array(bias, tensors), chosen, tensors, settings)
    type_ = quantized_type(settings.bias_elem, bias.type.shape, chosen)
    return tensors.get(bias, type_, node.instruction)


def _note_saturation(
    node: Node, bias: Array, chosen: Parameters, tensors: Tensors, settings: Settings
) -> None:
    count = count_saturated(bias, chosen, settings.bias_elem)
    if count:
        tensors.saturated[node.results[0]] = count


def _on_product(
    bias: Value, source: Value, weights: Value, tensors: Tensors, settings: Settings
) -> Parameters:
    """Parameters of a bias that is added to a sum of products."""
    array = _array(bias, tensors)
    return choose_bias_parameters(
        choose_parameters(array.min(), array.max(), settings.schema, settings.bias_elem),
        parameters_of(tensors.scales.type_of(source)).scale,
        parameters_of(tensors.scales.type_of(weights)).scale,
        settings.bias_elem,
        not array.any(),
    )


def _rowwise(node: Node, tensors: Tensors, settings: Settings) -> Form:
    """A scale and an offset for each output; the bias has one scale, as without rows."""
    rows = _array(node.sources[1], tensors).T
    chosen = choose_parameters(rows.min(1), rows.max(1), settings.schema, settings.elem)
    weights = quantize(rows, _column(chosen, 2), settings.elem)
    names = (
        _source(node, tensors),
        _constant(node, tensors, 1, weights, rows, settings.elem),
        _bias(node, tensors, settings),
        *_scales(node, tensors, "", chosen),
    )
    return Form("rowwisequantizedfullyconnected", names, {})


def _channelwise(node: Node, tensors: Tensors, settings: Settings) -> Form:
    """A scale for each output channel of filter and bias.

    Filters have no offsets: where the schema is asymmetric, Glow takes the symmetric one here.
    """
    filters, bias = (_array(value, tensors) for value in node.sources[1:])
    chosen, of_bias = _channel_parameters(node, filters, bias, tensors, settings)
    integers = quantize(filters, _column(chosen, 4), settings.elem)
    biases = quantize(bias, of_bias, settings.bias_elem)
    _note_saturation(node, bias, of_bias, tensors, settings)
    names = (
        _source(node, tensors),
        _constant(node, tensors, 1, integers, filters, settings.elem),
        _constant(node, tensors, 2, biases, bias, settings.bias_elem),
        *_scales(node, tensors, "filter", chosen),
        *_scales(node, tensors, "bias", of_bias),
    )
    attributes = {k: v for k, v in node.instruction.attributes.items() if k != "Layout"}
    return Form("channelwisequantizedconvolution", names, attributes)


def _channel_parameters(
    node: Node, filters: Array, bias: Array, tensors: Tensors, settings: Settings
) -> tuple[Parameters, Parameters]:
    """Of filter and bias."""
    schema = "symmetric" if settings.schema == "asymmetric" else settings.schema
    low, high = filters.min((1, 2, 3)), filters.max((1, 2, 3))
    chosen = choose_parameters(low, high, schema, settings.elem)
    if settings.bias_on_result:
        result = parameters_of(tensors.type_of(node.results[0]))
        return chosen, Parameters(
            np.full(bias.shape, result.scale), np.full(bias.shape, result.offset)
        )
    own = choose_parameters(bias, bias, schema, settings.bias_elem)
    source = parameters_of(tensors.scales.type_of(node.sources[0])).scale
    of_bias, chosen = choose_bias_and_weights(own, source, chosen, settings.bias_elem, bias == 0)
    return chosen, of_bias


def _array(value: Value, tensors: Tensors) -> Array:
    """The elements of weights or a bias; what is placed on the device has constant ones."""
    array = tensors.graph.constant(value)
    if array is None:
        raise TypeError(f"%{value.name} is not a constant")
    return array


def _column(parameters: Parameters, dimensions: int) -> Parameters:
    """Parameters that broadcast along dimension 0."""
    shape = (-1, *(1,) * (dimensions - 1))
    return Parameters(parameters.scale.reshape(shape), parameters.offset.reshape(shape))


def _constant(
    node: Node, tensors: Tensors, place: int, values: Array, reals: Array, elem: str
) -> str:
    """A constant whose scales are elsewhere, named as the source at this place."""
    type_ = TensorType(elem, values.shape, _DUMMY)
    wanted, span = node.sources[place].name, node.instruction.span
    name = tensors.writer.constant(wanted, values, type_, span)
    tensors.note_float(name, reals)
    return name


def _scales(node: Node, tensors: Tensors, what: str, parameters: Parameters) -> tuple[str, str]:
    """Constants with scales and offsets."""
    stem, span = f"{node.instruction.name}_{what}", node.instruction.span
    scales = TensorType("float", parameters.scale.shape)
    offsets = TensorType("index32", parameters.offset.shape)
    return (
        tensors.writer.constant(f"{stem}Scales", parameters.scale, scales, span),
        tensors.writer.constant(f"{stem}Offsets", parameters.offset, offsets, span),
    )
