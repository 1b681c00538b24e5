"""Expected outputs of layers, from a file, and the comparison of layers with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NoReturn, Protocol

import attrs

from nmpsim.analysis.data_flow import layer_edges
from nmpsim.analysis.difference import (
    OutputDifference,
    compare_outputs,
    dequantize_values,
    quantize_values,
)
from nmpsim.analysis.layer_moves import LayerMove
from nmpsim.analysis.matching import (
    AXIS_ORDERS,
    StoredTensor,
    TensorMatching,
    find_axis_order,
    find_partial_layers,
    is_cube,
    match_layers,
)
from nmpsim.arrays import Array
from nmpsim.bundle import Bundle
from nmpsim.bundle.metadata import Layer, Metadata, Tensor
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
        """Read an array by name."""
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
    """Difference of the layer with the reference's inputs; None if not requested or unknown."""
    problem: str = ""
    """Why there is nothing to compare, or why the isolated difference is unknown."""
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


_CONVERSIONS = frozenset({"quantize", "dequantize", "rescalequantized", "transpose", "copy"})
"""Opcodes of layers that only convert an input of the program."""


class ReferenceOutputs:
    """Expected outputs of layers, from the tensors of a reference."""

    def __init__(
        self,
        metadata: Metadata,
        references: Sequence[StoredTensor],
        names: Mapping[str, str] | None = None,
        layout: str = "auto",
        moves: Mapping[int, LayerMove] | None = None,
        outputs: Mapping[int, Array] | None = None,
    ) -> None:
        """Match the tensors of a reference with the layers of a program.

        Parameters
        ----------
        metadata
            Metadata of the program as it was compiled.
        references
            Tensors of the reference; integers, or floats for a float network.
        names
            Name in the reference -> name or index of a layer.
        layout
            Layout of the reference's 4-D tensors; ``auto`` infers it.
        moves
            Layers that only transpose or copy the output of another layer, by index. If the
            reference contains only one of the two outputs, the other one is computed from it.
        outputs
            Outputs of layers by index, if the program has run.

        Raises
        ------
        UserError
            DIFF001 if no tensor matches a layer or a name is not in the reference, LAYER001 for an
            unknown layer.
        """
        self._metadata, self._references = metadata, references
        self._names, self._layout = names, layout
        self._moves = {} if moves is None else moves
        self._layers = metadata.layers
        self._partial_layers = find_partial_layers(metadata)
        self.matching: TensorMatching
        self.match_values({} if outputs is None else outputs)
        if not self._pairs and not (outputs is None and self._has_fitting_shapes()):
            self._fail_unmatched()
        self._outputs = {layer.index: layer.output for layer in metadata.layers}
        self._edges: tuple[tuple[int, int], ...] | None = None

    def _has_fitting_shapes(self) -> bool:
        """Return whether the shape of any tensor of the reference fits a layer in any layout."""
        shapes = {one.shape for one in self._references}
        layers = {layer.output.shape for layer in self._layers}
        return any(
            find_axis_order(mine, theirs, layout) is not None
            for mine, theirs, layout in product(layers, shapes, AXIS_ORDERS)
        )

    def _fail_unmatched(self) -> NoReturn:
        some = [one.name for one in self._references[:4]]
        raise fail(
            "DIFF001",
            "the reference contains no layer outputs",
            found=f"the tensors {', '.join(some)}" if some else "no arrays",
            expected="keys such as 0003:conv, an index and a layer's name",
            hint="Write the file with `nmpsim run --save-layers`, or map names with --map.",
        )

    def _index_pairs(self) -> None:
        index_of = {layer.name: layer.index for layer in self._metadata.layers}
        self._pairs = {index_of[pair.tensor.name]: pair for pair in self.matching.pairs}
        for index, move in self._moves.items():
            is_transposed = move.axes in AXIS_ORDERS.values()
            if not is_transposed or index not in self._pairs or move.source in self._pairs:
                continue
            if is_cube(self._pairs[index].tensor):  # the file has one layout for all tensors
                self._pairs[move.source] = self._pairs.pop(index)
        self._known = set(self._pairs)
        self._results: dict[int, int] = {}  # layer -> its transposed or copied output
        for index, move in sorted(self._moves.items(), reverse=True):
            if index in self._known and move.source not in self._known:
                self._known.add(move.source)
                self._results[move.source] = index
        for index, move in self._moves.items():
            if move.source in self._known:
                self._known.add(index)
        unmatched = self.matching.unmatched
        self.matching = attrs.evolve(
            self.matching,
            unmatched=tuple(one for one in unmatched if index_of[one.name] not in self._known),
            moved=tuple(one for one in unmatched if index_of[one.name] in self._known),
        )

    @property
    def is_ambiguous(self) -> bool:
        """Whether values could match more layers, refute a match, or determine the layout."""
        left = self.matching.unmatched and self.matching.unmatched_references
        return bool(left) or not self.is_layout_known or self.is_float()

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout of the reference's tensors is known."""
        return self.matching.is_layout_known

    def match_values(self, outputs: Mapping[int, Array], layout: str | None = None) -> None:
        """Match the layers again by their output values, to resolve ambiguous tensors.

        ``layout`` replaces the requested layout of the reference's tensors for this match.
        """
        known = {self._layers[index].name: values for index, values in outputs.items()}
        self.matching = match_layers(
            self._metadata, self._references, self._names, layout or self._layout, known
        )
        self._index_pairs()
        if len(known) == len(self._layers) and not self._pairs:
            self._fail_unmatched()

    @property
    def layer_indices(self) -> frozenset[int]:
        """Indices of the layers whose outputs the reference determines."""
        return frozenset(self._known)

    @property
    def missing(self) -> list[str]:
        """Names of the layers that are not in the reference."""
        return [layer.name for layer in self._layers if layer.index not in self._known]

    def find_unknown_inputs(self, bundle: Bundle, index: int) -> list[int]:
        """Return the layers that compute a layer's inputs and are not in the reference.

        A layer that converts an input of the program counts as known. Without LIR, the inputs are
        unknown, and all layers before the layer that are not in the reference are returned.
        """
        if self._edges is None:
            self._edges = layer_edges(bundle)
        if not self._edges:
            return [one for one in range(index) if one not in self._known]
        layers = self._layers
        sources: dict[int, list[int]] = {layer.index: [] for layer in layers}
        for source, reader in self._edges:
            sources[reader].append(source)
        written = {layers[one].output.address for one in sources[index] if one in self._known}

        def list_inputs(one: int) -> list[int]:
            """Return the layers whose outputs a layer reads, instead of parts of its own output."""
            parts = [each for each in sources[one] if layers[each].name in self._partial_layers]
            others = [each for each in sources[one] if each not in parts]
            return [*others, *(each for part in parts for each in list_inputs(part))]

        def converts_input(one: int) -> bool:
            return layers[one].op in _CONVERSIONS and all(map(converts_input, sources[one]))

        return [
            one
            for one in list_inputs(index)
            if one not in self._known and layers[one].output.address not in written
            if not converts_input(one)
        ]

    def is_float(self) -> bool:
        """Whether the reference contains float values for all quantized layers."""
        quantized = [index for index in self._pairs if self._outputs[index].scale is not None]
        dtypes = [self._pairs[index].reference.dtype for index in quantized]
        return {None if dtype is None else dtype.kind for dtype in dtypes} == {"f"}

    def get_output(self, layer: Layer) -> Array | None:
        """Return the expected output of a layer in the layer's shape, or None if it is unknown.

        Integers have the scale that the program was compiled with. Where the layer has another one
        now, the real values that they represent are returned.
        """
        values = self._read_expected(layer.index)
        if values is None or values.dtype.kind == "f":
            return values
        return convert_scale(values, self._outputs[layer.index], layer.output)

    def _read_expected(self, index: int) -> Array | None:
        """Return a layer's values in the reference, or None if they are unknown."""
        if index in self._pairs:
            return self.matching.read_expected(self._pairs[index])
        if index not in self._known:
            return None
        result = self._results.get(index)
        if result is None:
            move = self._moves[index]
            values = self._read_expected(move.source)
            return None if values is None else move.apply(values)
        values = self._read_expected(result)
        shape = self._outputs[index].shape
        return None if values is None else self._moves[result].undo(values).reshape(shape)


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
        found = debugger.explain_missing_output(index)
    else:
        found = measure_difference(layer, actual, expected)
    if isinstance(found, str):
        return LayerComparison(index, layer.name, None, problem=found)
    return LayerComparison(index, layer.name, found)


