"""Search for the changes of a layer after which its result is right in each bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import attrs
import numpy as np

from nmpsim.analysis.hypotheses.constant_changes import (
    change_bias,
    change_signedness,
    change_weights,
    change_zero_points,
)
from nmpsim.analysis.hypotheses.layer import Change, Family, IsolatedLayer, WrongLayer
from nmpsim.analysis.hypotheses.operation_changes import (
    change_activation,
    change_inputs,
    change_layout,
    change_numerics,
    change_operation,
)
from nmpsim.analysis.hypotheses.rounding_rules import list_rounding_rules
from nmpsim.analysis.hypotheses.solved import list_solved_changes
from nmpsim.analysis.hypotheses.solved_channels import list_solved_orders, list_solved_weights
from nmpsim.analysis.hypotheses.window_changes import change_window
from nmpsim.analysis.program import make_bundle_program
from nmpsim.analysis.reduce.crop import separate_tensors
from nmpsim.analysis.reduce.extract import extract_layers
from nmpsim.arrays import Array, Arrays
from nmpsim.bundle import Bundle
from nmpsim.core.device import Device
from nmpsim.core.run import Progress, ProgressCallback, make_layer_key
from nmpsim.diagnostics import UserError
from nmpsim.lir.opcode import WEIGHTED
from nmpsim.records import frozen

FAMILIES: dict[str, Family] = {
    "bias": change_bias,
    "weights": change_weights,
    "zero point": change_zero_points,
    "type": change_signedness,
    "window": change_window,
    "activation": change_activation,
    "operation": change_operation,
    "inputs": change_inputs,
}
"""Families of changes, the simplest first."""
LATE_FAMILIES = ("numerics", "layout", "channels", "rounding", "numbers", "single weights")
"""Families that are tried only if no other change fits, because they can imitate others."""
SAMPLED_FAMILIES = ("bias", "weights", "zero point")
"""Families that are tried on some windows of a convolution first."""
SAMPLED_CHANNELS = 8
"""Number of output channels on which changes are tried first."""
MIN_ERROR_BITS = 4
"""Smallest sum of ``log2(1 + error)`` of all elements for which changes are tried.

