"""Comparison of every layer of a run with a live reference, in the network and in isolation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated

import attrs
import numpy as np

from nmpsim.analysis.difference import EXACT, OutputDifference, Tolerance, compare_outputs
from nmpsim.analysis.layer_moves import find_layer_moves
from nmpsim.arrays import Array, Arrays
from nmpsim.bundle import Bundle
from nmpsim.bundle.metadata import Layer, Metadata, Tensor
from nmpsim.core.device import Device
from nmpsim.core.limits import NO_LIMITS, Limits
from nmpsim.core.run import Progress, ProgressCallback, make_layer_key
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.divergence import complete_matching, explain_faulty_layer, find_error_causes
from nmpsim.debugger.reference import (
    LayerComparison,
    ReferenceOutputs,
    get_stored_output,
    isolate_layer,
)
from nmpsim.diagnostics import fail
from nmpsim.references import ReferenceRun
from nmpsim.report.fields import OR_NULL
from nmpsim.verification.host_kernels import SATURATED_PAIRS, explains_by_pairs

ROUNDING = "the reference adds float32 numbers in another order (the error is that of rounding)"
MIN_ROUNDING_DB = 100.0
"""SQNR above which a difference of float32 results is one of rounding, in dB."""


@attrs.frozen
class VerifiedLayer:
    """Layer of a run on one input, compared with the reference in the network and in isolation."""

    index: int
    name: str
    problem: Annotated[str, OR_NULL, "why the layer is not compared, or not in isolation"]
    difference: Annotated[OutputDifference | None, "in the network; null if not compared"]
    isolated: Annotated[
        OutputDifference | None, "with the reference's inputs; null if equal in the network"
    ] = None

    @property
    def differs(self) -> bool:
        """Whether the layer's output in the network differs by more than the tolerance."""
        return self.difference is not None and self.difference.beyond > 0

    @property
    def is_wrong(self) -> bool:
        """Whether the layer's output differs even if its inputs are the reference's."""
        return self.isolated is not None and self.isolated.beyond > 0


@attrs.frozen
class OutputChange:
    """Change of an output between the reference and the program, with both top-1 indices."""

    name: str
    best: Annotated[int | None, "index of the largest value; null for other than one vector"]
    reference_best: int | None
    difference: OutputDifference

    @property
    def has_other_best(self) -> bool:
        """Whether the program and the reference have different indices of the largest value."""
        return self.best != self.reference_best


@attrs.frozen
class VariantComparison:
    """Comparison of the runtime's outputs under different settings with its reference outputs."""

    settings: Annotated[str, "the other settings, such as its default kernels"]
    outputs: Annotated[
        tuple[OutputChange, ...], "the same runtime's outputs with these settings, compared"
    ]
    equals_program: Annotated[bool, "whether the program's outputs are equal to these"]

    @property
    def differs(self) -> bool:
        """Whether any output of the runtime changes with these settings."""
        return any(not one.difference.equal for one in self.outputs)


@attrs.frozen
class SampleVerification:
    """Verification of a run on one input: comparisons of layers and outputs with the reference."""

    input: str
    """File of the input."""
    layers: tuple[VerifiedLayer, ...]
    outputs: tuple[OutputChange, ...]
    variants: tuple[VariantComparison, ...] = ()
    causes: tuple[str, ...] = ()
    """Likely causes of the first layer that is wrong in isolation, most likely first."""
    trap: Annotated[str, OR_NULL, "why the run did not complete"] = ""

    @property
    def compared(self) -> tuple[VerifiedLayer, ...]:
        """Layers that are compared with the reference."""
        return tuple(one for one in self.layers if one.difference is not None)

    @property
    def differing(self) -> tuple[VerifiedLayer, ...]:
        """Layers whose outputs in the network differ from the reference beyond the tolerance."""
        return tuple(one for one in self.layers if one.differs)

    @property
    def first_wrong(self) -> VerifiedLayer | None:
        """First layer that is wrong with the reference's inputs, or None if no layer is."""
        return next((one for one in self.layers if one.is_wrong), None)

    @property
    def is_equal(self) -> bool:
        """Whether the run completed and all compared layers and outputs are equal."""
        moved = any(one.difference.beyond for one in self.outputs)
        return not (self.trap or moved or self.differing)


@attrs.frozen
class Verification:
    """Verification of a program on one or more inputs."""

    program: str
    """File of the program."""
    reference: str
    """File of the reference."""
    runtime: str
    """Reference runtime with its version and settings."""
    samples: tuple[SampleVerification, ...]

    @property
    def differing(self) -> tuple[SampleVerification, ...]:
        """Samples with a difference or a trap."""
        return tuple(one for one in self.samples if not one.is_equal)


