"""Search for the changes of a layer after which its result is right in each bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice

import attrs
import numpy as np

from nmpsim.analysis.hypotheses.change_filter import (
    FAMILIES,
    LATE_FAMILIES,
    ChangeFilter,
    SearchClock,
    SearchLimits,
    SearchStoppedError,
    measure_error_bits,
)
from nmpsim.analysis.hypotheses.layer import IsolatedLayer, WrongLayer
from nmpsim.analysis.hypotheses.rounding_rules import list_rounding_rules
from nmpsim.analysis.hypotheses.solved import PER_CHANNEL
from nmpsim.analysis.program import make_bundle_program
from nmpsim.analysis.reduce.crop import separate_tensors
from nmpsim.analysis.reduce.extract import extract_layers
from nmpsim.arrays import Array, Arrays
from nmpsim.bundle import Bundle
from nmpsim.core.device import Device
from nmpsim.core.run import make_layer_key
from nmpsim.diagnostics import UserError
from nmpsim.records import frozen

MIN_ERROR_BITS = 4
"""Smallest sum of ``log2(1 + error)`` of all elements for which changes are tried.

Any small change corrects a few elements that are near a tie and differ by one.
"""
MIN_PAIR_BITS = 48
"""Smallest sum of ``log2(1 + error)`` of all elements for which two changes are tried together."""
MAX_ROUNDING_ERROR = 2
"""Largest error in units of the last place that another rounding rule may cause."""
MAX_EXPLANATIONS, MAX_IN_FAMILY = 6, 3
"""Largest number of explanations that are reported, of all families and of one."""


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
    is_complete: bool = True
    """Whether the search ended before its time limit and was not interrupted."""


def search_hypotheses(
    bundle: Bundle,
    index: int,
    inputs: Arrays,
    outputs: Arrays,
    expected: Array,
    actual: Array | None = None,
    device: Device | None = None,
    limits: SearchLimits | None = None,
) -> HypothesisResults:
    """Search for changes of a layer's LIR that explain why its result is not ``expected``.

    If the layer compiled from its LIR already gives the expected result, the changes are those
    that give the program's own result. Ctrl-C ends the search and keeps what it has found.

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
    limits
        Limits of the search; by default ten seconds.
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
    if not is_program and measure_error_bits(result, expected) < MIN_ERROR_BITS:
        return HypothesisResults(problem="the wrong elements are too few to distinguish causes")
    known = {
        one.output.name: outputs[make_layer_key(one)]
        for one in layers
        if one.index != index and make_layer_key(one) in outputs
    }
    clock = SearchClock(limits or SearchLimits())
    found = _find_causes(WrongLayer(layer, result, expected), device, {**inputs, **known}, clock)
    if not is_program:
        return found
    again = LayerExplanation("program", "the layer compiled again from its LIR", expected.size)
    others = (attrs.evolve(one, is_of_program=True) for one in found.explanations)
    return attrs.evolve(found, explanations=(again, *others))


def _find_causes(
    wrong: WrongLayer, device: Device, others: Arrays, clock: SearchClock
) -> HypothesisResults:
    """Try single changes, then pairs of changes."""
    first = _Search(wrong, device, others, clock)
    tried, explanations = first.tried, first.found
    is_complete = True
    try:
        first.run()
        if not explanations and measure_error_bits(wrong.actual, wrong.expected) >= MIN_PAIR_BITS:
            explanations = _find_pairs(wrong, first, device, others, clock, tried)
    except (SearchStoppedError, KeyboardInterrupt):
        is_complete = False
    return HypothesisResults(tuple(explanations[:MAX_EXPLANATIONS]), tried, "", is_complete)


def _find_pairs(
    wrong: WrongLayer,
    first: _Search,
    device: Device,
    others: Arrays,
    clock: SearchClock,
    tried: dict[str, int],
) -> list[LayerExplanation]:
    """Return pairs of changes that explain a layer, of which the first makes errors smaller."""
    tried["pairs"] = 0
    for family, text, layer in first.list_partial_changes():
        actual = layer.execute(device)
        if actual is None:
            continue
        second = _Search(attrs.evolve(wrong, layer=layer, actual=actual), device, others, clock)
        try:
            second.run(is_second=True)
        finally:
            tried["pairs"] += sum(second.tried.values())
        if second.found:
            return [
                attrs.evolve(
                    one, family=f"{family}, {one.family}", change=f"{text}, and {one.change}"
                )
                for one in second.found
            ]
    return []


class _Search:
    """Search for the changes that make a layer right to the bit."""

    def __init__(
        self, wrong: WrongLayer, device: Device, others: Arrays, clock: SearchClock
    ) -> None:
        self._wrong, self._device, self._clock = wrong, device, clock
        self._filter = ChangeFilter(wrong, others, clock, device)
        self.found: list[LayerExplanation] = []
        self.tried = self._filter.tried
        self.list_partial_changes = self._filter.list_partial_changes

    def run(self, *, is_second: bool = False) -> None:
        """Try all families, the late ones only if nothing else fits.

        A second change is not another rounding, which could hide a wrong first change.
        """
        late = sorted(LATE_FAMILIES, key=self._is_likely, reverse=True)
        names = [*FAMILIES, *late]
        for done, name in enumerate(names):
            if name in LATE_FAMILIES and self.found:
                break
            if is_second and name == "rounding":
                continue
            if not is_second:
                self._clock.report_progress(done, len(names), name)
            changes = self._list_rounding() if name == "rounding" else self._list_changes(name)
            for number, change in enumerate(islice(changes, 1 if is_second else MAX_IN_FAMILY)):
                if number and change.startswith(PER_CHANNEL):
                    break  # a simpler change fits
                self.found.append(LayerExplanation(name, change, self._wrong.expected.size))

    @cached_property
    def _has_small_errors(self) -> bool:
        """Whether no error is larger than another rounding rule may cause."""
        errors = np.abs(self._wrong.actual.astype(np.float64) - self._wrong.expected)
        return bool(errors.max(initial=0) <= MAX_ROUNDING_ERROR)

    def _is_likely(self, name: str) -> bool:
        """Return whether a family of changes is likely; other orders cause large errors."""
        return not self._has_small_errors or name not in ("layout", "channels")

    def _list_changes(self, name: str) -> Iterator[str]:
        """Yield the description of each different change of a family that fits."""
        wrong, known = self._wrong, set[object]()
        for text, layer in self._filter.list_near_changes(name):
            if layer.has_same_program(wrong.layer) and layer.convert_result is not None:
                result: Array | None = layer.convert_result(wrong.actual)
            else:
                result = layer.execute(self._device)
            if result is not None and np.array_equal(result, wrong.expected):
                content = layer.get_content()
                if known.isdisjoint((text, content)):
                    yield text
                known.update((text, content))

    def _list_rounding(self) -> Iterator[str]:
        """Yield the description of the first arithmetic of sums that fits."""
        wrong = self._wrong
        for text, fits in list_rounding_rules(wrong.layer, wrong.expected, self._has_small_errors):
            self._filter.count_change("rounding")
            if fits:
                yield text
                return
