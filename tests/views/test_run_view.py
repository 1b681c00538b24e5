"""The text view of a run: what it says, and that it fits."""

import attrs
import numpy as np
import pytest
from report_samples import CUTS, TRAP, layer, sample_report

from nmpsim.report.data import OutputReport, RunReport
from nmpsim.report.device_use import compute_device_use
from nmpsim.views.console import render_text
from nmpsim.views.run_text import print_run
from nmpsim.views.text import describe_output, find_top_classes, is_score_shape


def text(report: RunReport, width: int = 120, terminal: bool = False) -> str:
    return render_text(lambda console: print_run(report, console), width=width, terminal=terminal)


def table_lines(report: RunReport, width: int) -> list[str]:
    lines = text(report, width).splitlines()
    start = next(i for i, line in enumerate(lines) if "operation" in line)
    return lines[start : start + 2 + len(report.layers)]


def big_report() -> RunReport:
    """Return a report with the largest realistic numbers."""
    wide = {"cycles": 123_456_789, "shape": (1, 224, 224, 64), "saturation": CUTS}
    return sample_report(
        layers=tuple(
            layer(i, f"resnetv24_stage1_conv{i}_fwd__1_bias_res", **wide) for i in range(120)
        ),
        cycles=120 * 123_456_789,
    )


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("report", [sample_report(), big_report()], ids=["small", "big"])
def test_the_table_fits_its_width(report, width):
    lines = table_lines(report, width)
    assert max(map(len, lines)) <= width
    assert len(lines) == len(report.layers) + 2


def test_a_wide_table_shortens_nothing():
    lines = "\n".join(table_lines(sample_report(), 200))
    assert "a_rather_long_network_name__stage1_block1_conv1_res" in lines
    assert " conv  " in lines
    assert "..." not in lines


def test_a_narrow_table_shortens_names_in_the_middle_only():
    rows = table_lines(sample_report(), 80)
    assert "..." in rows[2]
    assert rows[2].split()[-5:] == ["1,000", "28.6", "15.0", "25.0", "7"]
    assert "host" in rows[4]
    assert rows[4].split()[-4:] == ["<0.1", "-", "-", "-"]


def test_the_header_names_the_profile():
    assert text(sample_report()).startswith("lenet: glow-int arithmetic, compiled engine, device ")
    shown = text(sample_report(numerics="assembly"))
    assert shown.startswith("lenet: assembly program, compiled engine, device ")


def test_totals_and_activities_are_printed():
    shown = text(sample_report())
    assert "latency      3,500 cycles, 4.38 us at 800 MHz" in shown
    assert "layers       2 on the device, 1 on the host" in shown
    assert "simulation   12.3 ms of wall time" in shown
    assert "60.0%  MAC array at work" in shown
    # 450 of 3,500 cycles; 80 of each layer's 150 are bursts, of which none is wasted.
    assert (
        "DRAM         busy 12.9% of cycles: 6.0% opening rows, 0.0% for unrequested bytes" in shown
    )
    assert shown.splitlines()[1] == (
        "free MAC arrays would save at most 51 %, free DRAM at most 21 % (upper bounds from the"
        " critical path)"
    )
    assert "51.4%  MAC array\n" in shown, "1,800 of 3,500 cycles"
    assert "  layer 1 fc: MAC array 24.0%, DRAM bursts 8.0%, DRAM latency 3.2%\n" in shown
    assert "6.0%  of the path is queueing delay: the DRAM served other transfers" in shown
    bound = "1.28 782 compute 50000 MACs / (1 cores x 64 MACs a cycle)"
    assert bound in " ".join(shown.split())
    assert "cycles depend on 29 assumed device settings; `nmpsim device` lists" in shown


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        (
            {"dram_service": 700, "row_miss": 200, "mac": 100},
            "free DRAM would save at most 90 %, free MAC arrays at most 10 % (upper bounds from"
            " the critical path)",
        ),
        (
            {"control": 1000},
            "free control code would save at most 100 % (upper bounds from the critical path)",
        ),
        (
            {"mac": 400, "latency": 300, "dma_start": 50, "barrier": 250},
            "free MAC arrays would save at most 40 %, transfers without latency at most 35 %"
            " (upper bounds from the critical path)",
        ),
        ({}, ""),
    ],
)
def test_one_sentence_bounds_what_limits_a_run(path, sentence):
    report = sample_report(layers=(layer(0, critical_path=path),), cycles=1000)
    assert report.limited_by == sentence
    assert sentence in text(report).splitlines()[1]


