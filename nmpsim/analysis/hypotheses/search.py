"""Search for the changes of a layer after which its result is right in each bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs
import numpy as np

from nmpsim.analysis.hypotheses.constant_changes import (
    change_bias,
    change_signedness,
    change_weights,
    change_zero_points,
)
from nmpsim.analysis.hypotheses.layer import Family, IsolatedLayer
from nmpsim.analysis.hypotheses.operation_changes import (
    change_activation,
    change_inputs,
    change_numerics,
    change_operation,
    change_order,
)
from nmpsim.analysis.hypotheses.rounding_rules import list_rounding_rules
from nmpsim.analysis.hypotheses.solved import WrongLayer, list_solved_changes
from nmpsim.analysis.hypotheses.window_changes import change_window
from nmpsim.analysis.program import make_bundle_program
from nmpsim.analysis.reduce.crop import separate_tensors
from nmpsim.analysis.reduce.extract import extract_layers
from nmpsim.arrays import Array, Arrays
from nmpsim.bundle import Bundle
from nmpsim.core.device import Device
from nmpsim.core.run import make_layer_key
from nmpsim.diagnostics import UserError
from nmpsim.records import frozen

FAMILIES: dict[str, Family] = {
    "bias": change_bias,
    "weights": change_weights,
    "zero points": change_zero_points,
    "signedness": change_signedness,
    "window": change_window,
    "activation": change_activation,
    "operation": change_operation,
    "inputs": change_inputs,
    "numerics": change_numerics,
    "order": change_order,
}
"""Families of changes, the simplest first."""
LATE_FAMILIES = ("numerics", "order", "rounding", "numbers")
"""Families that are tried only if no other change fits, because they can imitate others."""
SAMPLED_FAMILIES = ("bias", "weights", "zero points")
"""Families that are tried on some windows of a convolution first."""
MIN_ERROR_BITS = 4
"""Smallest sum of ``log2(1 + error)`` of all elements for which changes are tried.

Any small change corrects a few elements that are near a tie and differ by one.
"""
MAX_ROUNDING_ERROR = 2
"""Largest error in units of the last place that another rounding rule may cause."""
MAX_EXPLANATIONS = 5
"""Largest number of explanations that are reported."""


@frozen
class LayerExplanation:
    """Explanation of a wrong result: a change of the layer's LIR after which all elements agree."""

    family: str
    """Family of the change, or ``program`` if the layer's LIR is right as it is."""
    change: str
    """Description that continues the word "with"."""
    elements: int
    """Number of elements, all of which are equal."""
    is_of_program: bool = False
    """Whether the changed LIR gives the program's wrong result instead of the expected one."""

    @property
    def text(self) -> str:
        """Text of the explanation, with the change and the number of equal elements."""
        if self.is_of_program:
            return f"the LIR with {self.change} gives all {self.elements:,} elements of the program"
        return f"with {self.change}, all {self.elements:,} elements are equal"


@frozen
class HypothesisResults:
    """Results of a search for changes of a layer's LIR that explain its wrong result."""

    explanations: tuple[LayerExplanation, ...] = ()
    tried: Mapping[str, int] = attrs.field(factory=dict)
    """Number of changes that were tried, by family."""
    problem: str = ""
    """Why nothing was tried; usually empty."""


def search_hypotheses(
    bundle: Bundle,
    index: int,
    inputs: Arrays,
    outputs: Arrays,
    expected: Array,
    actual: Array | None = None,
    device: Device | None = None,
) -> HypothesisResults:
    """Search for changes of a layer's LIR that explain why its result is not ``expected``.

    If the layer compiled from its LIR already gives the expected result, the changes are those
    that give the program's own result.

    Parameters
    ----------
    bundle
        The program, with its LIR.
    index
        Index of the layer.
    inputs
        Inputs of the program as the device stores them, by name.
    outputs
        Expected outputs of layers in their stored types, by the keys of saved layers. All layers
        before this one are required; the others are tried as its inputs.
    expected
        Expected output of the layer, in its stored type.
    actual
        Output of the program's layer for the expected inputs, if known.
    device
        Device to run on; by default a device with the bundle's settings.
    """
    layers = bundle.metadata.layers
    target = layers[index]
    if not bundle.debug:
        return HypothesisResults(problem="the bundle contains no LIR")
    program = make_bundle_program(bundle)
    try:
        part = extract_layers(
            program.module, layers, range(index, index + 1), inputs, dict(outputs)
        )
        part = separate_tensors(part)
    except (UserError, KeyError):
        return HypothesisResults(problem="the layer cannot be extracted from the program")
    numerics = target.numerics or program.numerics
    alone = attrs.evolve(program, module=part.module, numerics=numerics, layer_numerics={})
    layer = IsolatedLayer(attrs.evolve(alone, unsigned=frozenset()), part.inputs)
    device = device or Device(program.device)
    expected = expected.reshape(target.output.shape)
    result = layer.execute(device)
    if result is None or result.dtype != expected.dtype:
        return HypothesisResults(problem="the layer cannot be executed alone")
    is_program = np.array_equal(result, expected)
    if is_program:
        if actual is None or np.array_equal(actual, expected):
            return HypothesisResults(problem="the layer is right")
        expected = actual.reshape(expected.shape)
    errors = np.abs(result.astype(np.float64) - expected)
    if not is_program and np.log2(1 + errors).sum() < MIN_ERROR_BITS:
        return HypothesisResults(problem="the wrong elements are too few to distinguish causes")
    known = {
        one.output.name: outputs[make_layer_key(one)]
        for one in layers
        if one.index != index and make_layer_key(one) in outputs
    }
    found = _Search(WrongLayer(layer, result, expected), device, {**inputs, **known}).run()
    if not is_program:
        return found
    again = LayerExplanation("program", "the layer compiled again from its LIR", expected.size)
    others = (attrs.evolve(one, is_of_program=True) for one in found.explanations)
    return attrs.evolve(found, explanations=(again, *others))


