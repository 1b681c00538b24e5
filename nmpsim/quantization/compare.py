"""Comparison of schemas and precisions: quantized programs against the float program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import attrs
import numpy as np

from nmpsim.arrays import Array, Arrays
from nmpsim.diagnostics import fail
from nmpsim.interpreter import (
    RealProgram,
    compute_energy,
    convert_to_decibels,
    dequantize,
    execute_exact,
    locate_tensors,
)
from nmpsim.quantization.calibrate import Sample
from nmpsim.quantization.driver import (
    CalibratedProgram,
    QuantizedProgram,
    QuantizedResult,
    require_quantized,
)
from nmpsim.quantization.parameters import RANGE_METHODS, SCHEMAS, Elem, Settings

_ELEMS: tuple[Elem, ...] = ("i8", "i16")


@attrs.frozen
class LayerAccuracy:
    """Accuracy of one layer's result: its SQNR against the float program, in dB."""

    name: str
    opcode: str
    sqnr_db: float


@attrs.frozen
class OutputAccuracy:
    """Accuracy of one output against the float program: SQNR in dB and top-1 agreement."""

    name: str
    sqnr_db: float
    top1_agreement: float | None
    """Share of rows with the largest element at the same index; None for rows of one element."""


@attrs.frozen
class QuantizationAccuracy:
    """Accuracy of one quantization on all samples, for each output and each layer."""

    settings: Settings
    quantized: int
    """Number of quantized results."""
    staying_float: int
    outputs: tuple[OutputAccuracy, ...]
    layers: tuple[LayerAccuracy, ...]
    """Loss of every result in order, including errors of the layers before it."""

    @property
    def worst_output(self) -> OutputAccuracy:
        """Accuracy of the output with the lowest SQNR."""
        return min(self.outputs, key=lambda output: output.sqnr_db)

    @property
    def worst_layer(self) -> LayerAccuracy:
        """Accuracy of the layer with the lowest SQNR."""
        return min(self.layers, key=lambda layer: layer.sqnr_db)


def compare_schemas(
    calibrated: CalibratedProgram, settings: Settings
) -> tuple[QuantizationAccuracy, ...]:
    """Measure on the samples how accurate each schema is, in Int8 and in Int16.

    The settings are also measured with each of the other range methods.


    The quantized programs run by the arithmetic of Glow's kernels (Int8 as libjit has it, Int16
    as the Interpreter), the float program in real arithmetic. Raises QUANT003 if nothing would be
    quantized in any of them, ARG001 without samples.
    """
    if not calibrated.samples:
        raise fail(
            "ARG001",
            "the settings cannot be compared without samples",
            found="a profile of ranges, without samples",
            expected="calibration samples",
            hint="Pass --calibration instead of --profile.",
        )
    programs = [
        calibrated.quantize_unchecked(attrs.evolve(settings, schema=schema, elem=elem))
        for elem in _ELEMS
        for schema in SCHEMAS
    ]
    if calibrated.recorded:
        programs += [
            calibrated.quantize_unchecked(attrs.evolve(settings, range_method=method))
            for method in RANGE_METHODS
            if method != settings.range_method
        ]
    require_quantized(programs, calibrated.graph.module)
    meters = [_Meter(program) for program in programs]
    outputs = tuple(calibrated.graph.outputs)
    float_program = RealProgram(calibrated.graph.module, hidden_relu=False)
    for sample in calibrated.samples:
        results, values = _run_float(float_program, sample, outputs)
        for meter in meters:
            meter.add(sample, results, values)
    return tuple(meter.comparison(outputs) for meter in meters)


def _run_float(
    program: RealProgram, sample: Sample, outputs: Iterable[str]
) -> tuple[dict[int, Array], dict[str, Array]]:
    """Return the float program's results by instruction number, and its outputs by name."""
    run = program.execute(sample)
    results = {
        instruction.number: array
        for instruction, name, array in run
        if name == instruction.operands[0].name
    }
    return results, {name: run.copy_values(name) for name in outputs}


def _comparable(result: QuantizedResult) -> bool:
    """Return whether the float program has the same range of a result."""
    return not result.narrowed and (result.quantized or result.type.elem == "float")


class _Meter:
    """Accumulator of the errors of one quantized program over samples."""

    def __init__(self, program: QuantizedProgram) -> None:
        self._program = program
        self._types = {name: place.type for name, place in locate_tensors(program.module).items()}
        self._by_name = {r.name: r for r in program.results if _comparable(r)}
        self._layers = {name: np.zeros(2) for name in self._by_name}
        """Energies of the right values of each layer and of their errors."""
        self._outputs: defaultdict[str, Array] = defaultdict(lambda: np.zeros(2))
        self._agreements: defaultdict[str, list[bool]] = defaultdict(list)

    def add(self, sample: Sample, results: Mapping[int, Array], outputs: Arrays) -> None:
        """Run one more sample, for which the float program has these results and outputs."""
        run = execute_exact(self._program.module, sample)
        for instruction, name, array in run:
            result = self._by_name.get(instruction.name)
            if result is not None and name == instruction.operands[0].name:
                real = dequantize(array, self._types[name])
                expected = results[result.number]
                self._layers[instruction.name] += _energies(expected, real.reshape(expected.shape))
        for name, expected in outputs.items():
            actual = run.copy_values(name)
            self._outputs[name] += _energies(expected, actual.astype(np.float64))
            rows = _rows(expected), _rows(actual)
            if rows[0].shape[1] > 1:
                self._agreements[name].extend(rows[0].argmax(axis=1) == rows[1].argmax(axis=1))

    def comparison(self, outputs: Iterable[str]) -> QuantizationAccuracy:
        """Return the loss over all samples."""
        staying = len(self._program.staying_float)
        return QuantizationAccuracy(
            settings=self._program.settings,
            quantized=len(self._program.results) - staying,
            staying_float=staying,
            outputs=tuple(
                OutputAccuracy(
                    name,
                    convert_to_decibels(*self._outputs[name].tolist()),
                    float(np.mean(agreements)) if (agreements := self._agreements[name]) else None,
                )
                for name in outputs
            ),
            layers=tuple(
                LayerAccuracy(
                    name, self._by_name[name].opcode, convert_to_decibels(*energies.tolist())
                )
                for name, energies in self._layers.items()
            ),
        )


def _energies(expected: Array, actual: Array) -> tuple[float, float]:
    """Return the energies of the right values and of their errors."""
    return compute_energy(expected), compute_energy(actual - expected)


def _rows(array: Array) -> Array:
    """Return an array as [items of the batch, elements of each]."""
    return array.reshape(array.shape[0] if array.ndim > 1 else 1, -1)