def verify_sample(
    bundle: Bundle,
    device: Device,
    inputs: Arrays,
    reference: ReferenceRun,
    *,
    name: str = "",
    names: Mapping[str, str] | None = None,
    layout: str = "auto",
    tolerance: Tolerance = EXACT,
    limits: Limits = NO_LIMITS,
    progress: ProgressCallback | None = None,
) -> SampleVerification:
    """Run a program on an input and compare every layer with the reference.

    A layer that differs is executed again in isolation, on the inputs that it has in the reference.

    Parameters
    ----------
    bundle : Bundle
        The program.
    device : Device
        Device that runs it.
    inputs : mapping of str to array
        Inputs of the program by name.
    reference : ReferenceRun
        Results of the reference on the same inputs.
    name : str
        Name of the input for the result.
    names, layout
        Names and layout of the reference's tensors, as for
        :func:`~nmpsim.analysis.matching.match_layers`.
    tolerance : Tolerance
        Differences up to which elements count as equal.
    limits : Limits
        Limits of the run.
    progress : callable, optional
        Called after each layer.
    """
    report = device.run(bundle, inputs, save_layers=True, progress=progress, limits=limits)
    saved = {
        layer.index: report.layer_outputs.get(make_layer_key(layer))
        for layer in bundle.metadata.layers
    }
    expected = ReferenceOutputs(
        bundle.metadata,
        reference.tensors,
        names,
        layout,
        find_layer_moves(bundle),
        {index: values for index, values in saved.items() if values is not None},
    )
    isolation = _Isolation(bundle, device, inputs, expected, tolerance)
    if not expected.is_layout_known:
        isolation.complete_matching(progress)
    layers = [
        _compare_layer(layer, saved[layer.index], expected.get_output(layer), tolerance)
        for layer in bundle.metadata.layers
    ]
    if all(one.difference is None for one in layers) and report.trap is None:
        raise fail(
            "DIFF001",
            "the reference has no layer of the program in the same shape and type",
            found=f"{len(reference.tensors)} tensors of the reference",
            expected="at least one layer that can be compared",
            hint="Pass the model from which the program was compiled.",
        )
    if report.trap is not None:
        return SampleVerification(name, tuple(layers), (), trap=report.trap.message)
    outputs = _compare_outputs(bundle.metadata, report.outputs, reference.outputs, tolerance)
    variants = tuple(
        VariantComparison(
            settings,
            _compare_outputs(bundle.metadata, values, reference.outputs),
            all(
                one.difference.equal
                for one in _compare_outputs(bundle.metadata, report.outputs, values)
            ),
        )
        for settings, values in reference.variants.items()
    )
    causes: tuple[str, ...] = ()
    if any(one.differs for one in layers):
        layers = isolation.isolate_layers(layers, progress)
        causes = isolation.find_causes(reference.saturates_pairs)
    return SampleVerification(name, tuple(layers), outputs, variants, causes)


def list_expected_outputs(
    metadata: Metadata,
    reference: ReferenceRun,
    names: Mapping[str, str] | None = None,
    layout: str = "auto",
) -> dict[str, Array]:
    """Return the reference output of each matched layer by layer name, in the program's layout.

    ``names`` and ``layout`` are as for :func:`~nmpsim.analysis.matching.match_layers`. Raises
    UserError (DIFF001) if no tensor of the reference matches a layer.
    """
    expected = ReferenceOutputs(metadata, reference.tensors, names, layout)
    outputs = {one.name: expected.get_output(one) for one in metadata.layers}
    return {name: values for name, values in outputs.items() if values is not None}


