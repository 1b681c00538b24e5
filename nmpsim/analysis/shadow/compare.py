"""Errors of a run against its evaluation in real arithmetic, layer by layer.

With ``y`` the device's dequantized output of a layer and ``op`` its operation in real arithmetic,

    F   the float network's value                          (float weights, float inputs)
    L   op on the layer's actual, quantized inputs             (float weights and bias)
    B   as L, with the quantized bias
    R   as B, with the quantized weights too
    C   R clipped to the range that the type of the output has

the error ``y - F`` is the sum of

    inherited     L - F   from earlier layers
    bias          B - L   quantization of the bias
    weights       R - B   quantization of the weights
    saturation    C - R   values beyond the range, or saturated on the way
    rescale       y - C   rounding

A ReLU that the network asks for, hidden in a type or not, is part of ``op``: it clips, but does
not saturate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.shadow.recording import (
    ExecutedLayer,
    LayerInstruction,
    replay_layers,
)
from nmpsim.arrays import Array, Arrays
from nmpsim.interpreter import (
    compute_sqnr_db,
    dequantize,
    dequantize_operands,
    evaluate_operation,
    execute_real,
    view_tensor,
)
from nmpsim.lir.nodes import QUANTIZED_ELEMS, Module, TensorType
from nmpsim.report.analyses import ErrorSize, ShadowLayer, Split

Real = npt.NDArray[np.float64]
Floats = Mapping[str, Real]
"""Float values of constants by name, in the LIR's layout."""


def compare_layer(
    index: int,
    layer: ExecutedLayer,
    floats: Floats | None,
    network: Real | None,
    saturated_channels: Collection[int] = (),
) -> ShadowLayer:
    """Compare a layer's output with real arithmetic and return its errors.

    Parameters
    ----------
    index
        Position of the layer in the report.
    layer
        Its operands and its output on the device.
    floats
        Float values of constants; None without float weights.
    network
        Output of the float network; None without float weights.
    saturated_channels
        Channels in which the device saturated values before the result.
    """
    name = layer.steps[-1].instruction.name
    if reason := _not_comparable(layer):
        return ShadowLayer(index, layer.number, name, reason)
    values = evaluate_layer(layer, floats, network, saturated_channels)
    quant = layer.result.type.quant
    unit = quant.scale if quant else None

    def against(right: Real | None, found: Real | None = values.device) -> ErrorSize | None:
        if right is None or found is None:
            return None
        return measure_error(right, found - right, unit)

    return ShadowLayer(
        index,
        layer.number,
        name,
        accumulated=against(values.network),
        isolated=against(values.isolated),
        rounding=against(values.real),
        bias=against(values.isolated, values.quantized_bias)
        if _constants(layer, of_bias=True)
        else None,
        split=split_error(values, unit),
    )


def evaluate_layer(
    layer: ExecutedLayer,
    floats: Floats | None,
    network: Real | None,
    saturated_channels: Collection[int] = (),
) -> Evaluations:
    """Evaluate a layer in real arithmetic, with its quantized and with its float constants.

    Parameters
    ----------
    layer
        Operands of the layer and its output on the device.
    floats
        Float values of constants; None without float weights.
    network
        Output of the float network; None without float weights.
    saturated_channels
        Channels in which the device saturated values before the result.
    """
    type_ = layer.result.type
    real = _real(layer, {}, {})
    device = dequantize(layer.output, type_)
    in_range = add_early_saturation(clip_to_range(real, type_), device, saturated_channels, type_)
    if floats is None:
        return Evaluations(device, real, in_range)
    bias, weights = (
        {n: v for n, v in floats.items() if n in _constants(layer, of_bias)}
        for of_bias in (True, False)
    )
    quantized_bias = _real(layer, weights, {}) if weights else real
    isolated = _real(layer, weights, bias) if bias else quantized_bias
    return Evaluations(device, real, in_range, quantized_bias, isolated, network)


def _real(layer: ExecutedLayer, weights: Floats, bias: Floats) -> Real:
    """Return the layer's output in real arithmetic, with these constants in float."""
    results: dict[str, Real] = {}
    for step in layer.steps:
        values = _operands(step, weights, bias)
        for index, operand in enumerate(step.operands):
            if operand.place.storage in results:
                values[index] = results[operand.place.storage].reshape(operand.type.shape)
        result = evaluate_operation(step.instruction, step.types, values)[step.result_index]
        results = {step.operands[step.result_index].place.storage: result}
    return result


def _operands(step: LayerInstruction, weights: Floats, bias: Floats) -> list[Real]:
    """Return real values of all operands, in print order."""
    values = dequantize_operands(step.instruction, step.types, [o.stored for o in step.operands])
    for index, operand in enumerate(step.operands):
        floats = bias if operand.is_bias else weights
        if operand.is_constant and operand.place.storage in floats:
            values[index] = view_tensor(floats[operand.place.storage], operand.place)
    return values


def _constants(layer: ExecutedLayer, of_bias: bool) -> set[str]:
    """Return the names of the constants that are a bias of the layer, or of the others."""
    return {
        operand.place.storage
        for step in layer.steps
        for operand in step.operands
        if operand.is_constant and operand.is_bias == of_bias
    }


def _not_comparable(layer: ExecutedLayer) -> str:
    elem = layer.result.type.elem
    if elem not in QUANTIZED_ELEMS and not elem.startswith("float"):
        return f"its output is of {elem}, not of real numbers"
    return "" if layer.complete else "parts of its output are not written yet"