class _Search:
    """Search for the changes that make a layer right."""

    def __init__(self, wrong: WrongLayer, device: Device, others: Arrays) -> None:
        self._wrong, self._device, self._others = wrong, device, others
        self._tolerance = self._measure_tolerance()
        sampled = wrong.layer.sample_windows(wrong.actual != wrong.expected)
        self._sampled: IsolatedLayer | None = None
        if sampled is not None and self._tolerance >= 0:
            self._sampled, places = sampled
            self._sampled_expected = wrong.expected[tuple(places.T)][:, None, None]

    def _measure_tolerance(self) -> int:
        """Return the largest difference of the exact result from the real one, plus one."""
        real = self._wrong.layer.estimate()
        if real is None:
            return -1
        return int(np.abs(real.astype(np.int64) - self._wrong.actual).max(initial=0)) + 1

    def run(self) -> HypothesisResults:
        """Try all families, the late ones only if nothing else fits."""
        found: list[LayerExplanation] = []
        tried: dict[str, int] = {}
        for name in (*FAMILIES, "rounding", "numbers"):
            if name in LATE_FAMILIES and found:
                break
            count, explanation = self._try_family(name)
            tried[name] = count
            found += [explanation] if explanation else []
        return HypothesisResults(tuple(found[:MAX_EXPLANATIONS]), tried)

    def _try_family(self, name: str) -> tuple[int, LayerExplanation | None]:
        """Return the number of tried changes and the first one that fits, or None."""
        count, size = 0, self._wrong.expected.size
        if name == "rounding":
            wrong = self._wrong
            errors = np.abs(wrong.actual.astype(np.float64) - wrong.expected)
            may_be_rounding = errors.max(initial=0) <= MAX_ROUNDING_ERROR
            for text, fits in list_rounding_rules(wrong.layer, wrong.expected, may_be_rounding):
                count += 1
                if fits:
                    return count, LayerExplanation(name, text, size)
            return count, None
        for text, layer, sampled in self._list_changes(name):
            count += 1
            if sampled is not None and not self._is_near(sampled, self._sampled_expected):
                continue
            if self._fits(layer, name != "numerics"):
                return count, LayerExplanation(name, text, size)
        return count, None

    def _list_changes(self, name: str) -> Iterator[tuple[str, IsolatedLayer, IsolatedLayer | None]]:
        """Yield the changes of a family, with the same change of the sampled windows."""
        if name == "numbers":
            changes = list_solved_changes(self._wrong, self._device)
        else:
            changes = FAMILIES[name](self._wrong.layer, self._others)
        if self._sampled is None or name not in SAMPLED_FAMILIES:
            yield from ((text, layer, None) for text, layer in changes)
            return
        sampled = FAMILIES[name](self._sampled, self._others)
        for (text, layer), (_, part) in zip(changes, sampled, strict=True):
            yield text, layer, part

    def _is_near(self, layer: IsolatedLayer, expected: Array) -> bool:
        """Return whether real arithmetic gives about the expected result."""
        near = layer.estimate()
        if near is None or near.shape != expected.shape or near.dtype != expected.dtype:
            return False
        distance = np.abs(near.astype(np.int64) - expected).max(initial=0)
        return bool(distance <= self._tolerance)

    def _fits(self, layer: IsolatedLayer, has_estimate: bool) -> bool:
        """Return whether a changed layer gives the expected result in each bit."""
        expected = self._wrong.expected
        if has_estimate and self._tolerance >= 0 and not self._is_near(layer, expected):
            return False
        result = layer.execute(self._device)
        return result is not None and np.array_equal(result, expected)
