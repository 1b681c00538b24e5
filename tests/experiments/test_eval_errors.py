"""Errors of layers over a data set, recomputed from the saved outputs of single runs."""

import csv
import json
import math
import re

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.analysis.shadow import match_float_weights
from nmpsim.experiments.layer_errors import CAUSES, ERRORS, RANGE_STEPS
from nmpsim.interpreter import execute_real
from nmpsim.report.analyses import ShadowLayer

COUNT = 6


@pytest.fixture
def samples(digits):
    with np.load(digits / "testset.npz") as data:
        return data["x"][:COUNT, None], data["labels"][:COUNT]


def evaluate(program, digits, samples, **options):
    images, labels = samples
    options = {"jobs": 1, "shadow": True, "float_weights": digits / "float_weights.npz"} | options
    return nmpsim.evaluate(program, {"data": images}, labels, **options)


def decibels(reference, error):
    return 10 * math.log10(np.square(reference).sum() / np.square(error).sum())


def test_errors_equal_those_of_the_saved_outputs(digits, digits_bin, samples):
    bundle = nmpsim.load(digits_bin)
    floats = match_float_weights(bundle.module(), digits / "float_weights.npz").floats
    found = {one.name: one for one in evaluate(digits_bin, digits, samples).errors}
    device, expected = nmpsim.Device(), {}
    for image in samples[0]:
        report = device.run(bundle, {"data": image}, save_layers=True)
        reals = {
            one.name: values
            for one, _, values in execute_real(bundle.module(), {"data": image}, floats)
        }
        for layer in report.layers:
            stored = next(v for k, v in report.layer_outputs.items() if k.endswith(layer.name))
            name = layer.fused[-1] if layer.fused else layer.name
            expected.setdefault(layer.name, []).append((layer, stored, reals[name]))
    assert list(found) == list(expected)
    for name, runs in expected.items():
        layer, measures, sums = runs[0][0], found[name].measures, found[name].sums
        channels = layer.shape[-1]
        stored, real = (np.stack([run[i] for run in runs]).reshape(-1, channels) for i in (1, 2))
        values = stored.astype(np.float64)
        if layer.scale is not None:
            values = layer.scale * (values - layer.offset)
            used = [int(run[1].max()) - int(run[1].min()) for run in runs]
            np.testing.assert_array_equal(sums.ranges, np.bincount(used, minlength=256))
            error = (values - real) / layer.scale
            assert measures.max_error_ulp == pytest.approx(np.abs(error).max(), rel=1e-12)
            assert measures.mean_error_ulp == pytest.approx(np.abs(error).mean(), rel=1e-9)
            assert measures.bias_ulp == pytest.approx(error.mean(), rel=1e-9)
            assert measures.rmse_ulp == pytest.approx(np.square(error).mean() ** 0.5, rel=1e-9)
            shares, expected_range = np.array(used) / RANGE_STEPS, found[name].used_range
            assert expected_range["mean"] == pytest.approx(shares.mean())
            assert (expected_range["least"], expected_range["most"]) == (min(shares), max(shares))
            for part, share in expected_range["quantiles"].items():
                exact = np.quantile(shares, float(part), method="inverted_cdf")
                assert share == pytest.approx(exact)
        assert measures.sqnr_db["error"] == pytest.approx(decibels(real, values - real), rel=1e-9)
        assert measures.saturated == sum(run[0].saturated for run in runs)
        assert measures.elements == values.size
        for channel, one in enumerate(found[name].channels):
            of_channel = real[:, channel], (values - real)[:, channel]
            if of_channel[1].any() and of_channel[0].any():
                assert one.sqnr_db["error"] == pytest.approx(decibels(*of_channel), rel=1e-9)
            energy = np.square(of_channel[1]).sum()
            assert sums.energies["error"][channel] == pytest.approx(energy, rel=1e-9)


def list_decibels(layer: ShadowLayer):
    split = layer.split
    parts = {"error": layer.result_error, "isolated": layer.isolated}
    parts |= {cause: getattr(split, cause) for cause in CAUSES}
    return {name: part.sqnr_db for name, part in parts.items() if part is not None}


@pytest.mark.parametrize("has_weights", [True, False])
def test_causes_of_one_sample_equal_its_shadow(digits, digits_bin, samples, has_weights):
    weights = digits / "float_weights.npz" if has_weights else None
    one = samples[0][:1], samples[1][:1]
    found = evaluate(digits_bin, digits, one, float_weights=weights).errors
    bundle, inputs = nmpsim.load(digits_bin), {"data": samples[0][0]}
    report = nmpsim.Device().run(bundle, inputs, save_layers=True)
    shadow = nmpsim.Shadow(bundle, weights).evaluate(report, inputs).shadow
    for errors, layer in zip(found, shadow.layers, strict=True):
        assert errors.measures.sqnr_db == pytest.approx(list_decibels(layer), rel=1e-9)
    names = set(ERRORS) if has_weights else {"error", "saturation", "rescale"}
    assert {name for one in found for name in one.measures.sqnr_db} == names


def assert_equal(found, expected):
    for one, other in zip(found.errors, expected.errors, strict=True):
        assert (one.name, one.step, one.not_compared) == (other.name, other.step, "")
        for name, values in attrs.asdict(other.sums, recurse=False).items():
            actual = getattr(one.sums, name)
            if name == "energies":
                assert actual.keys() == values.keys()
                values, actual = (
                    np.stack([part[key] for key in sorted(part)]) for part in (values, actual)
                )
            np.testing.assert_allclose(actual, values, rtol=1e-12, err_msg=f"{one.name} {name}")


