"""Changes of a layer after which real arithmetic gives about the expected result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import attrs
import numpy as np

from nmpsim.analysis.hypotheses.constant_changes import (
    change_bias,
    change_scales,
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
from nmpsim.analysis.hypotheses.solved import list_solved_changes
from nmpsim.analysis.hypotheses.solved_channels import list_solved_orders, list_solved_weights
from nmpsim.analysis.hypotheses.window_changes import change_window
from nmpsim.arrays import Array, Arrays
from nmpsim.core.device import Device
from nmpsim.core.run import Progress, ProgressCallback
from nmpsim.lir.opcode import WEIGHTED

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
LATE_FAMILIES = ("numerics", "layout", "channels", "scale", "rounding", "numbers", "single weights")
"""Families that are tried only if no other change fits, because they can imitate others."""
SAMPLED_FAMILIES = ("bias", "weights", "zero point")
"""Families that are tried on some windows of a convolution first."""
SAMPLED_CHANNELS = 8
"""Number of output channels on which changes are tried first."""
FIRST_CHANGES = 4
"""Number of changes that are tried together with a second change."""
MAX_FIRST_ERROR = 0.85
"""Largest mean of ``log2(1 + error)`` that the first of two changes leaves, relative to none."""
MAX_SECONDS = 10.0
"""Time after which a search stops."""


@attrs.frozen(eq=False)
class SearchLimits:
    """Limits of a search for causes of a wrong result, and the progress callback of the search."""

    seconds: float = MAX_SECONDS
    """Time after which the search stops and returns what it has found."""
    is_interrupted: Callable[[], bool] = lambda: False
    """Function that is called between changes; the search stops if it returns True."""
    progress: ProgressCallback | None = None
    """Called before each family of changes."""


def measure_error_bits(actual: Array, expected: Array) -> float:
    """Return the sum of ``log2(1 + error)`` of all elements, which is 0 for equal arrays."""
    return float(np.log2(1 + np.abs(actual.astype(np.float64) - expected)).sum())


class SearchStoppedError(Exception):
    """Error raised when a search reaches its time limit or is interrupted."""


class SearchClock:
    """Clock of a search, which checks the time limit and reports progress."""

    def __init__(self, limits: SearchLimits) -> None:
        self._limits = limits
        self._end = time.monotonic() + limits.seconds

    def check_time(self) -> None:
        """Raise SearchStoppedError after the time limit or an interruption."""
        if time.monotonic() > self._end or self._limits.is_interrupted():
            raise SearchStoppedError

    def report_progress(self, done: int, total: int, name: str) -> None:
        """Report the progress of the search, if there is a progress callback."""
        if self._limits.progress is not None:
            self._limits.progress(Progress("causes", done, total, name))


class ChangeFilter:
    """Filter of changes of a wrong layer, which keeps those with nearly the expected result.

    Parameters
    ----------
    wrong
        The layer with its actual and its expected result.
    others
        Other tensors of the reference by name.
    clock
        Clock that ends the search.
    device
        Device that refines solved numbers; None if the arithmetic is unknown.
    tolerance
        Largest difference of a near element; by default one more than that of the layer's own
        result from the real one.
    share
        Smallest share of near elements.
    """

    def __init__(
        self,
        wrong: WrongLayer,
        others: Arrays,
        clock: SearchClock,
        device: Device | None = None,
        tolerance: int | None = None,
        share: float = 1.0,
    ) -> None:
        self._wrong, self._others, self._clock, self._device = wrong, others, clock, device
        self._share = share
        self.tried: dict[str, int] = {}
        """Number of changes that were tried, by family."""
        self._partial: list[tuple[float, str, str, IsolatedLayer]] = []
        """Error that remains after a change, and the change with its family."""
        self._tolerance = self._measure_tolerance() if tolerance is None else tolerance
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
        """Return the largest difference of the exact result from the real one, plus one.

        Returns -1 if the real result is unknown; each change is then near.
        """
        real = self._wrong.layer.estimate()
        if real is None:
            return -1
        return int(np.abs(real.astype(np.int64) - self._wrong.actual).max(initial=0)) + 1

    def list_near_changes(self, name: str) -> Iterator[Change]:
        """Yield the changes of family ``name`` with nearly the expected result in real arithmetic.

        A change after which errors are much smaller is recorded for list_partial_changes.
        """
        self.tried.setdefault(name, 0)
        for text, layer, sampled in self._list_changes(name):
            self.count_change(name)
            if name == "numerics" or self._tolerance < 0:
                yield text, layer
                continue
            whole = attrs.evolve(self._wrong, layer=layer)
            parts = [whole] if sampled is None else [sampled, whole]
            if self._channels is not None and not layer.has_same_program(self._wrong.layer):
                parts = [*(self._select_channels(one) for one in parts), whole]
            if all(self._is_near(name, text, layer, one) for one in parts):
                yield text, layer

    def list_partial_changes(self) -> list[tuple[str, str, IsolatedLayer]]:
        """Return (family, description, layer) of changes with much smaller errors, best first."""
        best = sorted(self._partial, key=lambda one: one[0])[:FIRST_CHANGES]
        return [(family, text, layer) for _, family, text, layer in best]

    def count_change(self, name: str) -> None:
        """Count a tried change of a family; raise SearchStoppedError if the search must end."""
        self._clock.check_time()
        self.tried[name] = self.tried.get(name, 0) + 1

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
            "scale": partial(change_scales, wrong.layer, self._others),
            "numbers": partial(list_solved_changes, wrong, self._device),
            "single weights": partial(list_solved_weights, wrong),
        }
        return late[name]()

    def _select_channels(self, wrong: WrongLayer) -> WrongLayer:
        """Return the channels of a changed layer that are tried first."""
        actual, expected = (one[..., self._channels] for one in (wrong.actual, wrong.expected))
        assert self._channels is not None
        return attrs.evolve(
            wrong,
            layer=wrong.layer.select_output_channels(self._channels),
            actual=actual,
            expected=expected,
        )

    def _is_near(self, name: str, text: str, layer: IsolatedLayer, wrong: WrongLayer) -> bool:
        """Return whether real arithmetic gives about the expected result."""
        expected = wrong.expected
        if wrong.layer.has_same_program(self._wrong.layer) and wrong.layer.convert_result:
            near: Array | None = wrong.layer.convert_result(wrong.actual)
        else:
            near = wrong.layer.estimate()
        if near is None or near.shape != expected.shape or near.dtype != expected.dtype:
            return False
        distance = np.abs(near.astype(np.int64) - expected)
        if np.mean(distance <= self._tolerance) >= self._share:
            return True
        remaining = measure_error_bits(near, expected) / max(
            measure_error_bits(wrong.actual, expected), 1
        )
        if remaining < MAX_FIRST_ERROR:
            self._partial.append((remaining, name, text, layer))
        return False
