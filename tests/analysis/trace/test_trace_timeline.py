"""A trace's numbers are the report's; its arrows lead from transfers to their use."""

import io
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import attrs
import numpy as np
import pytest
from corpus import compiled

import nmpsim
from nmpsim.analysis.trace import DramTrace, Selection, TimelineTrace
from nmpsim.isa.codec import decode_descriptor
from nmpsim.isa.table import DESCRIPTORS, DRAM_BASE, Unit
from nmpsim.report.analyses import ScratchpadBlock
from nmpsim.report.data import Saturation
from nmpsim.timing import get_costs

DIGITS = Path(__file__).parents[3] / "programs" / "digits"
TRACKS = {"load DMA": "load", "store DMA": "store", "MAC array": "mac", "vector unit": "vector"}


@pytest.fixture(scope="module")
def digits():
    return compiled(DIGITS / "digits.lir.txt")


def run(bundle, engine="compiled", chosen=None, limit=1 << 30):
    """Run a program; return its report, its trace and the lines of its DRAM trace."""
    chosen = chosen or Selection()
    file, lines = io.BytesIO(), io.BytesIO()
    device = nmpsim.Device(engine=engine)
    timeline = TimelineTrace(file, bundle, device.config.cores_count, chosen, limit)
    dram = DramTrace(lines, get_costs(device.config), chosen)

    def both(work):
        timeline(work)
        dram(work)

    image = np.load(DIGITS / "images" / "7.npy")
    report = device.run(bundle, {"data": image}, work=both)
    timeline.finish(report)
    return report, json.loads(file.getvalue()), lines.getvalue().decode().splitlines()


@pytest.fixture(scope="module")
def traced_run(digits):
    return run(digits)


def slices(trace, process=None):
    """Return complete events with the names of their tracks."""
    names = {
        e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"
    }
    found = [e | {"track": names[e["tid"]]} for e in trace["traceEvents"] if e["ph"] == "X"]
    return [e for e in found if process is None or e["pid"] == process]


def test_both_engines_give_the_same_trace(digits, traced_run):
    _, trace, lines = run(digits, "reference")
    assert trace == traced_run[1]
    assert lines == traced_run[2]


def test_units_are_busy_as_long_as_the_report_says(traced_run):
    report, trace, _ = traced_run
    busy: Counter[tuple[str, str]] = Counter()
    for event in slices(trace):
        if event["track"] in ("MAC array", "vector unit"):
            busy[event["args"]["layer"], TRACKS[event["track"]]] += event["dur"]
        elif event["track"] == "grants":
            busy[event["args"]["layer"], event["name"].split(",")[0]] += event["dur"]
    for layer in report.layers:
        for unit, cycles in layer.busy.items():
            assert busy[layer.name, unit] == cycles


def test_bytes_and_bursts_equal_the_report(traced_run):
    report, trace, lines = traced_run
    moved: Counter[tuple[str, str]] = Counter()
    for event in slices(trace):
        if "bytes" in event["args"]:
            moved[event["args"]["layer"], event["track"]] += event["args"]["bytes"]
    for layer in report.layers:
        assert moved[layer.name, "load DMA"] == layer.bytes_read
        assert moved[layer.name, "store DMA"] == layer.bytes_written
        assert moved[layer.name, "grants"] == 64 * layer.bursts
    assert len(lines) == sum(layer.bursts for layer in report.layers)


def counters(trace, name):
    return [e for e in trace["traceEvents"] if e["ph"] == "C" and e["name"] == name]


def test_counters_add_up_to_the_report(traced_run):
    report, trace, _ = traced_run
    busy = counters(trace, "DRAM busy %")
    lengths = np.diff([*(e["ts"] for e in busy), report.device_cycles])
    mean = sum(e["args"]["busy"] * n for e, n in zip(busy, lengths, strict=True))
    assert mean / report.device_cycles == pytest.approx(100 * report.use.dram_busy, abs=0.1)
    assert max(e["args"]["load"] for e in counters(trace, "DRAM queue: transfers")) > 1
    assert any(e["args"]["MAC arrays"] for e in counters(trace, "units at work"))


def test_scratchpad_use_equals_the_report(digits, traced_run):
    block = ScratchpadBlock(1, "loaded", 64, 96, 3)
    file = io.BytesIO()
    timeline = TimelineTrace(file, digits, 32, Selection())
    timeline.finish(attrs.evolve(traced_run[0], scratchpads=(block,)))
    name = "scratchpad bytes of one core"
    found = [e["args"]["used"] for e in counters(json.loads(file.getvalue()), name)]
    assert found == [32, 0, 0, 0, 0]
    assert counters(traced_run[1], name) == []


def test_layers_lie_end_to_end(traced_run):
    report, trace, _ = traced_run
    layers = slices(trace, 1)
    assert [(e["name"], e["dur"]) for e in layers] == [
        (x.name, x.device_cycles) for x in report.layers
    ]
    ends = np.cumsum([layer.device_cycles for layer in report.layers])
    assert [e["ts"] + e["dur"] for e in layers] == ends.tolist()
    assert all(
        e["ts"] + e["dur"] <= report.device_cycles for e in slices(trace) if e["track"] != "layers"
    )


def test_nothing_overlaps_on_a_track(traced_run):
    tracks: dict[int, list[tuple[int, int]]] = {}
    for event in slices(traced_run[1]):
        tracks.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    assert {e["track"] for e in slices(traced_run[1])} == {*TRACKS, "grants", "layers"}
    for spans in tracks.values():
        spans.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(spans))