@attrs.frozen
class RunLayer:
    """Layer of a recorded run, given by the numbers of its instructions."""

    numbers: tuple[int, ...]
    """Numbers of its instructions, in order."""
    saturated_channels: frozenset[int] = frozenset()
    """Channels in which the device saturated values before the result."""


@attrs.frozen(eq=False)
class RecordedResults:
    """Results of a recorded run: inputs, layers and outputs."""

    inputs: Arrays
    """Stored values of the program's inputs by name."""
    real_inputs: Arrays
    """Real values of the inputs, before quantization if the inputs are quantized."""
    layers: Sequence[RunLayer]
    outputs: Mapping[int, Array]
    """Output in the logical shape by the number of a layer's last instruction."""


def compare_run(
    module: Module, run: RecordedResults, floats: Floats | None = None
) -> Iterator[ShadowLayer]:
    """Compare each layer of a run with real arithmetic; yield the errors in program order.

    Parameters
    ----------
    module
        The program, with its constants.
    run
        The recorded run.
    floats
        Float values of constants, in the LIR's layout; without them only some errors
        are known.
    """
    network = None if floats is None else _FloatNetwork(module, run, floats)
    chains = [layer.numbers for layer in run.layers]
    index_of = {numbers[-1]: index for index, numbers in enumerate(chains)}
    for layer in replay_layers(module, chains, run.inputs, run.outputs):
        index = index_of[layer.number]
        yield compare_layer(
            index,
            layer,
            floats,
            None if network is None else network.output(layer.number),
            run.layers[index].saturated_channels,
        )


class _FloatNetwork:
    """The float network, executed on demand."""

    def __init__(self, module: Module, run: RecordedResults, floats: Floats) -> None:
        self._results = execute_real(module, run.real_inputs, floats)
        self._wanted = {layer.numbers[-1] for layer in run.layers}
        self._ready: dict[int, Real] = {}

    def output(self, number: int) -> Real:
        """Return the value of an instruction's first result; call once per instruction."""
        while number not in self._ready:
            instruction, _, values = next(self._results)
            if instruction.number in self._wanted:
                self._wanted.remove(instruction.number)
                self._ready[instruction.number] = np.asarray(values, np.float64)
        return self._ready.pop(number)


@attrs.frozen(eq=False)
class Evaluations:
    """Evaluations of a layer's output on the device and in real arithmetic, of equal shape."""

    device: Real
    """``y``: the device's dequantized output."""
    real: Real
    """``R``: with quantized weights and bias."""
    in_range: Real
    """``C``: clipped to the output type's range."""
    quantized_bias: Real | None = None
    """``B``: with quantized bias; None, as the next two, without float weights."""
    isolated: Real | None = None
    """``L``: with float weights and bias."""
    network: Real | None = None
    """``F``: of the float network."""


def measure_error(reference: Real, error: Real, step: float | None) -> ErrorSize:
    """Measure an error relative to the reference, as SQNR and in units of the last place.

    Parameters
    ----------
    reference
        The expected values.
    error
        Actual values minus expected ones.
    step
        Real size of one unit of the last place; None if the output is float.
    """
    size = np.abs(error)
    return ErrorSize(
        sqnr_db=compute_sqnr_db(reference, error),
        mean_error_ulp=None if step is None else float(size.mean()) / step,
        max_error_ulp=None if step is None else float(size.max(initial=0.0)) / step,
    )


def clip_to_range(real: Real, type_: TensorType) -> Real:
    """Clip real values to the range of a quantized type; return them unchanged for a float type."""
    if type_.quant is None:
        return real
    limits = np.iinfo(type_.dtype)
    low, high = (type_.quant.scale * (q - type_.quant.offset) for q in (limits.min, limits.max))
    return np.clip(real, low, high)


def add_early_saturation(
    in_range: Real, device: Real, channels: Collection[int], type_: TensorType
) -> Real:
    """Return clipped real values, replaced by device values where an intermediate saturated.

    In the channels that the device reports, an error of more than one unit of the last place is
    saturation; rounding errors are smaller.

    Parameters
    ----------
    in_range
        ``C``: real values clipped to the type's range.
    device
        ``y``: values of the device.
    channels
        Channels in which the device saturated values before the result.
    type_
        Type of the result.
    """
    if not channels or type_.quant is None:
        return in_range
    concerned = np.isin(np.arange(type_.shape[-1]), list(channels))
    saturated = concerned & (np.abs(device - in_range) > type_.quant.scale)
    return np.where(saturated, device, in_range)


def split_error(values: Evaluations, step: float | None) -> Split:
    """Split a layer's error into the errors of consecutive evaluations.

    Parameters
    ----------
    values
        The evaluations of the layer.
    step
        Real size of one unit of the last place; None if the output is float.

    Returns
    -------
    Split
        Parts whose SQNR is relative to the float network, or to ``R`` without one.
    """
    reference = values.real if values.network is None else values.network
    steps = (values.network, values.isolated, values.quantized_bias, values.real)
    inherited, bias, weights = (
        None if right is None or found is None else measure_error(reference, found - right, step)
        for right, found in pairwise(steps)
    )
    saturation = measure_error(reference, values.in_range - values.real, step)
    rescale = measure_error(reference, values.device - values.in_range, step)
    return Split(inherited, bias, weights, saturation, rescale)
