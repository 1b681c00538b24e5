"""Test rules that compare weights with the float model, on planted faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from lint_programs import ONE_BY_ONE, findings
from lir_draft import Draft, int8, tensor_type

from nmpsim.analysis.lint import LocatedFinding
from nmpsim.lir.nodes import Module

RNG = np.random.default_rng(5)
FLOATS = RNG.normal(0, 0.3, (4, 5, 3, 3))
"""Filters in OIHW, as in models."""
SCALE, ZERO = float(np.float32(np.ptp(FLOATS) / 250)), 3


def quantize(reals: np.ndarray, scale: float = SCALE) -> np.ndarray:
    return np.clip(np.rint(reals / scale) + ZERO, -128, 127).astype(np.int8)


def convolution(values: np.ndarray, scale: float = SCALE, zero: int = ZERO) -> Module:
    draft = Draft()
    source = draft.input(int8((1, 3, 3, 5), 0.05))
    filter_ = draft.constant(values, "i8", scale, zero)
    bias = draft.constant(np.ones(4, np.int32), "i32", 0.05 * scale)
    out = draft.output(int8((1, 1, 1, 4), 0.1))
    window = {**ONE_BY_ONE, "Kernels": (3, 3)}
    draft.emit("convolution", out, source, filter_, bias, **window, Group=1)
    return draft.module()


def weights_findings(module: Module, floats: Mapping[str, np.ndarray]) -> list[LocatedFinding]:
    return findings(module, "weights-differ", float_weights=floats)


OHWI = FLOATS.transpose(0, 2, 3, 1)
PLANTED: dict[str, Callable[[], Module]] = {
    "zeros": lambda: convolution(np.full_like(quantize(OHWI), ZERO)),
    "scale": lambda: convolution(quantize(OHWI), 2 * SCALE),
    "zero point": lambda: convolution(quantize(OHWI), SCALE, ZERO + 39),
    "order": lambda: convolution(quantize(OHWI.transpose(0, 2, 1, 3))),
    "other": lambda: convolution(quantize(RNG.normal(0, 0.3, OHWI.shape))),
}


@pytest.mark.parametrize("cause", PLANTED)
def test_planted_faults_are_found(cause: str) -> None:
    module = PLANTED[cause]()
    name = next(weight.name for weight in module.weights if len(weight.type.shape) == 4
                and weight.constant)  # fmt: skip
    (finding,) = weights_findings(module, {name: FLOATS})
    assert (finding.severity, finding.facts["cause"]) == ("error", cause)
    assert finding.tensor == name
    if cause == "scale":
        assert finding.facts["factor"] == pytest.approx(2, rel=0.01)
    if cause == "zero point":
        assert finding.facts["integers"] == -39


@pytest.mark.parametrize("cause", ["scale", "zero point", "order"])
def test_renamed_constants_are_matched(cause: str) -> None:
    """Channelwise operations rename them."""
    (finding,) = weights_findings(PLANTED[cause](), {"w": FLOATS, "x": RNG.normal(0, 0.3, (180,))})
    assert (finding.severity, finding.facts["cause"]) == ("error", cause)
    assert finding.facts["source"] == "w"


@pytest.mark.parametrize("name", ["w", "const__2"])
def test_correct_weights_give_no_finding(name: str) -> None:
    for outliers in (1.0, 0.5):  # half of the range saturates
        module = convolution(quantize(OHWI, SCALE * outliers), SCALE * outliers)
        assert weights_findings(module, {name: FLOATS}) == []


def test_a_folded_batch_norm_gives_no_finding() -> None:
    factors = np.array([0.5, -1.0, 0.9, 0.7])[:, None, None, None]
    module = convolution(quantize(OHWI * factors))
    assert weights_findings(module, {"const__2": FLOATS}) == []
    folded = {"const__2": FLOATS, "const__2 with its batch norm": FLOATS * factors}
    assert weights_findings(module, folded) == []
    doubled = convolution(quantize(OHWI * factors), 2 * SCALE)
    (finding,) = weights_findings(doubled, folded)
    assert finding.facts["factor"] == pytest.approx(2, rel=0.01)


def test_weights_of_another_network_are_found() -> None:
    module = convolution(quantize(OHWI))
    (finding,) = weights_findings(module, {"w": RNG.normal(0, 0.3, FLOATS.shape)})
    assert (finding.severity, finding.facts) == ("warning", {"cause": "unknown", "count": 1})


def test_biases_without_weights_give_no_finding() -> None:
    assert weights_findings(convolution(quantize(OHWI)), {"b": np.ones(4)}) == []


# not-compiled


@pytest.mark.parametrize("scale", [0.0, np.nan, np.inf, -0.5])
def test_refused_layers_are_all_reported(scale: float) -> None:
    draft = Draft()
    source = draft.input(tensor_type("i8", (1, 3, 3, 8), 0.5))
    for _ in range(2):
        filter_ = draft.constant(np.ones((2, 1, 1, 8), np.int8), "i8", 0.0)
        bias = draft.constant(np.ones(2, np.int32), "i32", 0.0)
        scales, zeros = np.array([0.5, scale], np.float32), np.zeros(2, np.int32)
        kinds = ((scales, "float"), (zeros, "index32"), (scales / 2, "float"), (zeros, "index32"))
        tables = [draft.constant(values, elem) for values, elem in kinds]
        out = draft.output(int8((1, 3, 3, 2), 0.25))
        opcode = "channelwisequantizedconvolution"
        draft.emit(opcode, out, source, filter_, bias, *tables, **ONE_BY_ONE, Group=1)
    found = findings(draft.module(), "not-compiled", float_weights={"w": np.ones((2, 8, 1, 1))})
    assert [(finding.severity, finding.facts["code"]) for finding in found] == [
        ("error", "COMP001")
    ] * 2
    assert found[0].number != found[1].number


def test_activations_beyond_the_device_are_found() -> None:
    draft = Draft()
    tall = int8((1, 128, 128, 64), 0.05)
    draft.emit("copy", draft.output(tall), draft.input(tall))
    assert findings(draft.module(), "not-compiled") == []
    settings = {"dram_bytes": 1 << 20}
    (finding,) = findings(draft.module(), "not-compiled", settings=settings)
    assert finding.facts["code"] == "COMP002"
