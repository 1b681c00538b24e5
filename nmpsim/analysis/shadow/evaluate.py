"""Evaluation of the layers of recorded runs in real arithmetic.

The evaluations F, L, B, R and C of a layer are defined in :mod:`nmpsim.analysis.shadow.compare`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.shadow.recording import ExecutedLayer, LayerInstruction, LayerReplay
from nmpsim.arrays import Array, Arrays
from nmpsim.interpreter import (
    RealProgram,
    dequantize,
    dequantize_operands,
    evaluate_operation,
    find_scale_operands,
    view_tensor,
)
from nmpsim.interpreter.execute import ResultIterator
from nmpsim.lir.nodes import QUANTIZED_ELEMS, Module, TensorType
from nmpsim.lir.opcodes import OPCODES, OpcodeKind

Real = npt.NDArray[np.float64]
Floats = Mapping[str, Real]
"""Float values of constants by name, in the LIR's layout."""


_NO_VALUES = np.zeros(0)


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


@attrs.frozen(eq=False)
class Evaluations:
    """Evaluations of a layer's output on the device and in real arithmetic, of equal shape."""

    device: Real = _NO_VALUES
    """``y``: the device's dequantized output."""
    real: Real = _NO_VALUES
    """``R``: with quantized weights and bias."""
    in_range: Real = _NO_VALUES
    """``C``: clipped to the output type's range."""
    quantized_bias: Real | None = None
    """``B``: with quantized bias; None, as the next two, without float weights."""
    isolated: Real | None = None
    """``L``: with float weights and bias."""
    network: Real | None = None
    """``F``: of the float network."""
    obstacle: str = ""
    """Why the layer has no values; usually empty."""