def test_a_dram_is_as_busy_as_its_channels_are_on_average():
    busy = layer(0, busy={"load": 120, "store": 80, "mac": 800, "vector": 0})
    use = compute_device_use([busy], 1000, channels=2)
    assert (use.dram_busy, use.row_misses) == (0.1, 0.02), "80 of these 100 cycles are bursts"


def test_saturation_is_listed_by_stage_without_clipping():
    shown = text(sample_report())
    assert "7 at rescale high (<0.1" not in shown
    assert "7 at rescale high (0.1% of 12,544)" in shown
    assert "activation" not in shown


def test_a_run_without_saturation_has_no_saturation_block():
    assert "saturated:" not in text(sample_report(layers=(layer(0),)))


def test_a_trap_has_its_place():
    shown = text(sample_report(trap=TRAP))
    for part in ("THE RUN STOPPED: trap", "load outside every memory", "conv1, line 31", "core"):
        assert part in shown
    assert "0x80001230" in shown
    assert "lw a0, 0(a1)" in shown
    assert "invalid, the run did not complete" in shown
    assert "hint" in shown


@pytest.mark.parametrize("kind", ["deadlock", "cycle_limit"])
def test_a_trap_without_core_is_printed(kind):
    nowhere = {"core": None, "pc": None, "value": None, "instruction": None, "layer": None}
    trap = attrs.evolve(TRAP, kind=kind, line=None, **nowhere)
    shown = text(sample_report(trap=trap, layers=(), output_reports=(), cycles=0))
    assert "None" not in shown
    assert "hint" in shown


def test_a_file_gets_no_escapes_and_no_box_characters(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = text(sample_report(trap=TRAP))
    assert shown.isascii()
    assert "\x1b" not in shown


def test_a_terminal_gets_colours_unless_disabled(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[33" in text(sample_report(), terminal=True) or "\x1b[1;33" in text(
        sample_report(), terminal=True
    )
    monkeypatch.setenv("NO_COLOR", "1")
    plain = text(sample_report(trap=TRAP), terminal=True)
    assert not any(f"\x1b[{colour}m" in plain for colour in ("31", "33", "35", "1;33"))


def test_names_cannot_steer_the_terminal():
    shown = text(sample_report(program="\x1b]0;owned\x07", layers=(layer(0, "[red]\x1b[2J\n"),)))
    assert "\x1b" not in shown
    assert "[red]\\x1b[2J\\n" in shown


def output(values: np.ndarray, scale: float | None = None, offset: int | None = None) -> str:
    return "\n".join(describe_output(OutputReport("y", "i8", scale, offset, values)))


def test_top_classes_are_the_largest_and_ties_keep_their_order():
    output = OutputReport("y", "i8", 1.0, 0, np.array([[-128, 5, 5, 127, 0]], np.int8))
    assert [one.index for one in find_top_classes(output)] == [3, 1, 2, 4, 0]
    assert "top 5: 1 (0.7), 0 (0.1), 5 (0.1), 2 (0.05), 4 (0.05)" in text(sample_report())


def test_quantized_outputs_are_shown_as_real_numbers():
    shown = output(np.array([[-128, 127]], np.int8), 0.5, -128)
    assert "min 0, max 127.5" in shown
    assert "top 2: 1 (127.5), 0 (0)" in shown


def test_other_outputs_show_their_range():
    assert "empty" in output(np.zeros((1, 0), np.int8))
    assert "all values are NaN" in output(np.full((1, 3), np.nan))
    assert "1 NaN" in output(np.array([[1.0, np.nan, 2.0]]))
    assert "top" not in output(np.zeros((2, 10), np.int8))
    assert "scalar" in output(np.int8(3).reshape(()))


@pytest.mark.parametrize(
    ("shape", "answer"),
    [((1, 10), True), ((10,), True), ((1, 1), False), ((), False), ((1, 100_001), False)],
)
def test_classifiers_are_recognized(shape, answer):
    assert is_score_shape(shape) is answer


def test_only_the_worst_saturated_layers_are_listed():
    shown = text(big_report())
    assert shown.count("7 at rescale high") == 10
    assert "110 layers with smaller shares" in shown
