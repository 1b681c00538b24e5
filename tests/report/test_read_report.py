"""Reports read back: the same, or one clear error."""

import json

import attrs
import jsonschema
import numpy as np
import pytest
from report_samples import TRAP, detailed_report, sample_report

from nmpsim.diagnostics import UserError
from nmpsim.report.data import ChainReport, OutputReport
from nmpsim.report.json import format_json, make_report_schema, to_json, write_report
from nmpsim.report.pointers import PointerFinding, PointerReport
from nmpsim.report.read import decode_report, read_report
from nmpsim.report.termination import ConsoleLine


@pytest.mark.parametrize(
    "report", [sample_report(), sample_report(trap=TRAP), detailed_report()], ids=str
)
def test_a_report_survives_a_round_trip(report, tmp_path):
    path = tmp_path / "a run.json"
    path.write_bytes(b"\xef\xbb\xbf" + format_json(to_json(report)).replace("\n", "\r\n").encode())
    read = read_report(path)
    assert to_json(read) == to_json(report)
    for field in ("layers", "trap", "histograms", "memory", "edges", "timeline", "scratchpads"):
        assert getattr(read, field) == getattr(report, field), field


def test_a_report_is_written_and_read(tmp_path):
    path = tmp_path / "run.json"
    write_report(detailed_report(), path)
    assert path.read_text() == format_json(to_json(detailed_report()))
    assert to_json(read_report(str(path))) == to_json(detailed_report())
    with pytest.raises(UserError, match="FILE002"):
        write_report(detailed_report(), tmp_path / "missing" / "run.json")


def test_a_detailed_report_fits_the_schema():
    jsonschema.Draft202012Validator(make_report_schema()).validate(to_json(detailed_report()))


@pytest.mark.parametrize(
    "values", [np.zeros((0, 4)), np.array(3), np.array([np.nan, np.inf, -np.inf, 0.5])]
)
def test_unusual_outputs_survive_a_round_trip(values):
    output = OutputReport("y", "float", None, None, values)
    data = to_json(sample_report(output_reports=(output,)))
    (read,) = decode_report(json.loads(format_json(data))).output_reports
    assert np.array_equal(read.values, values, equal_nan=True)
    assert read.values.shape == values.shape


def edit(change):
    data = to_json(detailed_report())
    change(data)
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"", "Expecting value"),
        (b"\xff\xfe", "utf-8"),
        (b"[1, 2]", "list"),
        (b"{}", "None"),
        (b'{"schema": "nmpsim-report-0"}', "nmpsim-report-0"),
        (b"[" * 100_000, "recursion"),
        (b'{"schema": NaN}', "NaN"),
        (edit(lambda d: d.pop("layers")), "'layers'"),
        (edit(lambda d: d["layers"][1].update(cycles="7")), "layers[1].cycles: '7'"),
        (edit(lambda d: d["layers"][1].update(macs=10**30)), "layers[1].macs"),
        (edit(lambda d: d.update(seconds=1e999)), "Infinity is not JSON"),
        (edit(lambda d: d["layers"].pop(0)), "layers whose indices are not their positions"),
        (edit(lambda d: d["histograms"][0].update(index=99)), "layer 99"),
        (edit(lambda d: d["edges"].append([0, 3])), "layer 3"),
        (edit(lambda d: d["edges"].append([1, 1])), "an edge to an earlier layer"),
        (edit(lambda d: d["timeline"]["spans"][0].__setitem__(2, 50)), "layer 50"),
        (edit(lambda d: d["scratchpads"][0].update(layer=9)), "layer 9"),
        (edit(lambda d: d["timeline"]["spans"][0].pop()), "timeline.spans[0]"),
        (edit(lambda d: d["outputs"]["prob"].update(shape=[7])), "cannot reshape"),
        (
            edit(lambda d: d["outputs"]["prob"].update(values=[[1], [2, 3]])),
            "inhomogeneous",
        ),
    ],
)
def test_other_documents_are_refused(text, found, tmp_path):
    path = tmp_path / "run.json"
    path.write_bytes(text)
    with pytest.raises(UserError) as caught:
        read_report(path)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "REPORT001"
    assert diagnostic.place.file == str(path)
    assert found in diagnostic.found
    assert len(diagnostic.found) < 300


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_unreadable_files_are_errors(name, tmp_path):
    with pytest.raises(UserError) as caught:
        read_report(tmp_path / name)
    assert caught.value.diagnostics[0].code == "FILE001"


def test_nothing_of_a_report_is_lost():
    """A new field of the data that the JSON does not carry would be."""
    lost = {"layer_outputs", "savings_meter"}
    told = {"output_reports": "outputs"}
    line = ConsoleLine(3, 5, "hello\n")
    chain = ChainReport(0, 1, 5, 64, 2)
    found = PointerFinding("in f: text", "a.c", 3, 0, 0x8000_0000, ("main (a.c:9)",))
    pointers = PointerReport((found,), ("no relocations",))
    report = sample_report(
        exit_status=0, console=(line,), console_dropped=1, chains=(chain,), pointers=pointers
    )
    fields = {f.name for f in attrs.fields(type(report))} - lost
    document = to_json(report)
    assert {told.get(name, name) for name in fields} <= set(document)
    read = decode_report(document)
    assert (read.exit_status, read.console, read.console_dropped) == (0, (line,), 1)
    assert read.pointers == pointers
    assert {"exit_status", "console", "console_dropped", "pointers"}.isdisjoint(
        to_json(sample_report())
    )
