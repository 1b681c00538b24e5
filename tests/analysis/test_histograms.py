"""Histograms of layers' outputs."""

import attrs
import numpy as np
import pytest
from report_samples import sample_report

from nmpsim.analysis.histograms import histograms, make_histogram
from nmpsim.diagnostics import UserError


def make_layer(elem):
    return attrs.evolve(sample_report().layers[0], elem=elem)


@pytest.mark.parametrize("elem", ["i8", "ui8", "i16", "i32", "float", "index64"])
def test_bins_equal_numpy(elem):
    dtype = {"i8": "int8", "ui8": "uint8", "i16": "int16", "i32": "int32", "index64": "int64"}
    kind = np.dtype(dtype.get(elem, "float32"))
    rng = np.random.default_rng(5)
    if kind.kind == "f":
        values = rng.standard_normal((3, 4, 5)).astype(kind)
    else:
        limits = np.iinfo(kind) if kind.itemsize < 4 else np.iinfo(np.int16)
        values = rng.integers(limits.min, limits.max + 1, (3, 4, 5), dtype=kind)
    found = make_histogram(make_layer(elem), values)
    edges = found.low + found.width * np.arange(len(found.counts) + 1)
    expected = np.histogram(values.astype(np.float64), edges)[0]
    assert sum(found.counts) == values.size == 60
    assert np.abs(np.array(found.counts) - expected).sum() <= 2  # a float at the very edge


def test_each_value_of_int8_has_its_bin():
    found = make_histogram(make_layer("i8"), np.array([-128, -128, 0, 127], np.int8))
    assert {n - 128: count for n, count in enumerate(found.counts) if count} == {
        -128: 2,
        0: 1,
        127: 1,
    }


@pytest.mark.parametrize(
    ("values", "counts", "lost"),
    [
        ([], (0,), 0),
        ([np.nan, np.inf, -np.inf], (0,), 3),
        ([2.5, 2.5, np.nan], (2, *[0] * 63), 1),
    ],
)
def test_nan_and_infinities_are_counted(values, counts, lost):
    found = make_histogram(make_layer("float"), np.array(values, np.float32))
    assert (found.counts, found.not_finite) == (counts, lost)


def test_layers_are_selected_by_name():
    values = {"0011:fc": np.zeros((1, 10), np.int8), "0012:softmax": np.zeros((1, 6), np.float32)}
    report = sample_report(layer_outputs=values)
    assert [one.name for one in histograms(report, ["softmax", "fc", "number:11"])] == [
        "fc",
        "softmax",
    ]
    assert [one.index for one in histograms(report, ["all"])] == [1, 2]
    assert histograms(report, []) == ()
    with pytest.raises(UserError, match="LAYER001"):
        histograms(report, ["nothing"])


def test_outputs_must_be_saved():
    with pytest.raises(UserError, match="save_layers=True"):
        histograms(sample_report(), ["fc"])
