"""Int16 convolutions of whole blocks of channels: the same machine on both engines."""

from __future__ import annotations

import numpy as np
import pytest
from core_machines import device, from_descriptors, run_both
from core_tensors import Layout, channel_records, pack_weights, scale

from nmpsim.isa.profiles import PROFILES, PROFILES_OF, REAL, list_profiles_with_form

CHANNELS, DEPTH, ROWS, COLUMNS = 32, 6, 6, 9
REAL_NAMES = {PROFILES[number] for number in list_profiles_with_form(REAL)}
BIAS_IS_REAL = ("fbgemm", "onednn")


def bits(value: float) -> int:
    return int(np.float32(value).view(np.int32))


def real(prefix: str, value: float) -> dict[str, int]:
    return scale(prefix, mul=bits(value))


@pytest.mark.parametrize("size", ["small", "large", "most", "huge"])
@pytest.mark.parametrize("profile", PROFILES_OF["conv"])
def test_blocks_of_int16_results_are_exact(profile: str, size: str) -> None:
    """Windows of three rows and of runs of two pixels; two batches of pixels; some results beyond
    the clip, or all of them far beyond 32 bits, in each tile of a layer, the last one first. With
    the most that inputs and weights can be, 32 bits do not even hold the products of a pair."""
    rng, layout = np.random.default_rng(len(profile)), Layout()
    spread = {"small": 300, "large": 9000}.get(size, 1 << 15)
    x = np.clip(rng.normal(0, 9000, (ROWS + 2, COLUMNS + 1, DEPTH)), -32768, 32767)
    weights = np.clip(rng.normal(0, spread, (CHANNELS, 3, 2, DEPTH)), -32768, 32767)
    if size == "most":
        x, weights = (rng.choice([-32768, -32767, 32767], one.shape) for one in (x, weights))
    step = 9000 * spread * 6 / 15_000 / (2.0**32 if size == "huge" else 1)
    bias = rng.integers(-99_999, 99_999, CHANNELS)
    if profile in BIAS_IS_REAL:
        bias = rng.normal(0, 999, CHANNELS).view(np.int64)
    factors = scale("out", 3, max(round(2.0**21 / step), 1), 18)
    if profile in REAL_NAMES:
        factors = real("out", 1 / step)
    elif profile.startswith("q31"):
        factors = scale("out", 0, 1 << 30, max(int(np.log2(step)), 0))
    words = {
        "element": "int16",
        "profile": profile,
        "kernel_h": 3,
        "kernel_w": 2,
        **dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w", "groups"), 1),
        "in_channels": DEPTH,
        "out_channels": CHANNELS,
        "out_w": COLUMNS,
        "in_row_stride": 2 * DEPTH * (COLUMNS + 1),
        "in_pixel_stride": 2 * DEPTH,
        "out_row_stride": 2 * CHANNELS * COLUMNS,
        "out_pixel_stride": 2 * CHANNELS,
        "weights": layout.put(pack_weights(weights.astype(np.int16))),
        "channels": layout.put(channel_records(bias, rng.integers(-(1 << 30), 1 << 30, CHANNELS))),
        **(real("bias", 0.3) if profile in REAL_NAMES else scale("bias", 1, 5, 2)),
        **factors,
        "result_scale": bits(0.7),
        "out_offset": -7,
        "clip_low": -15_000,
        "clip_high": 14_000,
        "clip_wanted": 1,
        "event_stride_y": CHANNELS * COLUMNS,
        "event_stride_x": CHANNELS,
    }
    image = layout.put(x.astype(np.int16))
    output = layout.reserve(2 * CHANNELS * ROWS * COLUMNS)
    half = ROWS // 2
    jobs = [
        (
            "nmp.conv",
            {
                **words,
                "out_h": half,
                "input": image + first * words["in_row_stride"],
                "output": output + first * words["out_row_stride"],
                "event_origin": first * CHANNELS * COLUMNS,
            },
        )
        for first in (half, 0)
    ]
    program = from_descriptors(
        *jobs,
        scratchpad=layout.contents(),
        config=device(scratchpad_bytes=1 << 17),
        layer_channels=(CHANNELS,),
    )
    machine = run_both(program)
    assert machine.layers.saturated.any()
