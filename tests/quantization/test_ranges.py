"""Range methods against brute force on the values, and their effect on a network."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nmpsim
from nmpsim.quantization.parameters import RANGE_METHODS, SCHEMAS, choose_parameters, quantize
from nmpsim.quantization.profile import ValueRange
from nmpsim.quantization.ranges import (
    BINS,
    ValueHistogram,
    _measure_divergence,
    _measure_square_error,
    choose_range,
)

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


def make_values(seed: int) -> np.ndarray:
    """Return values of a random shape of distribution, some with outliers or a ReLU."""
    rng = np.random.default_rng(seed)
    draw = (rng.normal, rng.laplace, rng.uniform, rng.exponential)[rng.integers(4)]
    values = draw(size=4000) * 10 ** rng.uniform(-3, 3)
    if rng.integers(2):
        values[:4] *= rng.uniform(2, 20)
    if rng.integers(2):
        values = np.maximum(values, 0)
    return values.astype(np.float32)


def make_histogram(values: np.ndarray) -> ValueHistogram:
    histogram = ValueHistogram.from_range(ValueRange.from_values(values))
    for part in np.split(values, 4):
        histogram.add(part)
    assert histogram.counts.sum() == np.count_nonzero(values)
    return histogram


def compute_square_error(values: np.ndarray, range_: ValueRange, schema: str, elem: str) -> float:
    parameters = choose_parameters(range_.low, range_.high, schema, elem)
    integers = quantize(values, parameters, elem).astype(np.float64)
    reals = parameters.scale * (integers - parameters.offset)
    return float(np.square(reals - values).sum() / max(np.count_nonzero(values), 1))


@given(st.integers(0, 10**6), st.sampled_from(SCHEMAS))
def test_the_square_error_is_that_of_quantized_values(seed, schema):
    values = make_values(seed)
    histogram = make_histogram(values)
    rng = np.random.default_rng(seed)
    whole = histogram.range
    range_ = ValueRange(whole.low * rng.uniform(0.2, 1), whole.high * rng.uniform(0.2, 1))
    found = _measure_square_error(histogram, range_, schema, "i8")
    assert found == pytest.approx(compute_square_error(values, range_, schema, "i8"), rel=0.15)


@given(st.integers(0, 10**6), st.sampled_from(SCHEMAS))
def test_the_least_square_error_is_found(seed, schema):
    values = make_values(seed)
    histogram = make_histogram(values)
    best = choose_range(histogram, "mse", 99.99, schema, "i8")
    found = compute_square_error(values, best, schema, "i8")
    parts = np.linspace(0.1, 1, 10)
    tried = (
        compute_square_error(
            values, ValueRange(histogram.range.low * a, histogram.range.high * b), schema, "i8"
        )
        for a in parts
        for b in parts
    )
    assert found <= 1.2 * min(tried)


def test_the_ends_of_a_range_are_independent():
    rng = np.random.default_rng(0)
    values = rng.uniform(-1, 1, 200_000).astype(np.float32)
    values[:4] = [2, 4, 6, 8]
    best = choose_range(make_histogram(values), "mse", 99.99, "asymmetric", "i8")
    assert best.low == pytest.approx(-1, rel=0.05)
    assert best.high < 7
    assert compute_square_error(values, best, "asymmetric", "i8") < 0.9 * min(
        compute_square_error(values, ValueRange(-part, 8 * part), "asymmetric", "i8")
        for part in np.linspace(0.05, 1, 100)
    )


@given(st.integers(0, 10**6), st.floats(50, 100))
def test_a_percentile_leaves_out_the_largest_values(seed, percentile):
    values = make_values(seed)
    histogram = make_histogram(values)
    range_ = choose_range(histogram, "percentile", percentile, "asymmetric", "i8")
    used = values[values != 0].astype(np.float64)
    outside = np.abs(used[(used < range_.low) | (used > range_.high)])
    width = (histogram.range.high - histogram.range.low) / BINS
    allowed = used.size * (1 - percentile / 100)
    assert outside.size <= allowed + 1e-6
    limit = np.sort(np.abs(used))[::-1][min(int(allowed), used.size - 1)]
    assert max(-range_.low, range_.high) <= limit + 2 * width
    assert range_.low <= 0 <= range_.high


def compute_divergence(
    histogram: ValueHistogram, range_: ValueRange, schema: str, elem: str
) -> float:
    """Compute the divergence bin by bin, in plain Python."""
    parameters = choose_parameters(range_.low, range_.high, schema, elem)
    limits = np.iinfo(np.int8)
    place = [float(c / parameters.scale + parameters.offset) for c in histogram.centers]
    counts = [int(count) for count in histogram.counts]
    inside = [i for i, q in enumerate(place) if limits.min - 0.5 <= q <= limits.max + 0.5]
    clipped = {i: counts[i] for i in inside}
    clipped[inside[0]] += sum(counts[: inside[0]])
    clipped[inside[-1]] += sum(counts[inside[-1] + 1 :])
    levels: dict[int, list[int]] = {}
    for i in inside:
        levels.setdefault(round(place[i]), []).append(i)
    spread = {}
    for bins in levels.values():
        used = [i for i in bins if clipped[i]]
        spread |= dict.fromkeys(used, sum(counts[i] for i in bins) / max(len(used), 1))
    total, all_spread = sum(clipped.values()), sum(spread.values())
    found = sum(
        clipped[i] / total * np.log(clipped[i] / total / max(q / all_spread, 1 / (total * 1e3)))
        for i, q in spread.items()
    )
    used_levels = sum(any(clipped[i] for i in bins) for bins in levels.values())
    return found - (len(spread) - used_levels) / (2 * total)


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("seed", range(4))
def test_the_divergence_is_that_of_its_definition(seed, schema):
    histogram = make_histogram(make_values(seed))
    for part in (1.0, 0.6, 0.3):
        range_ = ValueRange(histogram.range.low * part, histogram.range.high * part)
        found = _measure_divergence(histogram, range_, schema, "i8")
        assert found == pytest.approx(compute_divergence(histogram, range_, schema, "i8"))


def test_the_divergence_leaves_out_outliers_only():
    rng = np.random.default_rng(0)
    even = rng.uniform(-1, 1, 100_000).astype(np.float32)
    whole = choose_range(make_histogram(even), "kl", 99.99, "symmetric", "i8")
    assert whole.high > 0.95
    even[0] = 30
    cut = choose_range(make_histogram(even), "kl", 99.99, "symmetric", "i8")
    assert 0.9 < cut.high < 3


@pytest.mark.parametrize("method", RANGE_METHODS)
@pytest.mark.parametrize("values", [[0.0, 0.0], [2.0, 2.0], [-3.0, -3.0], [1e-38, 1e38]])
def test_extreme_ranges_stay_finite(method, values):
    histogram = make_histogram(np.tile(np.float32(values), 4))
    found = choose_range(histogram, method, 99.0, "asymmetric", "i8")
    assert np.isfinite([found.low, found.high]).all()
    assert found.low <= 0 <= found.high


@pytest.fixture(scope="module")
def calibrated():
    with np.load(DIGITS / "testset.npz") as data:
        images = {"x": data["x"][:100, None]}
    return nmpsim.calibrate(DIGITS / "float.lir.txt", DIGITS / "float_weights.npz", images)


def test_the_comparison_has_all_range_methods(calibrated):
    settings = nmpsim.quantization.Settings()
    compared = nmpsim.quantization.compare_schemas(calibrated, settings)
    found = {one.settings.range_method: one for one in compared if one.settings.elem == "i8"}
    assert set(found) == set(RANGE_METHODS)
    of_minmax = next(one for one in compared if one.settings == settings)
    assert found["mse"].worst_output.sqnr_db > of_minmax.worst_output.sqnr_db + 1


def test_the_default_ranges_are_the_whole_ranges(calibrated):
    assert calibrated.choose_ranges(nmpsim.quantization.Settings()) is calibrated.ranges
    all_values = nmpsim.quantization.Settings(range_method="percentile", percentile=100.0)
    for value, range_ in calibrated.choose_ranges(all_values).items():
        whole = calibrated.ranges[value]
        assert range_.low == pytest.approx(min(whole.low, 0), rel=2 / BINS, abs=2 / BINS)
        assert range_.high == pytest.approx(max(whole.high, 0), rel=2 / BINS, abs=2 / BINS)


def test_unusable_range_settings_are_refused(calibrated):
    text, weights = DIGITS / "float.lir.txt", DIGITS / "float_weights.npz"
    images = {"x": calibrated.samples[0]["x"]}
    for wrong in ({"range_method": "best"}, {"percentile": 101.0}, {"percentile": float("nan")}):
        with pytest.raises(nmpsim.UserError, match="ARG001"):
            nmpsim.quantize(text, weights, images, **wrong)
    of_profile = nmpsim.quantization.CalibratedProgram(
        calibrated.graph, [], calibrated.ranges, calibrated.origin
    )
    with pytest.raises(nmpsim.UserError, match="range method 'mse' requires samples"):
        of_profile.quantize(nmpsim.quantization.Settings(range_method="mse"))
