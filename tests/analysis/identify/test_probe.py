"""Probes divide the rules of a class, or the rules are equal for all sums of the layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from click.testing import CliRunner
from identified_convolution import (
    BIAS,
    CHANNELS,
    WEIGHTS,
    ZERO_Y,
    compute_sums,
    multipliers,
    record,
    write_model,
)

from nmpsim.analysis.identify import has_equal_rules, identify_program, make_probe
from nmpsim.analysis.identify.layers import RecordedLayer
from nmpsim.analysis.identify.limits import ArithmeticLimits
from nmpsim.analysis.identify.probe_layers import (
    list_weighted_sums,
    probe_constant_inputs,
    probe_inputs,
)
from nmpsim.analysis.identify.rules import make_families
from nmpsim.analysis.identify.search import RequantizationRule, RuleEvaluator
from nmpsim.analysis.program import Program, load_program
from nmpsim.cli.app import app
from tests.identify_campaign.__main__ import run_device
from tests.identify_campaign.devices import Device
from tests.identify_campaign.models import draw_layers
from tests.identify_campaign.models import write_model as write_layers


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("probe") / "model.onnx")


@pytest.fixture(scope="module")
def program(model: Path) -> Program:
    return load_program(model)


def shift_down(sums: Any, bias: Any) -> Any:
    mul, shift = multipliers(16)
    return (sums + bias) * mul >> shift


def compute_results(x: Any, weights: Any = WEIGHTS, bias: Any = BIAS) -> Any:
    sums = compute_sums(x, weights)
    exact = shift_down(sums, bias.astype(np.int64)[:, None, None]) + ZERO_Y
    return np.clip(exact, -128, 127).astype(np.int8)


def test_a_device_that_runs_the_probe_divides_the_class(model: Path, tmp_path: Path) -> None:
    dumps, probe = record(tmp_path / "dumps.npz", shift_down), tmp_path / "probe.npz"
    words = ["identify", model, "--dumps", dumps, "--probe", probe, "--format", "json"]
    result = CliRunner().invoke(app, [str(word) for word in words])
    (one,) = json.loads(result.stdout)["classes"]
    with np.load(probe) as file:
        arrays = dict(file)
    expected = [arrays[key] for key in arrays if key.endswith("/result")]
    assert one["groups"] == len(expected) > 1
    y = compute_results(arrays["x"])
    assert sum(np.array_equal(values, y.transpose(0, 2, 3, 1)) for values in expected) == 1
    np.savez(tmp_path / "recorded.npz", **(arrays | {"y": y}))
    words[2:2] = ["--dumps", tmp_path / "recorded.npz"]
    result = CliRunner().invoke(app, [str(word) for word in words])
    document = json.loads(result.stdout)
    (less,) = document["classes"]
    assert not document["unused"]
    assert less["count"] < one["count"]
    assert less["count"] == 1 or less["groups"] or less["equal"] is not None


def test_recorded_constants_replace_those_of_the_model(program: Program, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    weights = rng.integers(-127, 128, WEIGHTS.shape).astype(np.int8)
    bias = rng.integers(-4000, 4000, CHANNELS).astype(np.int32)
    x = rng.integers(-128, 128, (1, CHANNELS, 12, 13)).astype(np.int8)
    arrays = {"x": x, "y": compute_results(x, weights, bias)}
    constants = {"constant/w": weights.transpose(0, 2, 3, 1), "constant/b": bias}
    np.savez(tmp_path / "dumps.npz", **arrays, **constants)
    found = identify_program(program, [tmp_path / "dumps.npz"])
    assert found.is_explained and not found.unused
    np.savez(tmp_path / "wrong.npz", **arrays, **(constants | {"constant/b": bias[1:]}))
    with pytest.raises(Exception, match="the array 'constant/b' has the wrong shape or type"):
        identify_program(program, [tmp_path / "wrong.npz"])


def test_rules_that_inputs_cannot_divide_are_divided_by_weights(
    program: Program, tmp_path: Path
) -> None:
    """All rules that round down to 16 and to 15 bits have equal results for inputs of zero."""
    dumps = record(tmp_path / "dumps.npz", shift_down)
    found = identify_program(program, [dumps])
    (one,) = found.classes
    assert has_equal_rules(one) is False
    probe = make_probe(found, one, weights=True)
    assert probe is not None and len(probe.groups) > 1
    single = one.rules[:1] * 2
    assert has_equal_rules(type(one)(one.kind, one.layers, single)) is True


def test_biases_of_one_layer_give_the_next_one_its_sums(tmp_path: Path) -> None:
    """The rules of the second layer differ for a sum that no recorded input of it has."""
    rng, device = np.random.default_rng(7), Device("", "fixed 12", "up")
    layers = draw_layers(rng, 2, 4)
    write_layers(tmp_path / "model.onnx", layers, 8)
    x = rng.integers(-128, 128, (2, 4, 8, 8)).astype(np.int8)
    np.savez(tmp_path / "dumps.npz", **run_device(device, layers, x))
    found = identify_program(load_program(tmp_path / "model.onnx"), [tmp_path / "dumps.npz"])
    source, layer = (one.layer for one in found.layers)
    assert isinstance(source, RecordedLayer) and isinstance(layer, RecordedLayer)
    rules = [
        RequantizationRule("", family, family.factors[0])
        for family in make_families(0)
        if (family.place, family.rounding) in (("sum", "down"), ("sum", "up"))
    ][:2]
    changed, constant = next(probe_constant_inputs(layer, rules, source))
    sample = next(changed.iterate_samples())
    one, other = (RuleEvaluator(changed).predict([rule], sample) for rule in rules)
    assert (one != other).any()
    assert not constant.weights.any()
    bias = constant.scales.bias.values
    zero = attrs.evolve(layers[0], weights=0 * layers[0].weights, bias=bias)
    recorded = run_device(device, [zero], x)["t1"].transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(recorded, changed.inputs[:, 0])


def test_all_sums_of_few_weights_are_listed() -> None:
    rng = np.random.default_rng(0)
    for weights in (np.array([3]), np.array([-7, 4]), np.array([2, -6, 10])):
        grid = np.meshgrid(*[np.arange(-5, 9)] * weights.size)
        sums = np.unique(sum(w * x for w, x in zip(weights, grid, strict=True)))
        np.testing.assert_array_equal(list_weighted_sums(weights, (-5, 8)), sums)
    assert list_weighted_sums(rng.integers(1, 9, 40), (-128, 127)) is None


@pytest.mark.parametrize("has_bias", [False, True])
def test_results_of_all_rules_rise_with_the_sum(
    program: Program, tmp_path: Path, has_bias: bool
) -> None:
    found = identify_program(program, [record(tmp_path / "dumps.npz", shift_down)])
    layer = found.layers[0].layer
    evaluator, rng = RuleEvaluator(layer), np.random.default_rng(1)
    sums = np.unique(rng.integers(-60000, 60000, 4000))
    sums = np.concatenate([np.arange(-3000, 3000), sums[np.abs(sums) >= 3000]])
    sums.sort()
    channels = np.full(sums.size, 2)
    for family in make_families(0, has_bias=has_bias):
        few = [RequantizationRule("", family, one) for one in family.factors[:40:9]]
        results = evaluator.make_predictor(few, channels)(sums)
        assert (np.diff(results, axis=1) >= 0).all(), family


def test_a_probe_has_the_sums_at_which_accumulators_wrap(program: Program, tmp_path: Path) -> None:
    """The rules differ only in whether the sum that wraps includes the bias."""
    found = identify_program(program, [record(tmp_path / "dumps.npz", shift_down)])
    layer = found.classes[0].layers[0]
    assert isinstance(layer, RecordedLayer)
    families = [one for one in make_families(0) if (one.rounding, one.bias) == ("down", "rint")]
    rules = [
        RequantizationRule("", family, family.factors[0], limits=ArithmeticLimits(17, wraps=True))
        for place in ("sum", "product")
        for family in [one for one in families if one.place == place][:1]
    ]
    (probe,) = probe_inputs(layer, rules)
    sample = next(probe.iterate_samples())
    channel = int(np.abs(BIAS).argmax())
    sums = sample.sums[sample.channels == channel]
    assert {(1 << 16) - BIAS[channel], 1 << 16} <= set(sums.tolist())
    one, other = (RuleEvaluator(probe).predict([rule], sample) for rule in rules)
    assert (np.abs(one - other) > 100).any()
