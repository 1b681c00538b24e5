"""Call stacks, profiles and coverage of a run."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from corpus import compiled

from nmpsim.analysis.profile import (
    CallStacks,
    format_coverage,
    list_profile_functions,
    make_speedscope_document,
)
from nmpsim.analysis.profile.call_stacks import HALTED, MAX_DEPTH
from nmpsim.bundle import Bundle, parse_bundle, read_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.config import default_device
from nmpsim.core.device import Device
from nmpsim.core.execution_log import CodeLayout, ExecutionLog
from nmpsim.debuginfo import read_source_map

FIR = Path(__file__).parents[2] / "debuginfo" / "programs" / "fir.elf"
DIGITS = Path(__file__).parents[3] / "programs" / "digits"
CONFIG = attrs.evolve(default_device(), cores_count=2)
NESTED = """
_start:
    jal  ra, outer
    jal  ra, inner
    nmp.halt
outer:
    mv   s1, ra
    jal  ra, inner
    jal  ra, inner
    mv   ra, s1
    j    tail
inner:
    nop
    ret
tail:
    nop
    ret
"""
ENDLESS_CALLS = """
_start: li t0, 400
again:  jal ra, next
next:   addi t0, t0, -1
        bnez t0, again
        nmp.halt
"""


def profile(bundle: Bundle, **options: Any) -> tuple[Any, ExecutionLog, CallStacks]:
    """Run a program with a log of call stacks."""
    layout = CodeLayout(bundle, list_profile_functions(bundle, read_source_map(bundle).functions))
    stacks = CallStacks(layout, CONFIG.cores_count, options.pop("on_frame_end", None))
    log = ExecutionLog(layout, [stacks])
    report = Device(CONFIG, engine="reference").run(bundle, {}, execution=log, **options)
    return report, log, stacks


def make_program(text: str) -> Bundle:
    return parse_bundle(assemble(text, "t.s", CONFIG.settings()).build_bundle())


def list_instructions(log: ExecutionLog, stacks: CallStacks) -> dict[tuple[str, ...], int]:
    """Return the number of instructions of each call path of core 0."""
    names = [name for name, _ in log.layout.names]
    return {
        tuple(names[one] for one in path.list_functions()): path.instructions
        for path in stacks.list_paths(0)
        if path.function != HALTED
    }


def test_paths_follow_calls_returns_and_tail_calls() -> None:
    _, log, stacks = profile(make_program(NESTED))
    assert list_instructions(log, stacks) == {
        ("_start",): 3,
        ("_start", "outer"): 5,
        ("_start", "outer", "inner"): 4,
        ("_start", "tail"): 2,
        ("_start", "inner"): 2,
    }


def test_calls_without_returns_have_a_limited_depth() -> None:
    report, log, stacks = profile(make_program(ENDLESS_CALLS))
    assert report.trap is None
    assert max(len(path.list_functions()) for path in stacks.list_paths(0)) == MAX_DEPTH
    assert sum(list_instructions(log, stacks).values()) == 1 + 3 * 400 + 1


@pytest.mark.parametrize("text", [NESTED, ENDLESS_CALLS, "_start: lw a0, 1(x0)\n"])
def test_the_profile_of_a_core_adds_up_to_its_cycles(text: str) -> None:
    bundle = make_program(text)
    report, log, stacks = profile(bundle, strict=False)
    document = make_speedscope_document("t", log.layout, stacks)
    cycles = document["profiles"][:2]
    assert [one["name"] for one in cycles] == ["core 0: cycles", "core 1: cycles"]
    if report.trap is None:
        assert {one["endValue"] for one in cycles} == {report.cycles}
    assert max(one["endValue"] for one in cycles) == report.cycles
    frames = range(len(document["shared"]["frames"]))
    for one in document["profiles"]:
        assert one["endValue"] == sum(one["weights"])
        assert len(one["samples"]) == len(one["weights"])
        assert all(frame in frames for sample in one["samples"] for frame in sample)


def test_frames_are_reported_when_they_end() -> None:
    frames: list[tuple[int, int, int, int]] = []
    report, log, _ = profile(make_program(NESTED), on_frame_end=lambda *frame: frames.append(frame))
    names = [name for name, _ in log.layout.names]
    mine = [(names[function], begin, end) for core, function, begin, end in frames if core == 0]
    assert [name for name, _, _ in mine] == ["inner", "inner", "outer", "tail", "inner", "_start"]
    assert mine[-1][1:] == (0, report.cycles)
    assert mine[2][2] == mine[3][1]


def test_layers_of_a_compiled_network_are_functions() -> None:
    digits = compiled(DIGITS / "digits.lir.txt")
    functions = list_profile_functions(digits, read_source_map(digits).functions)
    layers = {layer.display_name for layer in digits.metadata.layers if layer.placement == "device"}
    assert layers <= {one.name for one in functions}
    layout = CodeLayout(digits, functions)
    stacks = CallStacks(layout, 32)
    log = ExecutionLog(layout, [stacks])
    inputs = {one.name: np.zeros(one.shape, np.int8) for one in digits.metadata.inputs}
    report = Device(engine="compiled").run(digits, inputs, execution=log)
    device = report.cycles - (report.host.cycles or 0)
    for core in range(32):
        assert sum(path.cycles for path in stacks.list_paths(core)) == device
    spent: Counter[str] = Counter()
    for core in range(32):
        for path in stacks.list_paths(core):
            if path.function >= 0:
                spent[layout.names[path.function][0]] += path.cycles
    for layer in report.layers:
        if layer.placement == "device":
            # The entry code of a segment belongs to its first layer in the report, and the time
            # of cores that have halted to its last layer.
            missing = sum(layer.core_cycles.values()) - spent[layer.display_name]
            assert 0 <= missing <= 32 * 16


def test_coverage_counts_first_instructions_of_lines_over_all_cores(tmp_path: Path) -> None:
    bundle = read_bundle(FIR)
    _, log, _ = profile(bundle)
    counts: Counter[int] = Counter()
    Device(CONFIG, engine="reference").run(
        bundle, {}, commits=lambda commit: counts.update([commit.pc])
    )
    text = format_coverage(read_source_map(bundle), log)
    files = {part.split("\n")[0]: part for part in text.split("SF:")[1:]}
    code = 0x8000_0000
    expected = {8: 0x2C, 12: 0x18, 14: 0x1C, 15: 0x2C, 16: 0x4C, 19: 0x50, 21: 0x74, 23: 0xB4}
    for line, at in expected.items():
        assert f"\nDA:{line},{counts[code + at]}\n" in files["fir.c"]
    assert "\nFNDA:8,fir\n" in files["fir.c"]
    assert "\nDA:23,0\n" in files["fir.c"]
    assert "\nDA:5,2\n" in files["start.S"]
    if shutil.which("lcov") is None:
        pytest.skip("lcov is not installed")
    path = tmp_path / "fir.info"
    path.write_text(text)
    found = subprocess.run(
        ["lcov", "--summary", str(path)], check=True, capture_output=True, text=True
    )
    summary = found.stdout + found.stderr
    assert "functions..: 100.0% (2 of 2 functions)" in summary
    assert "lines......: 94.4% (17 of 18 lines)" in summary
