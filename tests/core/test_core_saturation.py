"""Test saturated values and their counts against results by hand, on both engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_layers import full_clip, run
from core_tensors import Array, Layout, at, channel_records, pack_weights, scale

from nmpsim.core.state import NEVER, Machine
from nmpsim.kernels.saturation_stages import ACCUMULATOR, BIAS, RESCALE, RESULT

LOW, HIGH = 0, 1
LAST_48, FIRST_48 = 2**47 - 1, -(2**47)
LAST_32, FIRST_32 = 2**31 - 1, -(2**31)


def account(m: Machine) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Map each saturated (stage, side) to its count, largest overshoot and first index."""
    layer: Any = m.layers[0]
    return {
        (stage, side): (int(count), int(layer.worst[stage, side]), int(layer.first[stage, side]))
        for (stage, side), count in np.ndenumerate(layer.saturated)
        if count
    }


def pointwise(
    x: Array, w: Array, bias: int, zero_term: int = 0, **words: Any
) -> tuple[Machine, dict[str, Any]]:
    """Run ``nmp.conv`` of pixels [n, depth] with one filter; return the machine and the words."""
    layout, (pixels, depth), size = Layout(), x.shape, x.itemsize
    job = {
        **full_clip(x.dtype),
        "element": str(x.dtype),
        "input": layout.put(x),
        "weights": layout.put(pack_weights(w.reshape(1, 1, 1, depth))),
        "channels": layout.put(channel_records([bias], [zero_term])),
        "partial": layout.reserve(8 * pixels),
        "output": layout.reserve(size * pixels),
        "in_row_stride": size * depth * pixels,
        "in_pixel_stride": size * depth,
        "out_row_stride": size * pixels,
        "out_pixel_stride": size,
        **dict.fromkeys(("groups", "out_channels", "kernel_h", "kernel_w", "out_h"), 1),
        **dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w"), 1),
        "in_channels": depth,
        "out_w": pixels,
        **scale("bias"),
        **scale("out"),
        "event_origin": 100,
        "event_stride_x": 1,
        **words,
    }
    return run(layout, ("nmp.conv", job)), job