def execute_isolated(debugger: Debugger, reference: ReferenceOutputs, index: int) -> Array | None:
    """Execute a layer with the reference's inputs; return its output, or None if the run stops.

    If the layer completes a tensor, the layers that write its other parts are executed first.
    """
    before = debugger.list_layers_before(index)
    outputs = {one: get_stored_output(debugger.layers[one], reference) for one in before}
    name = debugger.layers[index].output.name
    parts = [one for one in before if debugger.layers[one].output.name == name]
    if parts and outputs[parts[-1]] is None:
        outputs[parts[-1]] = execute_isolated(debugger, reference, parts[-1])
    with debugger.visit_position(debugger.get_layer_start(index)):
        for tensor in debugger.bundle.metadata.inputs:  # layers before it may have spoiled them
            values = debugger.inputs[tensor.name]
            write_tensor(debugger.machine, tensor, values)
        for one, found in outputs.items():
            write_tensor(
                debugger.machine,
                debugger.layers[one].output,
                debugger.layer_outputs[one] if found is None else found,
            )
        return debugger.run_single_layer(index)


def isolate_layer(debugger: Debugger, reference: ReferenceOutputs, index: int) -> LayerComparison:
    """Execute a layer with the reference's inputs and compare its output with the reference.

    The run goes to the start of the layer. The inputs, and the reference's outputs of all earlier
    layers, are written to memory, the layer is executed, and the run returns to its position.
    """
    comparison = compare_layer(debugger, reference, index)
    layer, expected = debugger.layers[index], reference.get_output(debugger.layers[index])
    if comparison.accumulated is None or expected is None:
        return comparison
    actual = execute_isolated(debugger, reference, index)
    difference = None if actual is None else measure_difference(layer, actual, expected)
    if not isinstance(difference, OutputDifference):
        return comparison
    if not (difference.equal or reference.is_layout_known):
        problem = "cannot be told, because the layout of the reference is unknown"
        return attrs.evolve(comparison, problem=problem)
    unknown = [] if difference.equal else reference.find_unknown_inputs(debugger.bundle, index)
    if unknown:
        names = ", ".join(debugger.layers[one].display_name for one in unknown)
        problem = f"cannot be told, because the reference lacks its input {names}"
        return attrs.evolve(comparison, problem=problem)
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
