"""The JSON report and its schema say the same."""

import json
from typing import Annotated, Literal, NotRequired, TypedDict

import jsonschema
import numpy as np
import pytest
from report_samples import TRAP, sample_report

from nmpsim.report.data import OutputReport
from nmpsim.report.fields import OR_NULL, Source
from nmpsim.report.json import format_json, make_report_schema, to_json


def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(make_report_schema())


def with_output(values: np.ndarray, scale: float | None = None, offset: int | None = None):
    output = OutputReport("y", "i8", scale, offset, values)
    return to_json(sample_report(outputs={"y": values}, output_reports=(output,)))


def test_the_schema_is_valid():
    jsonschema.Draft202012Validator.check_schema(make_report_schema())


@pytest.mark.parametrize("changes", [{}, {"trap": TRAP}, {"layers": (), "notes": ("a note",)}])
def test_a_report_fits_the_schema(changes):
    report = to_json(sample_report(**changes))
    validator().validate(report)
    validator().validate(json.loads(format_json(report)))


def test_missing_and_additional_fields_are_refused():
    report = to_json(sample_report(trap=TRAP))
    parts = [report, report["layers"][0], report["trap"], report["outputs"]["prob"]]
    parts += [report["layers"][0]["saturation"][0], report["layers"][0]["bytes"]]
    for part in parts:
        for key in list(part):
            value = part.pop(key)
            assert not validator().is_valid(report), key
            part[key] = value
        part["extra"] = 1
        assert not validator().is_valid(report)
        del part["extra"]
    validator().validate(report)


def test_every_field_of_a_layer_is_written():
    layer = to_json(sample_report())["layers"][0]
    assert layer["bytes"] == {"read": 1000, "written": 500}
    assert layer["saturation"][0] == {
        "stage": "rescale",
        "side": "high",
        "count": 7,
        "elements": 12_544,
        "worst": 300,
        "first": [0, 1, 2, 3],
        "channels": [[3, 5], [4, 2]],
    }
    assert layer["saturation"][1]["stage"] == "activation"


def test_floats_read_back_exactly():
    values = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)
    read = json.loads(format_json(with_output(values)))["outputs"]["y"]
    assert np.array_equal(np.array(read["values"], np.float32), values)
    assert read["shape"] == [2, 3]


def test_infinities_and_nan_are_strings():
    values = np.array([1.5, np.nan, np.inf, -np.inf], np.float32)
    report = with_output(values)
    validator().validate(report)
    assert report["outputs"]["y"]["values"] == [1.5, "NaN", "Infinity", "-Infinity"]
    assert [float(v) for v in report["outputs"]["y"]["values"]][2] == np.inf


@pytest.mark.parametrize(
    "values",
    [np.int8(3).reshape(()), np.zeros((0, 4), np.int8), np.array([True]), np.array([1 << 40])],
)
def test_unusual_outputs_are_written(values):
    report = with_output(np.asarray(values), 0.5, -1)
    validator().validate(json.loads(format_json(report)))
    assert report["outputs"]["y"]["scale"] == 0.5


def test_the_text_is_one_document_with_lists_on_one_line():
    text = format_json({"a": [{"b": [1, 2]}, {"c": {}}], "d": [], "e": float("inf"), "f": (1, 2)})
    assert json.loads(text) == {
        "a": [{"b": [1, 2]}, {"c": {}}],
        "d": [],
        "e": "Infinity",
        "f": [1, 2],
    }
    assert '"b": [1, 2]' in text
    assert text.endswith("}\n")


class PartDocument(TypedDict):
    """Part of a document."""

    size: Annotated[int, Source(lambda part: 2 * part["half"])]


class WholeDocument(TypedDict):
    """Document of the schema ``whole-1``."""

    schema: Literal["whole-1"]
    name: Annotated[str | None, OR_NULL]
    error: Annotated[float | None, OR_NULL, Source("found.error")]
    parts: list[PartDocument]
    more: NotRequired[list[int]]


def test_document_takes_its_fields_from_a_record() -> None:
    record = {"name": "", "found": {"error": float("inf")}, "parts": [{"half": 2}], "other": 1}
    expected = {"schema": "whole-1", "name": None, "error": None, "parts": [{"size": 4}]}
    assert to_json(record, WholeDocument) == expected
    record |= {"found": None, "more": [3]}
    assert to_json(record, WholeDocument) == {**expected, "more": [3]}