def test_arrows_lead_from_a_load_to_work_that_waited_for_it(traced_run):
    events = traced_run[1]["traceEvents"]
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert begins.keys() == ends.keys()
    at = {(e["tid"], e["ts"]): e for e in slices(traced_run[1])}
    for number, begin in begins.items():
        load, use = at[begin["tid"], begin["ts"]], at[ends[number]["tid"], ends[number]["ts"]]
        assert load["track"] == "load DMA"
        assert use["track"] in ("MAC array", "vector unit")
        assert load["args"]["done"] <= use["ts"]
        assert load["pid"] == use["pid"]
    convolutions = [e for e in slices(traced_run[1]) if e["name"] == "conv"]
    used = {(e["tid"], e["ts"]) for e in ends.values()}
    assert convolutions
    assert all((e["tid"], e["ts"]) in used for e in convolutions)


def test_saturation_is_an_instant(digits):
    report, _, _ = run(digits)
    cut = Saturation("result", "high", 3, 9, 7, (0, 1, 2, 3), ((3, 3),))
    layers = list(report.layers)
    layers[2] = attrs.evolve(layers[2], saturation=(cut,))
    file = io.BytesIO()
    timeline = TimelineTrace(file, digits, 32, Selection())
    timeline.finish(attrs.evolve(report, layers=tuple(layers)))
    (instant,) = [e for e in json.loads(file.getvalue())["traceEvents"] if e["ph"] == "i"]
    assert (instant["name"], instant["args"]["count"]) == ("result high", 3)
    assert instant["ts"] == sum(layer.device_cycles for layer in layers[:3])


def test_saturation_appears_at_its_first_instruction(digits):
    """Each channel of a convolution lies in as many pixels of an instant as its slices say."""
    recorder = io.BytesIO()
    timeline = TimelineTrace(recorder, digits, 32, Selection(cores=frozenset({0})))
    image = np.load(DIGITS / "images" / "7.npy")
    report = nmpsim.Device().run(digits, {"data": image}, work=timeline)
    layers = list(report.layers)
    conv = next(layer for layer in layers if layer.op == "convolution")
    _, height, width, _ = conv.shape
    cuts = [
        Saturation("result", "high", 1, 1, 1, (0, y, x, 2), ((2, 1),))
        for y in range(height)
        for x in range(width)
    ]
    layers[conv.index] = attrs.evolve(conv, saturation=tuple(cuts))
    timeline.finish(attrs.evolve(report, layers=tuple(layers)))
    instants = [e for e in json.loads(recorder.getvalue())["traceEvents"] if e["ph"] == "i"]
    told = Counter((e["args"]["core"], e["ts"]) for e in instants)

    work: list[np.recarray] = []
    nmpsim.Device(engine="reference").run(digits, {"data": image}, work=work.append)
    entries = [
        e for e in np.concatenate(work) if e["layer"] == conv.index and e["unit"] == Unit.MAC
    ]
    assert told == {
        (int(e["core"]), int(e["end"])): _pixels(digits, int(e["descriptor"])) for e in entries
    }


def _pixels(bundle, descriptor):
    start = descriptor - bundle.image_base
    data = bundle.image[start : start + DESCRIPTORS["conv"].nbytes].tobytes()
    words = decode_descriptor("conv", data)
    return words["out_h"] * words["out_w"]


def test_cores_and_layers_can_be_chosen(digits, traced_run):
    index, name = next((x.index, x.name) for x in traced_run[0].layers if x.op == "convolution")
    whole = [e for e in slices(traced_run[1]) if e["args"].get("layer") == name]
    core = max(e["pid"] for e in whole) - 10
    _, trace, lines = run(digits, chosen=Selection(frozenset({core}), frozenset({index})))
    same = [e for e in whole if e["pid"] == 10 + core or e["name"].endswith(f", core {core}")]
    assert [e for e in slices(trace) if e["pid"] != 1] == same
    assert {e["pid"] for e in same} == {2, 10 + core}
    assert len(slices(trace, 1)) == len(traced_run[0].layers)
    assert 0 < len(lines) < len(traced_run[2])


def test_the_size_limit_is_kept(digits, traced_run):
    _, trace, _ = run(digits, limit=10_000)
    dropped = trace["otherData"]["dropped_events"]
    assert 0 < len(slices(traced_run[1])) - len(slices(trace)) <= dropped
    titles = [e for e in trace["traceEvents"] if e["ph"] == "M"]
    bounded = [e for e in trace["traceEvents"] if e["ph"] not in "MC" and e["pid"] != 1]
    size = sum(len(json.dumps(e)) for e in bounded)
    assert size < 12_500
    assert len(titles) == 6 + 4 + 32 * 10
    assert traced_run[1]["otherData"] == {
        "program": "main",
        "cycles": traced_run[0].device_cycles,
        "unit": "one microsecond of the trace is one cycle",
        "dropped_events": 0,
    }


def test_dram_addresses_equal_the_transfers(digits, traced_run):
    """Against the tensors: every burst of the input and of each output is asked for."""
    asked = {(line.split()[1], int(line.split()[0], 16)) for line in traced_run[2]}
    cycles = [int(line.split()[2]) for line in traced_run[2]]
    assert cycles == sorted(cycles)
    for layer in digits.metadata.layers:
        if layer.placement == "host":
            continue
        first = layer.output.address - DRAM_BASE
        count = int(np.prod(layer.output.shape))
        bursts = range(first - first % 64, first + count, 64)
        assert {("WRITE", address) for address in bursts} <= asked
    assert {operation for operation, _ in asked} == {"READ", "WRITE"}