Any small change corrects a few elements that are near a tie and differ by one.
"""
MIN_PAIR_BITS = 48
"""Smallest sum of ``log2(1 + error)`` of all elements for which two changes are tried together."""
FIRST_CHANGES = 4
"""Number of changes that are tried together with a second change."""
MAX_FIRST_ERROR = 0.85
"""Largest mean of ``log2(1 + error)`` that the first of two changes leaves, relative to none."""
MAX_ROUNDING_ERROR = 2
"""Largest error in units of the last place that another rounding rule may cause."""
MAX_EXPLANATIONS = 5
"""Largest number of explanations that are reported."""
MAX_SECONDS = 10.0
"""Time after which a search stops."""


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


@attrs.frozen(eq=False)
class SearchLimits:
    """Limits of a search for causes, and its progress callback."""

    seconds: float = MAX_SECONDS
    """Time after which the search stops and returns what it has found."""
    is_interrupted: Callable[[], bool] = lambda: False
    """Function that is called between changes; the search stops if it returns True."""
    progress: ProgressCallback | None = None
    """Called before each family of changes."""


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
    if not is_program and _measure_bits(result, expected) < MIN_ERROR_BITS:
        return HypothesisResults(problem="the wrong elements are too few to distinguish causes")
    known = {
        one.output.name: outputs[make_layer_key(one)]
        for one in layers
        if one.index != index and make_layer_key(one) in outputs
    }
    clock = _Clock(limits or SearchLimits())
    found = _find_causes(WrongLayer(layer, result, expected), device, {**inputs, **known}, clock)
    if not is_program:
        return found
    again = LayerExplanation("program", "the layer compiled again from its LIR", expected.size)
    others = (attrs.evolve(one, is_of_program=True) for one in found.explanations)
    return attrs.evolve(found, explanations=(again, *others))


def _measure_bits(actual: Array, expected: Array) -> float:
    """Return the sum of ``log2(1 + error)`` of all elements."""
    return float(np.log2(1 + np.abs(actual.astype(np.float64) - expected)).sum())


class _SearchStoppedError(Exception):
    """Error that ends a search at its time limit or after an interruption."""


class _Clock:
    """Clock that ends a search at its time limit, and reports its progress."""

    def __init__(self, limits: SearchLimits) -> None:
        self._limits = limits
        self._end = time.monotonic() + limits.seconds

    def check(self) -> None:
        """Raise _SearchStoppedError at the time limit or after an interruption."""
        if time.monotonic() > self._end or self._limits.is_interrupted():
            raise _SearchStoppedError

    def report(self, done: int, total: int, name: str) -> None:
        """Report the progress of the search."""
        if self._limits.progress is not None:
            self._limits.progress(Progress("causes", done, total, name))


def _find_causes(
    wrong: WrongLayer, device: Device, others: Arrays, clock: _Clock
) -> HypothesisResults:
    """Try single changes, then pairs of changes."""
    first = _Search(wrong, device, others, clock)
    tried, explanations = first.tried, first.found
    is_complete = True
    try:
        first.run()
        if not explanations and _measure_bits(wrong.actual, wrong.expected) >= MIN_PAIR_BITS:
            explanations = _find_pairs(wrong, first, device, others, clock, tried)
    except (_SearchStoppedError, KeyboardInterrupt):
        is_complete = False
    return HypothesisResults(tuple(explanations[:MAX_EXPLANATIONS]), tried, "", is_complete)


def _find_pairs(
    wrong: WrongLayer,
    first: _Search,
    device: Device,
    others: Arrays,
    clock: _Clock,
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
    """Search for the changes that make a layer right."""

    def __init__(self, wrong: WrongLayer, device: Device, others: Arrays, clock: _Clock) -> None:
        self._wrong, self._device, self._others, self._clock = wrong, device, others, clock
        self.found: list[LayerExplanation] = []
        self.tried: dict[str, int] = {}
        """Number of changes that were tried, by family."""
        self._partial: list[tuple[float, str, str, IsolatedLayer]] = []
        """Error that remains after a change, and the change with its family."""
        self._tolerance = self._measure_tolerance()
        sampled = wrong.layer.sample_windows(wrong.actual != wrong.expected)
        self._sampled: WrongLayer | None = None
        if sampled is not None and self._tolerance >= 0:
            layer, places = sampled
            parts = (one[tuple(places.T)][:, None, None] for one in (wrong.actual, wrong.expected))
            self._sampled = WrongLayer(layer, *parts)
        self._channels = self._choose_channels()

    def _choose_channels(self) -> Array | None:
        """Return output channels to try first, most of them wrong, or None to try all at once."""
        layer, wrong = self._wrong.layer, self._wrong.actual != self._wrong.expected
        count = wrong.shape[-1] if wrong.ndim else 0
        has_groups = layer.get_attribute("Group", 1) != 1
        if layer.kind not in WEIGHTED or has_groups or count < 2 * SAMPLED_CHANNELS:
            return None
        errors = np.count_nonzero(wrong.reshape(-1, count), axis=0)
        return np.sort(np.argsort(-errors, kind="stable")[:SAMPLED_CHANNELS])

    def _measure_tolerance(self) -> int:
        """Return the largest difference of the exact result from the real one, plus one."""
        real = self._wrong.layer.estimate()
        if real is None:
            return -1
        return int(np.abs(real.astype(np.int64) - self._wrong.actual).max(initial=0)) + 1

    def run(self, *, is_second: bool = False) -> None:
        """Try all families, the late ones only if nothing else fits.

        A second change is not another rounding, which could hide a wrong first change.
        """
        names = [*FAMILIES, *LATE_FAMILIES]
        for number, name in enumerate(names):
            if name in LATE_FAMILIES and self.found:
                break
            if is_second and name == "rounding":
                continue
            if not is_second:
                self._clock.report(number, len(names), name)
            self.tried[name] = 0
            explanation = self._try_family(name)
            self.found += [explanation] if explanation else []

    def list_partial_changes(self) -> list[tuple[str, str, IsolatedLayer]]:
        """Return the changes with family that make errors much smaller, the best first."""
        best = sorted(self._partial, key=lambda one: one[0])[:FIRST_CHANGES]
        return [(family, text, layer) for _, family, text, layer in best]

    def _try_family(self, name: str) -> LayerExplanation | None:
        """Return the first change of a family that fits, or None."""
        wrong, size = self._wrong, self._wrong.expected.size
        if name == "rounding":
            errors = np.abs(wrong.actual.astype(np.float64) - wrong.expected)
            may_be_rounding = errors.max(initial=0) <= MAX_ROUNDING_ERROR
            for text, fits in list_rounding_rules(wrong.layer, wrong.expected, may_be_rounding):
                self._count(name)
                if fits:
                    return LayerExplanation(name, text, size)
            return None
        for text, layer, sampled in self._list_changes(name):
            self._count(name)
            if self._fits(name, text, layer, sampled):
                return LayerExplanation(name, text, size)
        return None

    def _count(self, name: str) -> None:
        self._clock.check()
        self.tried[name] += 1

    def _list_changes(self, name: str) -> Iterator[tuple[str, IsolatedLayer, WrongLayer | None]]:
        """Yield the changes of a family, with the same change of the sampled windows."""
        changes = self._list_whole_changes(name)
        if self._sampled is None or name not in SAMPLED_FAMILIES:
            yield from ((text, layer, None) for text, layer in changes)
            return
        parts = FAMILIES[name](self._sampled.layer, self._others)
        for (text, layer), (_, part) in zip(changes, parts, strict=True):
            yield text, layer, attrs.evolve(self._sampled, layer=part)

    def _list_whole_changes(self, name: str) -> Iterator[Change]:
        wrong = self._wrong
        if name in FAMILIES:
            return FAMILIES[name](wrong.layer, self._others)
        late = {
            "numerics": partial(change_numerics, wrong.layer, self._others),
            "layout": partial(change_layout, wrong.layer, self._others),
            "channels": partial(list_solved_orders, wrong),
            "numbers": partial(list_solved_changes, wrong, self._device),
            "single weights": partial(list_solved_weights, wrong),
        }
        return late[name]()

    def _fits(self, name: str, text: str, layer: IsolatedLayer, sampled: WrongLayer | None) -> bool:
        """Return whether a changed layer gives the expected result in each bit.

        A change after which errors are much smaller is recorded as the first of two changes.
        """
        wrong = self._wrong
        if layer.program is wrong.layer.program and layer.inputs is wrong.layer.inputs:
            assert layer.convert_result is not None
            result: Array | None = layer.convert_result(wrong.actual)
            return result is not None and np.array_equal(result, wrong.expected)
        if name != "numerics" and self._tolerance >= 0:
            whole = attrs.evolve(wrong, layer=layer)
            parts = [whole] if sampled is None else [sampled, whole]
            if self._channels is not None:
                parts = [*(self._select_channels(one) for one in parts), whole]
            if not all(self._is_near(name, text, layer, one) for one in parts):
                return False
        result = layer.execute(self._device)
        return result is not None and np.array_equal(result, wrong.expected)

    def _select_channels(self, wrong: WrongLayer) -> WrongLayer:
        """Return the channels of a changed layer that are tried first."""
        actual, expected = (one[..., self._channels] for one in (wrong.actual, wrong.expected))
        assert self._channels is not None
        return WrongLayer(wrong.layer.select_outputs(self._channels), actual, expected)

    def _is_near(self, name: str, text: str, layer: IsolatedLayer, wrong: WrongLayer) -> bool:
        """Return whether real arithmetic gives about the expected result."""
        near, expected = wrong.layer.estimate(), wrong.expected
        if near is None or near.shape != expected.shape or near.dtype != expected.dtype:
            return False
        distance = np.abs(near.astype(np.int64) - expected)
        if distance.max(initial=0) <= self._tolerance:
            return True
        remaining = _measure_bits(near, expected) / max(_measure_bits(wrong.actual, expected), 1)
        if remaining < MAX_FIRST_ERROR:
            self._partial.append((remaining, name, text, layer))
        return False
