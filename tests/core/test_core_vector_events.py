"""Test results and saturation events of the vector unit near the limits of integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import floor
from typing import Any

import attrs
import numpy as np
from core_machines import device, from_descriptors, run_both
from core_strategies import INT32, SHIFT
from core_tensors import Layout, at, scale
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from nmpsim.core.state import NEVER
from nmpsim.kernels.saturation_stages import SIDE_NAMES, STAGE_NAMES

Words = dict[str, Any]
Scale = Callable[[int, str, int], int]
DEVICE = device()
CHANNELS, ORIGIN = 7, 11
EXAMPLES = examples(200)
ELEMENTS = st.sampled_from(["int8", "int16"])
INT32_LIMITS = -(2**31), 2**31 - 1
EDGES = st.sampled_from([2**31 - 1, -(2**31), 2**30, 1, 0, -1, 255, 2**31 - 32768])
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "max": max,
    "min": min,
}


@attrs.define
class SaturationRecord:
    """Record of saturated values: (stage, side) -> list of (index, overshoot)."""

    cut: dict[tuple[str, str], list[tuple[int, int]]] = attrs.Factory(dict)

    def limit(self, value: int, low: int, high: int, stages: tuple[str, str], index: int) -> int:
        if value < low:
            self.cut.setdefault((stages[0], "low"), []).append((index, low - value))
        if value > high:
            self.cut.setdefault((stages[1], "high"), []).append((index, value - high))
        return min(max(value, low), high)

    def unit(self, value: int, low: int, high: int, index: int) -> int:
        """Limit a value as the rescale unit does."""
        return self.limit(value, low, high, ("rescale", "rescale"), index)

    def result(self, value: int, d: Words, index: int) -> int:
        wanted = d["clip_wanted"]
        stages = tuple("activation" if wanted & bit else "result" for bit in (1, 2))
        return self.limit(value, d["clip_low"], d["clip_high"], (stages[0], stages[1]), index)


def round_half_up(value: Fraction) -> int:
    """Return the nearest integer, rounding halves up."""
    return floor(value + Fraction(1, 2))


def round_half_away(value: Fraction) -> int:
    return round_half_up(value) if value >= 0 else -round_half_up(-value)


def scales(d: Words, account: SaturationRecord) -> Scale:
    """Return the integer scaling function of (value, scale name, index) for a profile."""

    def integer(x: int, name: str, index: int) -> int:
        pre, mul, post = (d[f"{name}_{part}"] for part in ("pre", "mul", "post"))
        half = 2**post // 2
        if d["element"] == "int8":
            return account.unit((x >> pre) * mul + half, *INT32_LIMITS, index) >> post
        most = 2**61 // max(abs(mul), 1)
        return (account.unit(x >> pre, -most, most, index) * mul + half) >> post

    def fixed_point(x: int, name: str, index: int) -> int:
        pre, mul, post = (d[f"{name}_{part}"] for part in ("pre", "mul", "post"))
        most = 2**62 >> pre
        shifted = account.unit(min(max(x, -most), most) << pre, *INT32_LIMITS, index)
        product = min(round_half_up(Fraction(shifted * mul, 2**31)), 2**31 - 1)
        return round_half_away(Fraction(product, 2**post))

    return fixed_point if d["profile"] == "q31" else integer


def compute_rescale(x: Sequence[int], d: Words, account: SaturationRecord) -> list[int]:
    to_result = scales(d, account)
    results = []
    for index, value in enumerate(x, ORIGIN):
        clamp = d["in_low"], d["in_high"], ("activation", "activation")
        value = account.limit(value, *clamp, index) - d["in_offset"]
        name = "leaky" if d["activation"] and value < 0 else "out"
        value = to_result(value, name, index) + d["out_offset"]
        results.append(account.result(value, d, index))
    return results


def compute_elementwise(
    lhs: Sequence[int], rhs: Sequence[int], d: Words, account: SaturationRecord
) -> list[int]:
    to_result, operation = scales(d, account), d["operation"]
    results = []
    for index, (a, b) in enumerate(zip(lhs, rhs, strict=True), ORIGIN):
        left = a - d["lhs_offset"]
        right = account.unit(b - d["rhs_offset"], *INT32_LIMITS, index)
        if d["profile"] == "qnnpack":
            total = OPERATIONS[operation](left * d["lhs_mul"], right * d["rhs_mul"])
            value = round_half_away(Fraction(total, 2 ** d["out_post"]))
        elif operation == "mul":
            product = left * right
            if d["element"] == "int8" and d["profile"] != "q31":
                product = account.unit(product, *INT32_LIMITS, index)
            value = to_result(product, "out", index)
        else:
            left, right = to_result(left, "lhs", index), to_result(right, "rhs", index)
            value = OPERATIONS[operation](left, right)
            if d["profile"] == "q31" and operation in ("add", "sub"):
                value = to_result(value, "out", index)
        results.append(account.result(value + d["out_offset"], d, index))
    return results


def compute_averages(
    taps: Sequence[Sequence[int]], d: Words, account: SaturationRecord
) -> list[int]:
    """Compute the average pool of ``taps`` of each channel, none of which is padding."""
    to_result = scales(d, account)
    results = []
    for index, values in enumerate(taps, ORIGIN):
        value = to_result(sum(v - d["in_offset"] for v in values), "out", index)
        if d["divide"]:
            value = round_half_away(Fraction(value, len(values)))
        results.append(account.result(value + d["out_offset"], d, index))
    return results


def check(
    layout: Layout, job: tuple[str, Words], expected: list[int], account: SaturationRecord
) -> None:
    """Assert that both engines give the expected results and saturation."""
    mnemonic, d = job
    program = from_descriptors(
        (mnemonic, {"event_origin": ORIGIN, **d}),
        scratchpad=layout.contents(),
        config=DEVICE,
        layer_channels=(CHANNELS,),
    )
    m = run_both(program)
    start, dtype = at(d["output"]), np.dtype(d["element"])
    written = m.scratchpad[0, start : start + len(expected) * dtype.itemsize].view(dtype)
    assert written.tolist() == expected
    layer = m.layers[0]
    assert layer.elements == len(expected)
    for stage, stage_name in enumerate(STAGE_NAMES):
        for side, side_name in enumerate(SIDE_NAMES):
            cut = account.cut.get((stage_name, side_name), [])
            assert layer.saturated[stage, side] == len(cut)
            assert layer.worst[stage, side] == max((over for _, over in cut), default=0)
            assert layer.first[stage, side] == min((index for index, _ in cut), default=NEVER)
            channels = np.bincount([i % CHANNELS for i, _ in cut], minlength=CHANNELS)
            assert m.channel_saturated[stage, side, :CHANNELS].tolist() == channels.tolist()


def limits(element: str) -> tuple[int, int]:
    info = np.iinfo(element)
    return int(info.min), int(info.max)


def edges(element: str) -> st.SearchStrategy[int]:
    low, high = limits(element)
    return st.sampled_from([low, low + 1, -2, -1, 0, 1, 2, high - 1, high])


def vectors(element: str) -> st.SearchStrategy[list[int]]:
    return st.lists(edges(element) | st.integers(*limits(element)), min_size=1, max_size=21)


@st.composite
def scale_words(draw: st.DrawFn, *names: str) -> Words:
    words: Words = {}
    for name in names:
        pre, post = draw(st.integers(0, 3) | SHIFT), draw(st.integers(0, 16) | SHIFT)
        words |= scale(name, pre, draw(st.integers(1, 511) | EDGES | INT32), post)
    return words


@st.composite
def result_words(draw: st.DrawFn, element: str) -> Words:
    """Draw the element type, zero point and clip words of a result."""
    low, high = sorted((draw(edges(element)), draw(edges(element))))
    clip = {"clip_low": low, "clip_high": high, "clip_wanted": draw(st.integers(0, 3))}
    return {"element": element, "out_offset": draw(edges(element) | EDGES), **clip}


@given(st.data())
@EXAMPLES
def test_rescale_reports_its_events(data: st.DataObject) -> None:
    draw = data.draw
    element, layout = draw(ELEMENTS), Layout()
    x = draw(vectors(element))
    low, high = sorted((draw(edges(element)), draw(edges(element))))
    d = {
        **draw(result_words(element)),
        **draw(scale_words("out", "leaky")),
        "profile": draw(st.sampled_from(["glow_int", "nmp", "q31"])),
        "input": layout.put(np.array(x, element)),
        "output": layout.reserve(2 * len(x)),
        "count": len(x),
        "in_low": low,
        "in_high": high,
        "in_offset": draw(edges(element)),
        "activation": draw(st.integers(0, 1)),
    }
    account = SaturationRecord()
    check(layout, ("nmp.rescale", d), compute_rescale(x, d, account), account)


@given(st.data())
@EXAMPLES
def test_elementwise_operations_report_their_events(data: st.DataObject) -> None:
    draw = data.draw
    element, layout = draw(ELEMENTS), Layout()
    profile = draw(st.sampled_from(["glow_int", "nmp", "q31", "qnnpack"]))
    operations = ["add", "sub"] if profile == "qnnpack" else [*OPERATIONS, "mul"]
    rhs_kind = draw(st.sampled_from(["element", "int32"]))
    lhs = draw(vectors(element))
    side = edges(element) if rhs_kind == "element" else edges(element) | EDGES | INT32
    rhs = draw(st.lists(side, min_size=len(lhs), max_size=len(lhs)))
    d = {
        **draw(result_words(element)),
        **draw(scale_words("lhs", "rhs", "out")),
        "profile": profile,
        "operation": draw(st.sampled_from(operations)),
        "lhs": layout.put(np.array(lhs, element)),
        "rhs": layout.put(np.array(rhs, "int32" if rhs_kind == "int32" else element)),
        "output": layout.reserve(2 * len(lhs)),
        "rhs_kind": rhs_kind,
        "rows": 1,
        "columns": len(lhs),
        "lhs_offset": draw(edges(element)),
        "rhs_offset": draw(edges(element) | EDGES),
    }
    account = SaturationRecord()
    check(layout, ("nmp.eltwise", d), compute_elementwise(lhs, rhs, d, account), account)


@given(st.data())
@EXAMPLES
def test_average_pools_report_their_events(data: st.DataObject) -> None:
    draw = data.draw
    element, layout = draw(ELEMENTS), Layout()
    channels, count = draw(st.integers(1, 19)), draw(st.integers(1, 9))
    one = st.lists(edges(element), min_size=channels, max_size=channels)
    x = np.array(draw(st.lists(one, min_size=count, max_size=count)), element)
    d = {
        **draw(result_words(element)),
        **draw(scale_words("out")),
        "profile": draw(st.sampled_from(["glow_int", "nmp", "q31"])),
        "input": layout.put(x),
        "output": layout.reserve(2 * channels),
        "channels": channels,
        "in_h": 1,
        "in_w": count,
        **dict.fromkeys(("kernel_h", "stride_h", "stride_w", "out_h", "out_w"), 1),
        "kernel_w": count,
        "in_pixel_stride": channels * x.itemsize,
        "out_pixel_stride": channels * x.itemsize,
        "in_offset": draw(edges(element)),
        "divide": draw(st.integers(0, 1)),
    }
    account = SaturationRecord()
    check(layout, ("nmp.avgpool", d), compute_averages(x.T.tolist(), d, account), account)
