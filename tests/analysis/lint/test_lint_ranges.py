"""Test rules that compare recorded ranges with types, and the rule for unused constants."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest
from lint_programs import change_scales, findings, load_recorded, one_convolution
from lir_draft import Draft, int8

import nmpsim
from nmpsim.analysis.lint import load_subject, run_rules
from nmpsim.lir.nodes import Module
from nmpsim.quantization import ValueRange, read_profile
from nmpsim.quantization.profile import ProfileLookup

PRODUCTS = float(np.float32(0.05) * np.float32(0.02))


def convolution(scale: float, offset: int = 0) -> Module:
    bias = np.ones(4, np.int32)
    return one_convolution(bias, PRODUCTS, out_scale=scale, offsets=(0, offset))


def make_ranges(module: Module, **ranges: tuple[float, float]) -> dict[str, object]:
    """Return ranges by name; ``own`` stands for the convolution's."""
    own = module.instructions[-1].name
    return {"ranges": {own if n == "own" else n: ValueRange(*ends) for n, ends in ranges.items()}}


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
def test_types_too_narrow_for_recorded_ranges_are_found(
    scale: float, offset: int, severity: str | None
) -> None:
    module = convolution(scale, offset)
    found = findings(module, RULE, **make_ranges(module, own=(-6.211, 6.211)))
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    if severity == "error" and not offset:
        assert found[0].facts["part"] == pytest.approx(0.125, abs=0.01)


def test_a_fused_activation_gives_no_finding() -> None:
    """Glow gives the convolution the range of the ReLU, leaky ReLU or clip after it."""
    for scale, offset, after in (
        (8.0 / 255, -128, (0.0, 8.0)),
        (8.0 / 127, 0, (0.0, 8.0)),
        (8.8 / 255, -105, (-0.8, 8.0)),
        (6.0 / 255, -128, (0.0, 6.0)),
    ):
        module = convolution(scale, offset)
        assert findings(module, RULE, **make_ranges(module, own=(-20.0, 8.0), act=after)) == []
        assert findings(module, RULE, **make_ranges(module, own=(-20.0, 8.0))) != []


def test_names_match_without_their_suffix() -> None:
    one, two = ValueRange(0, 1), ValueRange(0, 2)
    assert ProfileLookup({"conv__2": one, "conv": two}).find_range("conv__2") == one
    assert ProfileLookup({"relu__1_max": one, "relu": two}).find_range("relu__1_max__1") == one
    assert ProfileLookup({"conv__1": one, "conv__3": one}).find_range("conv__2") == one
    assert ProfileLookup({"conv__1": one, "conv__3": two}).find_range("conv__2") is None
    assert ProfileLookup({"conv": one}).find_range("conv_a") is None
    module = convolution(0.776 / 127)
    stem = module.instructions[-1].name.rpartition("__")[0]
    assert len(findings(module, RULE, **make_ranges(module, **{f"{stem}__77": (-6.0, 6.0)}))) == 1


ALIKE = [
    ("lir_real/mnist_cntk/i8_asym_b32/cpu.lir.txt", "lir/lenet"),
    ("lir/lenet/i8_pow2_b8/cpumax.lir.txt", "lir_real/mnist_cntk"),
    ("lir_real/mnist_cntk/i8_asym_b32_channelwise/cpu.lir.txt", "lir/lenet"),  # by its results
    ("lir/minires/i16_pow2_b16/nmp.lir.txt", "lir_real/resnet8"),
    ("lir_real/resnet8/i8_asym_b32/interp.lir.txt", "lir/minires"),
]
"""Programs, and networks whose layers are called like theirs."""


@pytest.mark.parametrize(("name", "other"), ALIKE)
def test_a_foreign_profile_with_equal_names_is_found(name: str, other: str, shared: Path) -> None:
    module = load_recorded(name, shared)
    own = "/".join(name.split("/")[:2])
    for net, expected in ((own, []), (other, ["ranges-foreign"])):
        subject = attrs.evolve(
            load_subject(module), ranges=read_profile(shared / net / "profile.tsv")
        )
        report = run_rules(subject)
        assert [f.rule for f in report.findings if f.rule.startswith("range")] == expected
        skipped = {one.rule for one in report.skipped if "another network" in one.reason}
        assert skipped == ({"range-too-narrow", "ranges-unknown"} if expected else set())


def test_one_weight_of_another_scale_does_not_make_a_profile_foreign(shared: Path) -> None:
    name = "lir/lenet/i8_asym_b32/cpumax.lir.txt"
    module = change_scales(load_recorded(name, shared), {"conv1_weights__1": 0.5})
    profile = read_profile(shared / "lir/lenet/profile.tsv")
    assert findings(module, "ranges-foreign", ranges=profile) == []


def test_results_reveal_a_foreign_profile_without_constants(shared: Path) -> None:
    text = shared / "lir_real/mnist_cntk/i8_asym_b32/cpu.lir.txt"
    for net, expected in (("lir_real/mnist_cntk", 0), ("lir/lenet", 1)):
        found = nmpsim.lint(text, ranges=shared / net / "profile.tsv")
        assert [f.facts["by"] for f in found if f.rule == "ranges-foreign"] == [
            "results"
        ] * expected


def test_a_profile_of_another_network_is_found() -> None:
    module = convolution(0.1)
    (finding,) = findings(module, "ranges-unknown", **make_ranges(module, other=(0.0, 1.0)))
    assert (finding.severity, finding.facts) == ("warning", {"known": 0, "results": 1})
    assert findings(module, "ranges-unknown", **make_ranges(module, own=(0.0, 1.0))) == []
    assert findings(module, "ranges-unknown") == []


@pytest.mark.parametrize(("value", "held"), [(6.0, 6.35), (6.4, 6.35), (6.37, 6.35), (-7.0, -6.4)])
def test_splats_beyond_their_type_are_found(value: float, held: float) -> None:
    draft = Draft()
    draft.emit("splat", draft.output(int8((1, 4), 0.05)), Value=value)
    found = findings(draft.module(), "splat-saturates")
    beyond = abs(value) > 6.4 or value == 6.4
    assert [finding.severity for finding in found] == (["warning"] if beyond else [])
    if beyond:
        assert found[0].facts["held"] == pytest.approx(held)


def test_unused_constants_are_found() -> None:
    draft = Draft()
    spare = draft.constant(np.ones(4, np.int8), "i8", 0.5)
    draft.emit("splat", draft.output(int8((1, 4), 0.05)), Value=1.0)
    (finding,) = findings(draft.module(), "constant-unused")
    assert (finding.severity, finding.tensor) == ("note", spare.name)