def test_an_accumulator_of_48_bits_saturates_in_the_order_of_its_products() -> None:
    """It starts at its last value less 5; the products are 7, -3, 4 in one pixel, -7 ... here.

    Pixel 0: +7 is cut by 2, then -3, then +4 is cut by 1. Pixel 1: -7, +3, -4.
    """
    x = np.array([[7, -3, 4], [-7, 3, -4]], np.int16)
    m, job = pointwise(x, np.ones(3, np.int16), LAST_48 - 5, part="first")
    sums = m.scratchpad.view(np.int64)[0, at(job["partial"]) // 8 :][:2]
    assert sums.tolist() == [LAST_48, LAST_48 - 5 - 7 + 3 - 4]
    assert account(m) == {(ACCUMULATOR, HIGH): (2, 2, 100)}
    assert m.channel_saturated[ACCUMULATOR, :, 0].tolist() == [0, 2]


def test_a_saturated_bias_counts_for_each_pixel() -> None:
    x = np.zeros((3, 1), np.int16)
    m, job = pointwise(x, np.ones(1, np.int16), LAST_48 + 10, 4, part="first")
    assert m.scratchpad.view(np.int64)[0, at(job["partial"]) // 8 :][:3].tolist() == [LAST_48] * 3
    assert account(m) == {(BIAS, HIGH): (3, 10, 100), (ACCUMULATOR, HIGH): (3, 4, 100)}


def test_an_int8_bias_saturates_at_32_bits() -> None:
    x = np.zeros((2, 1), np.int8)
    m, _ = pointwise(x, np.ones(1, np.int8), FIRST_32 - 1, 0, profile="q31")
    # The factor of q31 is 0 here, so the result is 0.
    assert account(m) == {(BIAS, LOW): (2, 1, 100)}


def test_a_float_bias_saturates_after_scaling() -> None:
    """2^40 * 2^10 leaves 48 bits; the factor of the result is 0."""
    x = np.zeros((1, 1), np.int16)
    factor = int(np.float32(1024).view(np.int32))
    m, _ = pointwise(x, np.ones(1, np.int16), 2**40, profile="glow_float", bias_mul=factor)
    assert account(m)[BIAS, HIGH] == (1, 2**50 - LAST_48, 100)


def test_partial_sums_may_have_any_value() -> None:
    """64 bits from memory: the first product brings them to 48."""
    layout = Layout()
    job = {
        "element": "int16",
        "part": "middle",
        "lhs": layout.put(np.array([3], np.int16)),
        "rhs": layout.put(np.array([1, 1, 1], np.int16)),
        "output": layout.reserve(6),
        "partial": layout.put(np.array([2**62 - 1, 5, -(2**63)], np.int64)),
        **dict.fromkeys(("rows", "inner"), 1),
        "columns": 3,
        **full_clip(np.int16),
    }
    m = run(layout, ("nmp.gemm", job))
    sums = m.scratchpad.view(np.int64)[0, at(job["partial"]) // 8 :][:3]
    assert sums.tolist() == [LAST_48, 8, FIRST_48]
    # The last one was held at -2^62 when it was read.
    high, low = 2**62 + 2 - LAST_48, FIRST_48 - (3 - 2**62)
    assert account(m) == {(ACCUMULATOR, HIGH): (1, high, 0), (ACCUMULATOR, LOW): (1, low, 2)}


def test_int16_factors_saturate_before_the_product() -> None:
    """A factor of 2^20 takes 41 bits; a sum of 2^42 is cut, then the result is."""
    x = np.array([[0], [1]], np.int16)
    m, _ = pointwise(x, np.ones(1, np.int16), 2**42, **scale("out", mul=1 << 20))
    cut = account(m)
    assert cut[RESCALE, HIGH] == (2, 2**42 + 1 - 2**41, 100)
    assert cut[RESULT, HIGH] == (2, 2**61 - 32767, 100)
    assert len(cut) == 2


def test_int8_products_saturate_after_the_product() -> None:
    """2^20 * 2^12 is one more than 32 bits hold; half of it is."""
    x = np.array([[0], [-1]], np.int8)
    m, _ = pointwise(x, np.ones(1, np.int8), 2**20, **scale("out", mul=1 << 11, post=1))
    # 2^31 + 1 and 2^31 - 2^11 + 1: one is cut by 2.
    cut = account(m)
    assert cut[RESCALE, HIGH] == (1, 2, 100)
    assert cut[RESULT, HIGH] == (2, (LAST_32 >> 1) - 127, 100)


def run_rescale(x: int, **words: Any) -> Machine:
    layout = Layout()
    job = {
        **full_clip(np.int16),
        "element": "int16",
        "input": layout.put(np.array([x], np.int16)),
        "output": layout.reserve(2),
        "count": 1,
        "in_low": -32768,
        "in_high": 32767,
        "event_origin": 9,
        **words,
    }
    return run(layout, ("nmp.rescale", job))


@pytest.mark.parametrize(
    ("x", "pre", "side", "overshoot"),
    [
        (1, 31, HIGH, 2**31 - LAST_32),
        (-1, 31, None, 0),
        (-3, 30, LOW, 2**30),
        (32767, 16, None, 0),
        (32767, 17, HIGH, 32767 * 2**17 - LAST_32),
        (-32768, 31, LOW, 2**46 - 2**31),
    ],
)
def test_the_left_shift_of_q31_saturates(x: int, pre: int, side: Any, overshoot: int) -> None:
    words = scale("out", pre, 1 << 30, 31)
    cut = account(run_rescale(x, profile="q31", **words))
    assert cut == ({} if side is None else {(RESCALE, side): (1, overshoot, 9)})


def test_the_largest_float_saturates() -> None:
    """What no integer can hold becomes 2^62; the zero point is added behind."""
    one, largest = 0x3F80_0000, 0x7F7F_FFFF
    words = {"profile": "float", "out_mul": largest, "result_scale": one, "out_offset": 5}
    cut = account(run_rescale(2, **words))
    assert cut == {(RESULT, HIGH): (1, 2**62 + 5 - 32767, 9)}
    assert run_rescale(0, **words).layers.first.tolist()[0] == [[NEVER] * 2] * 5
