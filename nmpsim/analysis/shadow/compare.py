"""A run compared with its exact evaluation, layer by layer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.shadow.errors import (
    Evaluations,
    Real,
    cut_to_range,
    error_size,
    split,
    with_cuts,
)
from nmpsim.analysis.shadow.recording import Executed, LayerInstruction, executed_layers, part
from nmpsim.interpreter import dequantize, execute_real, real_operands, real_operation
from nmpsim.lir.nodes import QUANTIZED_ELEMS, Module
from nmpsim.lir.opcodes import OPCODES, Kind
from nmpsim.report.shadow import ErrorSize, ShadowLayer

Floats = Mapping[str, Real]
"""Constant -> its float values, in the LIR's layout."""

_BIASES = {
    Kind.CONVOLUTION: "Bias",
    Kind.FULLY_CONNECTED: "Bias",
    Kind.BATCHED_ADD: "Slice",
}
"""What is added to every result; other constants are weights."""


def compare_layer(
    index: int,
    layer: Executed,
    floats: Floats | None,
    network: Real | None,
    cut_channels: Collection[int] = (),
) -> ShadowLayer:
    """The errors of one layer.

    Args:
        index: position of the layer in the report.
        layer: its operands and its output, as the device had them.
        floats: float values of constants; None without float weights.
        network: what the float network has in place of the output; None without float weights.
        cut_channels: channels in which the device saturated values before the result.
    """
    name = layer.steps[-1].instruction.name
    if reason := _not_comparable(layer):
        return ShadowLayer(index, layer.number, name, reason)
    values = evaluate(layer, floats, network, cut_channels)
    quant = layer.result.type.quant
    unit = quant.scale if quant else None

    def against(right: Real | None, found: Real | None = values.device) -> ErrorSize | None:
        if right is None or found is None:
            return None
        return error_size(right, found - right, unit)

    return ShadowLayer(
        index,
        layer.number,
        name,
        accumulated=against(values.network),
        layer_alone=against(values.alone),
        rounding_alone=against(values.real),
        bias_alone=against(values.alone, values.quantized_bias) if _has_bias(layer) else None,
        split=split(values, unit),
    )


def evaluate(
    layer: Executed,
    floats: Floats | None,
    network: Real | None,
    cut_channels: Collection[int] = (),
) -> Evaluations:
    """Compute a layer in real arithmetic: with its quantized constants, and with float ones."""
    type_ = layer.result.type
    real = _real(layer, {}, {})
    device = dequantize(layer.output, type_)
    in_range = with_cuts(cut_to_range(real, type_), device, cut_channels, type_)
    if floats is None:
        return Evaluations(device, real, in_range)
    bias, weights = (
        {n: v for n, v in floats.items() if n in _constants(layer, of_bias)}
        for of_bias in (True, False)
    )
    quantized_bias = _real(layer, weights, {}) if weights else real
    alone = _real(layer, weights, bias) if bias else quantized_bias
    return Evaluations(device, real, in_range, quantized_bias, alone, network)


def _real(layer: Executed, weights: Floats, bias: Floats) -> Real:
    """The layer's output in real arithmetic, with these constants in float."""
    results: dict[str, Real] = {}
    for step in layer.steps:
        values = _operands(step, weights, bias)
        for index, operand in enumerate(step.operands):
            if operand.place.storage in results:
                values[index] = results[operand.place.storage].reshape(operand.type.shape)
        result = real_operation(step.instruction, step.types, values)[step.written]
        results = {step.operands[step.written].place.storage: result}
    return result


def _operands(step: LayerInstruction, weights: Floats, bias: Floats) -> list[Real]:
    """Real values of all operands, in print order."""
    values = real_operands(step.instruction, step.types, [o.stored for o in step.operands])
    for index, (role, operand) in enumerate(zip(_roles(step), step.operands, strict=True)):
        floats = bias if _is_bias(step, role) else weights
        if operand.is_constant and operand.place.storage in floats:
            values[index] = part(floats[operand.place.storage], operand.place)
    return values


def _constants(layer: Executed, of_bias: bool) -> set[str]:
    """Names of the constants that are a bias of the layer, or of those that are not."""
    return {
        operand.place.storage
        for step in layer.steps
        for role, operand in zip(_roles(step), step.operands, strict=True)
        if operand.is_constant and _is_bias(step, role) == of_bias
    }


def _has_bias(layer: Executed) -> bool:
    return bool(_constants(layer, of_bias=True))


def _is_bias(step: LayerInstruction, role: str) -> bool:
    return _BIASES.get(OPCODES[step.instruction.opcode].kind) == role


def _roles(step: LayerInstruction) -> list[str]:
    return [role.name for role in OPCODES[step.instruction.opcode].operands]


def _not_comparable(layer: Executed) -> str:
    elem = layer.result.type.elem
    if elem not in QUANTIZED_ELEMS and not elem.startswith("float"):
        return f"its output is of {elem}, not of real numbers"
    return "" if layer.complete else "parts of its output are not written yet"


Array = npt.NDArray[Any]


@attrs.frozen
class RunLayer:
    """What is known of one layer besides its output."""

    numbers: tuple[int, ...]
    """Numbers of its instructions, in order."""
    cut_channels: frozenset[int] = frozenset()
    """Channels in which the device saturated values before the result."""


@attrs.frozen(eq=False)
class RecordedRun:
    """What is known of a run."""

    inputs: Mapping[str, Array]
    """What each input of the program held, as it is stored."""
    real_inputs: Mapping[str, Array]
    """The real numbers that were meant: those before quantization, if the inputs are quantized."""
    layers: Sequence[RunLayer]
    outputs: Mapping[int, Array]
    """Number of a layer's last instruction -> its output in the logical shape."""


def compare_run(
    module: Module, run: RecordedRun, floats: Floats | None = None
) -> Iterator[ShadowLayer]:
    """The errors of every layer of a run, in program order.

    Args:
        module: the program, with its constants.
        run: what the device did.
        floats: float values of constants, in the LIR's layout; None without float weights, then
            only what needs none is told.
    """
    network = None if floats is None else _FloatNetwork(module, run, floats)
    chains = [layer.numbers for layer in run.layers]
    index_of = {numbers[-1]: index for index, numbers in enumerate(chains)}
    for layer in executed_layers(module, chains, run.inputs, run.outputs):
        index = index_of[layer.number]
        yield compare_layer(
            index,
            layer,
            floats,
            None if network is None else network.output(layer.number),
            run.layers[index].cut_channels,
        )


class _FloatNetwork:
    """The float network, executed as far as its outputs are asked for."""

    def __init__(self, module: Module, run: RecordedRun, floats: Floats) -> None:
        self._results = execute_real(module, run.real_inputs, floats)
        self._wanted = {layer.numbers[-1] for layer in run.layers}
        self._ready: dict[int, Real] = {}

    def output(self, number: int) -> Real:
        """What the network has in place of an instruction's first result; to be asked once."""
        while number not in self._ready:
            instruction, _, values = next(self._results)
            if instruction.number in self._wanted:
                self._wanted.remove(instruction.number)
                self._ready[instruction.number] = np.asarray(values, np.float64)
        return self._ready.pop(number)