def test_errors_depend_on_neither_tiling_nor_processes_nor_interruptions(
    digits, digits_bin, samples, tmp_path
):
    expected = evaluate(digits_bin, digits, samples)
    assert_equal(evaluate(digits_bin, digits, samples, jobs=2), expected)
    chained = nmpsim.compile(digits / "digits.lir.txt", digits / "digits.npz", tiling="chain")
    assert any(layer.in_scratchpads for layer in chained.bundle.metadata.layers)
    assert_equal(evaluate(chained, digits, samples), expected)
    results = tmp_path / "out.json"
    evaluate(digits_bin, digits, samples, limit=2, results=results)
    resumed = evaluate(digits_bin, digits, samples, results=results)
    assert resumed.reused == 2
    assert_equal(resumed, expected)
    again = evaluate(digits_bin, digits, samples, results=results)
    assert (again.reused, len(again.predictions)) == (COUNT, COUNT)
    assert_equal(again, expected)


@pytest.mark.parametrize("other", [{"shadow": False}, {"float_weights": None}])
def test_results_with_other_errors_are_refused(digits, digits_bin, samples, tmp_path, other):
    results = tmp_path / "out.json"
    evaluate(digits_bin, digits, samples, limit=1, results=results)
    with pytest.raises(nmpsim.UserError, match="results of another shadow") as refused:
        evaluate(digits_bin, digits, samples, results=results, **other)
    assert refused.value.diagnostics[0].code == "RESULT001"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("total", [0.0]), ("saturated", "x"), ("ranges", [1]), ("samples", None)),
        *(("energies", {}), ("energies", []), ("energies", 1), ("energies", {"error": [1.0]})),
        *(("elements", 0), ("samples", 0), ("ranges", [-1] * 256), ("largest", {})),
        *(("absolute", [float("inf")] * 16), ("largest", [-1.0] * 16), ("total", [None] * 16)),
        *(("saturated", [1 << 70] * 16), ("elements", "x")),
    ],
)
def test_damaged_sums_are_refused(digits, digits_bin, samples, tmp_path, key, value):
    results = tmp_path / "out.json"
    evaluate(digits_bin, digits, samples, limit=1, results=results)
    document = json.loads(results.read_text())
    document["errors"][1]["sums"][key] = value
    results.write_text(json.dumps(document))
    with pytest.raises(nmpsim.UserError, match="the file is damaged"):
        evaluate(digits_bin, digits, samples, results=results)


def test_tables_and_pages_have_layers_and_channels(cli, digits, digits_bin, tmp_path):
    words = ("eval", digits_bin, "--dataset", digits / "testset.npz", "--labels", "labels")
    words += ("--limit", 2, "--jobs", 1, "--shadow", "-o", tmp_path / "o.json")
    weights = ("--float-weights", digits / "float_weights.npz")
    done = cli(*words, *weights, "--errors", tmp_path / "e.csv")
    assert done.exit_code == 0, done.stderr
    assert "lowest isolated SQNR first" in done.stdout
    with (tmp_path / "e.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    of_layer = [row for row in rows if row["layer"] == "conv1__2"]
    assert [row["channel"] for row in of_layer] == ["", *map(str, range(len(of_layer) - 1))]
    elements = [int(row["elements"]) for row in of_layer]
    assert elements[0] == sum(elements[1:])
    document = json.loads((tmp_path / "o.json").read_text())
    conv = next(one for one in document["errors"] if one["name"] == "conv1__2")
    assert float(of_layer[0]["sqnr_db_weights"]) == conv["measures"]["sqnr_db"]["weights"]
    lowest = min(float(one["measures"]["sqnr_db"]["error"]) for one in document["errors"])
    options = (tmp_path / "o.json", "--commit", "abc", "--format", "json")
    history = cli("history", tmp_path / "history", *options)
    assert json.loads(history.stdout)["entries"][0]["sqnr_db"] == lowest, history.stderr
    assert cli(*words, *weights, "--errors", tmp_path / "e.html").exit_code == 0
    page = (tmp_path / "e.html").read_text()
    assert page.count("<details><summary>conv1__2</summary>") == 1
    assert re.search(r'<td class="number +heat4" *data-value', page)
    wrong = cli(*words, *weights, "--errors", tmp_path / "e.txt")
    assert wrong.exit_code == 2
    assert "ARG001" in wrong.stderr
    for option in (weights, ("--errors", tmp_path / "e.csv")):
        refused = cli(*(word for word in words if word != "--shadow"), *option)
        assert refused.exit_code == 2
        assert "requires --shadow" in refused.stderr


def test_a_parquet_file_equals_the_csv_file(cli, digits, digits_bin, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    words = ("eval", digits_bin, "--dataset", digits / "testset.npz", "--labels", "labels")
    words += ("--limit", 1, "--jobs", 1, "--shadow", "--errors")
    assert cli(*words, tmp_path / "e.csv").exit_code == 0
    assert cli(*words, tmp_path / "e.parquet").exit_code == 0
    with (tmp_path / "e.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = parquet.read_table(tmp_path / "e.parquet").to_pylist()
    texts = [{key: "" if v is None else str(v) for key, v in row.items()} for row in found]
    assert texts == rows