class RunEvaluator:
    """Evaluator of any number of runs of a program, which keeps the real values of constants."""

    def __init__(self, module: Module, floats: Floats | None = None) -> None:
        """Prepare the evaluation of runs.

        Parameters
        ----------
        module
            The program, with its constants.
        floats
            Float values of constants, in the LIR's layout; without them only some evaluations are
            known.
        """
        self._module, self._floats = module, floats
        self._float_program = None if floats is None else RealProgram(module, floats)
        self._replay = LayerReplay(module)
        self._constants: dict[int, dict[int, Real]] = {}
        """Real values of constant operands, by operand and by number of the instruction."""
        self._layer_floats: dict[int, tuple[Floats, Floats]] = {}
        """Float values of weights and of the bias, by number of the layer."""

    def evaluate(self, run: RecordedResults) -> Iterator[tuple[int, ExecutedLayer, Evaluations]]:
        """Evaluate each layer of a run; yield its index, the layer and its evaluations.

        Layers whose output is not of real numbers, or incomplete, have evaluations without values.
        """
        wanted = {layer.numbers[-1]: index for index, layer in enumerate(run.layers)}
        network = None
        if self._float_program is not None:
            network = _FloatResults(self._float_program.execute(run.real_inputs), set(wanted))
        chains = [layer.numbers for layer in run.layers]
        for layer in self._replay.replay(chains, run.inputs, run.outputs):
            index = wanted[layer.number]
            values = None if network is None else network.get_output(layer.number)
            channels = run.layers[index].saturated_channels
            yield index, layer, self.evaluate_layer(layer, values, channels)

    def evaluate_layer(
        self,
        layer: ExecutedLayer,
        network: Real | None,
        saturated_channels: Collection[int] = (),
    ) -> Evaluations:
        """Evaluate a layer in real arithmetic.

        Parameters
        ----------
        layer
            Operands of the layer and its output on the device.
        network
            Output of the float network; None if it is unknown.
        saturated_channels
            Channels in which the device saturated values before the result.
        """
        if reason := find_obstacle(layer):
            return Evaluations(obstacle=reason)
        type_ = layer.result.type
        (real,) = self._compute(layer, {}, [{}])
        device = dequantize(layer.output, type_)
        in_range = add_early_saturation(
            clip_to_range(real, type_), device, saturated_channels, type_
        )
        if self._floats is None:
            return Evaluations(device, real, in_range)
        weights, bias = self._find_floats(layer)
        quantized_bias = isolated = real
        if bias:
            quantized_bias, isolated = self._compute(layer, weights, [{}, bias])
        elif weights:
            (quantized_bias,) = (isolated,) = self._compute(layer, weights, [{}])
        return Evaluations(device, real, in_range, quantized_bias, isolated, network)

    def _find_floats(self, layer: ExecutedLayer) -> tuple[Floats, Floats]:
        """Return the known float values of a layer's weights, and of its bias."""
        if layer.number not in self._layer_floats:
            assert self._floats is not None
            weights, bias = (
                {n: v for n, v in self._floats.items() if n in list_constants(layer, of_bias)}
                for of_bias in (False, True)
            )
            self._layer_floats[layer.number] = weights, bias
        return self._layer_floats[layer.number]

    def _compute(
        self, layer: ExecutedLayer, weights: Floats, biases: Sequence[Floats]
    ) -> list[Real]:
        """Return the layer's output in real arithmetic with these floats, once for each bias."""
        first, *others = layer.steps
        results = self._compute_first(first, weights, biases)
        for before, step in zip(layer.steps, others, strict=False):
            storage = before.operands[before.result_index].place.storage
            for number, bias in enumerate(biases):
                values = self._read_operands(step, weights, bias)
                for index, operand in enumerate(step.operands):
                    if operand.place.storage == storage:
                        values[index] = results[number].reshape(operand.type.shape)
                found = evaluate_operation(step.instruction, step.types, values)
                results[number] = found[step.result_index]
        return results

    def _compute_first(
        self, step: LayerInstruction, weights: Floats, biases: Sequence[Floats]
    ) -> list[Real]:
        values = [self._read_operands(step, weights, bias) for bias in biases]
        bias_index = next((i for i, one in enumerate(step.operands) if one.is_bias), None)
        is_convolution = OPCODES[step.instruction.opcode].kind is OpcodeKind.CONVOLUTION
        if len(biases) > 1 and bias_index is not None and is_convolution:
            # One product serves all biases, which are added along an axis before the others.
            stacked = np.stack([one[bias_index] for one in values])[:, None, None, None, :]
            values[0][bias_index] = stacked
            found = evaluate_operation(step.instruction, step.types, values[0])
            return list(found[step.result_index])
        return [
            evaluate_operation(step.instruction, step.types, one)[step.result_index]
            for one in values
        ]

    def _read_operands(self, step: LayerInstruction, weights: Floats, bias: Floats) -> list[Real]:
        """Return real values of all operands, in print order."""
        number, operands = step.instruction.number, step.operands
        known = self._constants.get(number)
        if known is None:
            raw = [operand.stored for operand in operands]
            values = dequantize_operands(step.instruction, step.types, raw)
            if all(operands[index].is_constant for index in find_scale_operands(step.instruction)):
                constants = {i: values[i] for i, one in enumerate(operands) if one.is_constant}
                self._constants[number] = constants
        else:
            values = [
                known[index] if index in known else dequantize(operand.stored, operand.type)
                for index, operand in enumerate(operands)
            ]
        for index, operand in enumerate(operands):
            floats = bias if operand.is_bias else weights
            if operand.is_constant and operand.place.storage in floats:
                values[index] = view_tensor(floats[operand.place.storage], operand.place)
        return values


def list_constants(layer: ExecutedLayer, of_bias: bool) -> set[str]:
    """Return the names of the constants that are a bias of the layer, or of the others."""
    return {
        operand.place.storage
        for step in layer.steps
        for operand in step.operands
        if operand.is_constant and operand.is_bias == of_bias
    }


def find_obstacle(layer: ExecutedLayer) -> str:
    """Return why a layer's output has no comparable real values, or "" if it has."""
    elem = layer.result.type.elem
    if elem not in QUANTIZED_ELEMS and not elem.startswith("float"):
        return f"its output is of {elem}, not of real numbers"
    return "" if layer.complete else "parts of its output are not written yet"


class _FloatResults:
    """Results of an execution of the float network, computed on demand."""

    def __init__(self, results: ResultIterator, wanted: set[int]) -> None:
        self._results, self._wanted = results, wanted
        self._ready: dict[int, Real] = {}

    def get_output(self, number: int) -> Real:
        """Return the value of an instruction's first result; call once per instruction."""
        while number not in self._ready:
            instruction, _, values = next(self._results)
            if instruction.number in self._wanted:
                self._wanted.remove(instruction.number)
                self._ready[instruction.number] = np.asarray(values, np.float64)
        return self._ready.pop(number)


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