class _Isolation:
    """Debugger with the reference, which executes layers on the reference's inputs."""

    def __init__(
        self,
        bundle: Bundle,
        device: Device,
        inputs: Arrays,
        reference: ReferenceOutputs,
        tolerance: Tolerance,
    ) -> None:
        self._bundle, self._inputs, self._config = bundle, inputs, device.config
        self._reference = reference
        self._tolerance = tolerance
        self._first_wrong: LayerComparison | None = None

    @cached_property
    def _debugger(self) -> Debugger:
        return Debugger(self._bundle, self._inputs, config=self._config)

    def complete_matching(self, progress: ProgressCallback | None) -> None:
        """Determine the layout of a reference whose shapes fit several layouts."""
        self._debugger.search_progress = progress
        self._debugger.run_to_end()
        complete_matching(self._debugger, self._reference)

    def isolate_layers(
        self, layers: list[VerifiedLayer], progress: ProgressCallback | None
    ) -> list[VerifiedLayer]:
        """Return the layers with their difference in isolation, where they differ."""
        self._debugger.search_progress = progress
        self._debugger.run_to_end()
        found = []
        for one in layers:
            if one.differs:
                if progress is not None:
                    progress(Progress("layer", one.index, len(layers), one.name))
                one = self._isolate_layer(one)
            found.append(one)
        return found

    def find_causes(self, saturates_pairs: bool) -> tuple[str, ...]:
        """Return likely causes of the first layer that is wrong in isolation.

        ``saturates_pairs`` states whether the reference saturates sums of two products.
        """
        wrong = self._first_wrong
        if wrong is None or wrong.isolated is None:
            return ()
        if is_rounding_error(wrong.isolated, self._debugger.layers[wrong.index]):
            return (ROUNDING,)
        if saturates_pairs and self._has_saturated_pairs(wrong):
            return (SATURATED_PAIRS,)
        found = explain_faulty_layer(self._debugger, self._reference, wrong)
        patterns = find_error_causes(self._debugger, self._reference, wrong, self._tolerance.ulp)
        return (*(one.text for one in found.explanations), *(one.text for one in patterns))

    def _has_saturated_pairs(self, wrong: LayerComparison) -> bool:
        debugger, layers = self._debugger, self._debugger.layers
        expected = get_stored_output(layers[wrong.index], self._reference)
        outputs = {make_layer_key(layers[i]): v for i, v in debugger.layer_outputs.items()}
        for layer in layers:
            known = get_stored_output(layer, self._reference)
            if known is not None:
                outputs[make_layer_key(layer)] = known
        actual = wrong.isolated_output
        return (
            actual is not None
            and expected is not None
            and explains_by_pairs(
                debugger.bundle, wrong.index, debugger.inputs, outputs, actual, expected
            )
        )

    def _isolate_layer(self, one: VerifiedLayer) -> VerifiedLayer:
        layer = self._debugger.layers[one.index]
        found = isolate_layer(self._debugger, self._reference, one.index)
        expected = self._reference.get_output(layer)
        if found.isolated_output is None or expected is None:
            return attrs.evolve(one, problem=found.problem)
        isolated = _measure(layer.output, found.isolated_output, expected, self._tolerance)
        if isolated.beyond and self._first_wrong is None:
            self._first_wrong = found
        return attrs.evolve(one, isolated=isolated)


def is_rounding_error(difference: OutputDifference, layer: Layer) -> bool:
    """Return whether a float layer differs by rounding only, which its high SQNR shows."""
    sqnr = difference.sqnr_db
    return layer.output.elem == "float" and sqnr is not None and sqnr > MIN_ROUNDING_DB


def _compare_layer(
    layer: Layer, actual: Array | None, expected: Array | None, tolerance: Tolerance
) -> VerifiedLayer:
    problem = ""
    if expected is None:
        problem = "not in the reference"
    elif actual is None:
        problem = "not saved in the run"
    elif not _has_comparable_types(layer.output, actual, expected):
        problem = f"the reference is {expected.dtype}, the layer {actual.dtype}"
    if problem or actual is None or expected is None:
        return VerifiedLayer(layer.index, layer.name, problem, None)
    difference = _measure(layer.output, actual, expected, tolerance)
    return VerifiedLayer(layer.index, layer.name, "", difference)


def _has_comparable_types(tensor: Tensor, actual: Array, expected: Array) -> bool:
    is_real = expected.dtype.kind == "f" and tensor.scale is not None
    return is_real or actual.dtype == expected.dtype


def _measure(
    tensor: Tensor, actual: Array, expected: Array, tolerance: Tolerance
) -> OutputDifference:
    return compare_outputs(actual, expected, tensor.elem, tensor.scale, tensor.offset, tolerance)


def _compare_outputs(
    metadata: Metadata, actual: Arrays, expected: Arrays, tolerance: Tolerance = EXACT
) -> tuple[OutputChange, ...]:
    """Return the differences of the outputs that both runs have in comparable types."""
    return tuple(
        _compare_output(one, actual[one.name], expected[one.name], tolerance)
        for one in metadata.user_outputs
        if one.name in actual
        and one.name in expected
        and _has_comparable_types(one, actual[one.name], expected[one.name])
    )


def _compare_output(
    tensor: Tensor, actual: Array, expected: Array, tolerance: Tolerance
) -> OutputChange:
    is_vector = actual.size > 1 and actual.size == actual.shape[-1]
    best, reference_best = (
        (int(np.argmax(actual)), int(np.argmax(expected))) if is_vector else (None, None)
    )
    difference = _measure(tensor, actual, expected, tolerance)
    return OutputChange(tensor.name, best, reference_best, difference)
