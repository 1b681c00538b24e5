"""Bytes that no operand names: whatever they hold, results, counts and cycles are the same.

These are the ends of rows and the channels beyond the last one in the weights of ``nmp.conv``,
what lies between operands, and what is behind the scratchpad.
"""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from core_jobs import JOBS
from core_machines import Program, device, from_descriptors, run_both
from core_strategies import SEED
from core_tensors import Array, Job, Layout, at, channel_records, pack_weights, scale
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from nmpsim.core.state import SCRATCHPAD_SLACK

EXAMPLES = examples(30)


def tails(words: Job) -> tuple[slice, Array]:
    """Return the slice of a convolution's weights and a mask of its padding bytes."""
    mnemonic, d = words
    if mnemonic != "nmp.conv":
        return slice(0, 0), np.zeros(0, bool)
    shape = tuple(int(d[n]) for n in ("out_channels", "kernel_h", "kernel_w", "in_channels"))
    dtype = np.int16 if d["element"] in (1, "int16") else np.int8
    is_weight = pack_weights(np.full(shape, -1, dtype)).reshape(-1).view(np.uint8) != 0
    start = at(int(d["weights"]))
    return slice(start, start + is_weight.size), ~is_weight


def make_reserved_mask(jobs: list[Job], size: int, nbytes: int) -> Array:
    """Return a mask of the scratchpad bytes that no operand of ``jobs`` covers."""
    mask = np.ones(nbytes, bool)
    mask[:size] = False
    for job in jobs:
        where, of_weights = tails(job)
        mask[where] |= of_weights
    return mask


def check(jobs: list[Job], contents: bytes, seed: int) -> None:
    """Assert that the contents of reserved bytes change no result on any engine."""
    size = max(-(-len(contents) // 64) * 64, 4096)
    clean = np.zeros(size + SCRATCHPAD_SLACK, np.uint8)
    clean[: len(contents)] = np.frombuffer(contents, np.uint8)
    mask = make_reserved_mask(jobs, len(contents), clean.size)
    noise = np.random.default_rng(seed).integers(0, 256, clean.size).astype(np.uint8)
    program = from_descriptors(
        *jobs,
        scratchpad=clean.tobytes(),
        config=device(scratchpad_bytes=size),
        layer_channels=(7, 16, 1),
    )
    expected = run_both(program)
    found = run_both(attrs.evolve(program, scratchpad=np.where(mask, noise, clean).tobytes()))
    np.testing.assert_array_equal(found.scratchpad[0][~mask], expected.scratchpad[0][~mask])
    np.testing.assert_array_equal(found.scratchpad[0][mask], noise[mask])
    for name in ("cores", "layers", "channel_saturated", "ram"):
        assert getattr(found, name).tobytes() == getattr(expected, name).tobytes(), name


@pytest.mark.parametrize("kind", JOBS)
@given(st.data(), SEED)
@EXAMPLES
def test_reserved_bytes_do_not_affect_results(kind: str, data: st.DataObject, seed: int) -> None:
    layout = Layout()
    jobs = data.draw(JOBS[kind](layout))
    for job in jobs:
        check([job], layout.contents(), seed)


@pytest.mark.parametrize("element", ["int8", "int16"])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3)])
@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("groups", [1, 2])
def test_bytes_after_a_row_do_not_affect_results(
    element: str, kernel: tuple[int, int], depth: int, groups: int
) -> None:
    """Images without gaps, whose windows are read in place: next to each row is another pixel."""
    rng = np.random.default_rng(7)
    dtype, (high, wide) = np.dtype(element), kernel
    size, channels, columns, pixels = dtype.itemsize, 20 * groups, wide + 4, groups * depth
    layout = Layout()
    words = {
        "element": element,
        "profile": "nmp",
        "groups": groups,
        "in_channels": depth,
        "out_channels": channels,
        "kernel_h": high,
        "kernel_w": wide,
        **dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w"), 1),
        "out_h": 3,
        "out_w": 5,
        "in_row_stride": columns * pixels * size,
        "in_pixel_stride": pixels * size,
        "out_row_stride": 5 * channels * size,
        "out_pixel_stride": channels * size,
        **scale("bias"),
        **scale("out", post=3),
        "clip_low": -128,
        "clip_high": 127,
        "input": layout.put(rng.integers(1, 100, (high + 2) * columns * pixels).astype(dtype)),
        "weights": layout.put(
            pack_weights(rng.integers(-9, 9, (channels, high, wide, depth)).astype(dtype))
        ),
        "channels": layout.put(channel_records([0] * channels, [0] * channels)),
        "output": layout.reserve(15 * channels * size),
    }
    check([("nmp.conv", words)], layout.contents(), 3)


def test_padding_of_one_weight_does_not_affect_the_sum() -> None:
    """One input, one weight, and three bytes that take no part: 5, not 32."""
    layout = Layout()
    weights = np.zeros((16, 4), np.int8)
    weights[0] = (5, 9, 9, 9)
    words = {
        "input": layout.put(np.array([1, 1, 1, 1], np.int8)),
        "weights": layout.put(weights),
        "channels": layout.put(channel_records([0], [0])),
        "output": layout.reserve(1),
        **dict.fromkeys(("groups", "in_channels", "out_channels", "kernel_h", "kernel_w"), 1),
        **dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w"), 1),
        **dict.fromkeys(("out_h", "out_w", "bias_mul", "out_mul"), 1),
        "clip_low": -128,
        "clip_high": 127,
    }
    program: Program = from_descriptors(("nmp.conv", words), scratchpad=layout.contents())
    assert run_both(program).scratchpad.view(np.int8)[0][at(int(words["output"]))] == 5
