"""Recorded ranges against types, fixed values, and constants that nobody takes."""

from __future__ import annotations

import numpy as np
import pytest
from lint_programs import findings, one_convolution
from lir_draft import Draft, int8

from nmpsim.analysis.lint.range_narrow import recorded_for
from nmpsim.analysis.lint.subject import RecordedRange
from nmpsim.lir import Module

PRODUCTS = float(np.float32(0.05) * np.float32(0.02))


def convolution(scale: float, offset: int = 0) -> Module:
    bias = np.ones(4, np.int32)
    return one_convolution(bias, PRODUCTS, out_scale=scale, offsets=(0, offset))


def ranged(module: Module, **ranges: tuple[float, float]) -> dict[str, object]:
    """Ranges by name; ``own`` is the convolution's."""
    own = module.instructions[-1].name
    return {
        "ranges": {own if n == "own" else n: RecordedRange(*ends) for n, ends in ranges.items()}
    }


RULE = "range-too-narrow"


@pytest.mark.parametrize(
    ("scale", "offset", "severity"),
    [
        (6.211 / 127, 0, None),
        (6.0 / 127, 0, None),  # an outlier cut off
        (5.0 / 127, 0, "warning"),
        (0.776 / 127, 0, "error"),
        (6.211 / 127, 60, "warning"),  # the zero point is another one
        (6.211 / 127, 100, "error"),
    ],
)
def test_types_that_do_not_hold_what_was_recorded(
    scale: float, offset: int, severity: str | None
) -> None:
    module = convolution(scale, offset)
    found = findings(module, RULE, **ranged(module, own=(-6.211, 6.211)))
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    if severity == "error" and not offset:
        assert found[0].facts["part"] == pytest.approx(0.125, abs=0.01)


def test_an_activation_that_was_merged_is_no_fault() -> None:
    """Glow gives the convolution the range of the ReLU, leaky ReLU or clip after it."""
    for scale, offset, after in (
        (8.0 / 255, -128, (0.0, 8.0)),
        (8.0 / 127, 0, (0.0, 8.0)),
        (8.8 / 255, -105, (-0.8, 8.0)),
        (6.0 / 255, -128, (0.0, 6.0)),
    ):
        module = convolution(scale, offset)
        assert findings(module, RULE, **ranged(module, own=(-20.0, 8.0), act=after)) == []
        assert findings(module, RULE, **ranged(module, own=(-20.0, 8.0))) != []


def test_names_without_their_suffix() -> None:
    one, two = RecordedRange(0, 1), RecordedRange(0, 2)
    assert recorded_for("conv__2", {"conv__2": one, "conv": two}) == one
    assert recorded_for("relu__1_max__1", {"relu__1_max": one, "relu": two}) == one
    assert recorded_for("conv__2", {"conv__1": one, "conv__3": one}) == one
    assert recorded_for("conv__2", {"conv__1": one, "conv__3": two}) is None
    assert recorded_for("conv_a", {"conv": one}) is None
    module = convolution(0.776 / 127)
    stem = module.instructions[-1].name.rpartition("__")[0]
    assert len(findings(module, RULE, **ranged(module, **{f"{stem}__77": (-6.0, 6.0)}))) == 1


def test_the_profile_of_another_network() -> None:
    module = convolution(0.1)
    (finding,) = findings(module, "ranges-unknown", **ranged(module, other=(0.0, 1.0)))
    assert (finding.severity, finding.facts) == ("warning", {"known": 0, "results": 1})
    assert findings(module, "ranges-unknown", **ranged(module, own=(0.0, 1.0))) == []
    assert findings(module, "ranges-unknown") == []


@pytest.mark.parametrize(("value", "held"), [(6.0, 6.35), (6.4, 6.35), (6.37, 6.35), (-7.0, -6.4)])
def test_splats_beyond_their_type(value: float, held: float) -> None:
    draft = Draft()
    draft.emit("splat", draft.output(int8((1, 4), 0.05)), Value=value)
    found = findings(draft.module(), "splat-saturates")
    beyond = abs(value) > 6.4 or value == 6.4
    assert [finding.severity for finding in found] == (["warning"] if beyond else [])
    if beyond:
        assert found[0].facts["held"] == pytest.approx(held)


def test_constants_that_nobody_takes() -> None:
    draft = Draft()
    spare = draft.constant(np.ones(4, np.int8), "i8", 0.5)
    draft.emit("splat", draft.output(int8((1, 4), 0.05)), Value=1.0)
    (finding,) = findings(draft.module(), "constant-unused")
    assert (finding.severity, finding.tensor) == ("note", spare.name)
