"""Expected outputs of layers, from a file, and the comparison of layers with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import attrs

from nmpsim.analysis.diff.tensors import KnownValues, find_axis_order, list_saved_tensors
from nmpsim.analysis.difference import (
    OutputDifference,
    compare_outputs,
    dequantize_values,
    quantize_values,
)
from nmpsim.arrays import Array
from nmpsim.bundle.metadata import Layer, Tensor
from nmpsim.core.host_steps import write_tensor
from nmpsim.debugger.debugger import Debugger
from nmpsim.diagnostics import fail
from nmpsim.lir.nodes import ELEM_DTYPES


class ArrayReader(Protocol):
    """Protocol of readers of a file with named arrays."""

    @property
    def keys(self) -> Sequence[str]:
        """Names of the arrays."""
        ...

    def read(self, key: str) -> Array:
        """Return an array by name."""
        ...


ArrayOpener = Callable[[Path], ArrayReader]
"""Function that opens an untrusted ``.npz`` file."""


@attrs.frozen
class LayerComparison:
    """Comparison of a layer with the reference, in the network and in isolation."""

    index: int
    name: str
    accumulated: OutputDifference | None
    """Difference in the network; None if there is nothing to compare, or it has not run yet."""
    isolated: OutputDifference | None = None
    """Difference of the layer with the reference's inputs; None if not requested."""
    problem: str = ""
    """Why there is nothing to compare."""
    isolated_output: Array | None = attrs.field(default=None, eq=False, repr=False)
    """Output of the layer with the reference's inputs; None if ``isolated`` is None."""

    @property
    def is_faulty(self) -> bool:
        """Whether the layer's output differs even with correct inputs; False if unknown."""
        return self.isolated is not None and not self.isolated.equal

    @property
    def inherits_error(self) -> bool:
        """Whether the output differs only because of errors in the inputs; False if unknown."""
        is_wrong = self.accumulated is not None and not self.accumulated.equal
        return is_wrong and self.isolated is not None and self.isolated.equal


class ReferenceOutputs:
    """Expected outputs of layers, read from a file of arrays."""

    def __init__(
        self, layers: Iterable[Layer], keys: Iterable[str], read: Callable[[str], Array]
    ) -> None:
        """Match the arrays of a file with layers.

        Keys are ``NNNN:name`` (a saved run), ``act/NNNN:name:operand`` (a recorded run of Glow) or
        names of layers or of their outputs; arrays have the layers' types, or float.

        ``layers`` are the layers as they were compiled.

        Raises :class:`~nmpsim.diagnostics.UserError` DIFF001 if no array matches a layer.
        """
        found: dict[tuple[int | None, str, str | None], Callable[[], KnownValues]] = {}
        for one in list_saved_tensors(keys := list(keys), read):
            for operand in (one.operand, None):
                found.setdefault((one.number, one.name, operand), one.load)
        layers = list(layers)
        self._outputs = {layer.index: layer.output for layer in layers}
        self._loads: dict[int, Callable[[], KnownValues]] = {}
        for layer in layers:
            for key in (
                (layer.number, layer.name, layer.operand),
                (layer.number, layer.name, None),
                (None, layer.name, None),
                (None, layer.output.name, None),
            ):
                if key in found:
                    self._loads.setdefault(layer.index, found[key])
        if not self._loads:
            raise fail(
                "DIFF001",
                "the reference contains no layer outputs",
                found=f"the keys {', '.join(keys[:4])}" if keys else "no arrays",
                expected="keys such as 0003:conv, an index and a layer's name",
                hint="Write the file with `nmpsim run --save-layers`.",
            )

    @property
    def layer_indices(self) -> frozenset[int]:
        """Indices of the layers in the reference."""
        return frozenset(self._loads)

    def is_float(self) -> bool:
        """Whether the reference contains float values for all quantized layers."""
        quantized = [index for index in self._loads if self._outputs[index].scale is not None]
        return {self._loads[index]().array.dtype.kind for index in quantized} == {"f"}

    def get_output(self, layer: Layer) -> Array | None:
        """Return the expected output of a layer in the layer's shape, or None if it is unknown.

        Integers have the scale that the program was compiled with. Where the layer has another one
        now, the real values that they represent are returned.
        """
        if layer.index not in self._loads:
            return None
        found, shape = self._loads[layer.index](), layer.output.shape
        order = find_axis_order(shape, found.shape, "auto")
        if order is None:
            return None
        axes, _ = order
        values = found.array.reshape(found.shape)
        values = values.transpose(axes) if axes else values.reshape(shape)
        if values.dtype.kind == "f":
            return values
        return convert_scale(values, self._outputs[layer.index], layer.output)


def measure_difference(layer: Layer, actual: Array, expected: Array) -> OutputDifference | str:
    """Measure a layer's difference from the expected output, or return why it is unknown."""
    output = layer.output
    if actual.dtype != expected.dtype and (expected.dtype.kind != "f" or output.scale is None):
        return f"the reference is {expected.dtype}, the layer {actual.dtype}"
    return compare_outputs(actual, expected, output.elem, output.scale, output.offset)


def convert_scale(values: Array, old: Tensor, new: Tensor) -> Array:
    """Dequantize values with the old scale, or return them unchanged if the scales are equal."""
    if old.scale is None or old.scale == new.scale:
        return values
    return dequantize_values(values, old.elem, old.scale, old.offset)


def compare_layer(debugger: Debugger, reference: ReferenceOutputs, index: int) -> LayerComparison:
    """Compare a layer's output in the network with the reference."""
    layer = debugger.layers[index]
    actual, expected = debugger.layer_outputs.get(index), reference.get_output(layer)
    found: OutputDifference | str
    if expected is None:
        found = "not in the reference"
    elif actual is None:
        found = "has not run yet"
    else:
        found = measure_difference(layer, actual, expected)
    if isinstance(found, str):
        return LayerComparison(index, layer.name, None, problem=found)
    return LayerComparison(index, layer.name, found)


def isolate_layer(debugger: Debugger, reference: ReferenceOutputs, index: int) -> LayerComparison:
    """Execute a layer with the reference's inputs and compare its output with the reference.

    The run goes to the start of the layer. The inputs, and the reference's outputs of all earlier
    layers, are written to memory, the layer is executed, and the run returns to its position.
    """
    comparison = compare_layer(debugger, reference, index)
    layer, expected = debugger.layers[index], reference.get_output(debugger.layers[index])
    if comparison.accumulated is None or expected is None:
        return comparison
    before = debugger.list_layers_before(index)
    with debugger.visit_position(debugger.get_layer_start(index)):
        for tensor in debugger.bundle.metadata.inputs:  # layers before it may have spoiled them
            values = debugger.inputs[tensor.name]
            write_tensor(debugger.machine, tensor, values)
        for one in before:
            found = get_stored_output(debugger.layers[one], reference)
            write_tensor(
                debugger.machine,
                debugger.layers[one].output,
                debugger.layer_outputs[one] if found is None else found,
            )
        actual = debugger.run_single_layer(index)
    difference = None if actual is None else measure_difference(layer, actual, expected)
    if not isinstance(difference, OutputDifference):
        return comparison
    return attrs.evolve(comparison, isolated=difference, isolated_output=actual)


def get_stored_output(layer: Layer, reference: ReferenceOutputs) -> Array | None:
    """Return the expected output in the layer's stored type, or None if it is unknown."""
    values = reference.get_output(layer)
    if values is None or values.dtype == ELEM_DTYPES[layer.output.elem]:
        return values
    output = layer.output
    if output.scale is None:
        return None
    return quantize_values(values, output.elem, output.scale, output.offset)
