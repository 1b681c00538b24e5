"""Scales and zero points of results against the float model, without a profile."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest
from lint_programs import findings, load_recorded, one_convolution

from nmpsim.analysis.lint import LocatedFinding
from nmpsim.analysis.lint.load import read_float_arrays
from nmpsim.lir.nodes import Module, Quantization, TensorType

RULE = "result-differs"
LENET = "lir/lenet/i8_asym_b32/cpumax.lir.txt"
RESNET = "lir_real/resnet8/i8_asym_b32/cpumax.lir.txt"


def change_types(
    module: Module, like: str, factor: float = 1.0, offset: int | None = None
) -> Module:
    """Return a module with a changed scale or zero point for all tensors of a buffer's type."""
    own = next(one.attributes["Ty"].quant for one in module.instructions if one.name == like)
    assert own is not None

    def changed(value: object) -> object:
        if not isinstance(value, TensorType) or value.quant != own:
            return value
        scale, zero = (
            float(np.float32(own.scale * factor)),
            own.offset if offset is None else offset,
        )
        return attrs.evolve(value, quant=Quantization(scale, zero, 0.0, 0.0))

    instructions = (
        attrs.evolve(one, attributes={key: changed(v) for key, v in one.attributes.items()})
        for one in module.instructions
    )
    return attrs.evolve(module, instructions=tuple(instructions))


def find_results(name: str, shared: Path, like: str = "", **change: float) -> list[LocatedFinding]:
    pytest.importorskip("onnx")
    module = load_recorded(name, shared)
    floats = read_float_arrays(module, shared.joinpath(*Path(name).parts[:2], "model.onnx"))
    wrong = change_types(module, like, **change) if like else module
    return findings(wrong, RULE, float_weights=floats)


@pytest.mark.parametrize(
    "name",
    [
        LENET,
        "lir/minimob/i8_pow2_b8/interp.lir.txt",
        "lir/minires/i16_pow2_b16/nmp.lir.txt",
        "lir_real/mnist_cntk/i16_pow2_b16/nmp.lir.txt",
        "lir_real/mnist_cntk/i8_asym_b32_channelwise/cpuold.lir.txt",
        RESNET,
    ],
)
def test_programs_of_glow_have_no_findings(name: str, shared: Path) -> None:
    assert find_results(name, shared) == []


@pytest.mark.parametrize("factor", [1.25, 2.0, 0.5])
def test_a_bias_reveals_the_scale_of_the_input(factor: float, shared: Path) -> None:
    (finding,) = find_results(LENET, shared, "conv1__8_res", factor=factor)
    assert (finding.severity, finding.layer) == ("error", "pool1__2")
    assert finding.facts == {"by": "bias", "factor": pytest.approx(factor, rel=1e-5)}


@pytest.mark.parametrize("factor", [16.0, 0.0625])
def test_a_scale_without_bias_is_found_by_a_run(factor: float, shared: Path) -> None:
    """The last result: nothing reads it that has a bias."""
    (finding,) = find_results(LENET, shared, "fc2__1_res", factor=factor)
    assert (finding.severity, finding.layer, finding.facts["by"]) == ("warning", "fc2__1", "run")
    assert 0.5 < finding.facts["factor"] / factor < 2


def test_a_scale_between_two_additions_is_found(shared: Path) -> None:
    name = "lir_real/resnet8/i8_pow2_b8/cpu.lir.txt"
    layers = [
        finding.layer for finding in find_results(name, shared, "b3_conv1__2_res", factor=8.0)
    ]
    assert layers == ["b3_conv1__2"]


@pytest.mark.parametrize(
    ("name", "like", "offset"),
    [
        (LENET, "conv1__8_res", -88),  # never negative
        (LENET, "conv1__8_res", 0),
        (LENET, "fc2__1_res", 127),
        ("lir/lenet/i8_pow2_b8/cpu.lir.txt", "fc1__2_res", 40),  # all others are 0
    ],
)
def test_wrong_zero_points_are_found(name: str, like: str, offset: int, shared: Path) -> None:
    by = [
        (one.severity, one.facts["by"]) for one in find_results(name, shared, like, offset=offset)
    ]
    assert by
    assert set(by) == {("warning", "zero point")}


def test_an_impossible_run_gives_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    from nmpsim.diagnostics import fail

    def refuse(_: object) -> None:
        raise fail("MEM001", "too large")

    monkeypatch.setattr("nmpsim.analysis.lint.result_reference.estimate_ranges", refuse)
    module = one_convolution(np.ones(4, np.int32), 0.001)
    (finding,) = findings(module, RULE, float_weights={})
    assert (finding.severity, finding.facts) == ("note", {"by": "run"})
    assert findings(module, RULE) == []
