"""Hypothesis strategies for the words of every profile and element.

What they give is possible: the checks let it pass.
"""

from __future__ import annotations

import numpy as np
from core_strategies import INT32, SEED, SHIFT, Words, scales
from core_tensors import Array, scale, scale_records
from hypothesis import strategies as st

from nmpsim.isa.profiles import INTEGER, PROFILES_OF, REAL, ROWS

INTEGERS = tuple(row.name for row in ROWS if row.form is INTEGER)
"""Profiles whose factor is an integer between two shifts to the right."""
FLOAT = tuple(row.name for row in ROWS if row.form is REAL)
"""Profiles whose factor is a float32."""
PRODUCT_PROFILES = PROFILES_OF["gemm"]
CONVOLUTION_PROFILES = PROFILES_OF["conv"]
PAIR_PROFILES = PROFILES_OF["eltwise"]
AVERAGE_PROFILES = PROFILES_OF["avgpool"]
RESCALE_PROFILES = PROFILES_OF["rescale"]
OPERATIONS_OF = {row.name: row.operations for row in ROWS}

LARGEST = 0x7F7F_FFFF
"""Bits of the largest float32."""
FACTORS = (
    st.floats(2.0**-30, 16.0, width=32).map(lambda x: int(np.float32(x).view(np.int32)))
    | st.integers(0, LARGEST)
    | st.sampled_from([0, 1, LARGEST, 0x3F80_0000])
)
"""Bits of a float32 that is neither negative nor infinite."""
ADDENDS = FACTORS | FACTORS.map(lambda bits: bits - 2**31)
"""The same with either sign, as a signed word."""
INT48_EDGES = [2**47 - 1, -(2**47), 2**47 - 2**31, 2**31 - 2**47]
INT64_EDGES = [2**63 - 1, -(2**63), 2**62, -(2**62)]
RECORDS = (
    st.integers(-50_000, 50_000)
    | INT32
    | st.integers(-(2**48), 2**48)
    | st.sampled_from([*INT48_EDGES, *INT64_EDGES, 2**31 - 1, -(2**31)])
)
"""What a channel record holds, and a partial sum of Int16 may."""
REALS = st.floats(width=64) | st.floats(-1e6, 1e6)


@st.composite
def factors(draw: st.DrawFn, prefix: str, profile: str, reduced: bool = False) -> Words:
    """Draw the words of a factor; ``reduced`` selects q31's form for wide sums."""
    if profile in INTEGERS:
        return draw(scales(prefix))
    if profile in FLOAT:
        return scale(prefix, draw(SHIFT), draw(FACTORS), draw(SHIFT))
    mul = draw(st.integers(2**30, 2**31 - 1) | INT32)
    pre, post = draw(st.integers(0, 2) | SHIFT), draw(SHIFT)
    return scale(prefix, min(pre, 14 + post) if reduced else pre, mul, post)


@st.composite
def factor_columns(
    draw: st.DrawFn, profile: str, channels: int, reduced: bool = False
) -> tuple[Array, Array, Array]:
    """Draw (pre, mul, post) of all channels, with at most three different factors."""
    few = draw(st.lists(factors("", profile, reduced), min_size=1, max_size=3))
    chosen = np.random.default_rng(draw(SEED)).integers(0, len(few), channels)
    pre, mul, post = ([few[i][f"_{word}"] for i in chosen] for word in ("pre", "mul", "post"))
    return np.array(pre), np.array(mul), np.array(post)


def limits(element: str) -> tuple[int, int]:
    info = np.iinfo(element)
    return int(info.min), int(info.max)


def offsets(element: str) -> st.SearchStrategy[int]:
    """Return a strategy for zero points that the element type can represent."""
    return st.integers(*limits(element)) | st.just(0)


@st.composite
def values(draw: st.DrawFn, element: str, count: int) -> Array:
    """Draw elements: any values, small ones, only the extremes, or one extreme throughout."""
    low, high = limits(element)
    rng = np.random.default_rng(draw(SEED))
    kind = draw(st.sampled_from(["any", "small", "extremes", "lowest", "highest"]))
    if kind == "any":
        return rng.integers(low, high + 1, count).astype(element)
    if kind == "small":
        return rng.integers(-5, 6, count).astype(element)
    if kind == "extremes":
        return rng.choice(np.array([low, high], element), count)
    return np.full(count, low if kind == "lowest" else high, element)


@st.composite
def clips(draw: st.DrawFn, element: str) -> Words:
    low, high = limits(element)
    ends = draw(offsets(element) | st.just(low)), draw(offsets(element) | st.just(high))
    names = {"clip_low": min(ends), "clip_high": max(ends)}
    return {**names, "clip_wanted": draw(st.integers(0, 3))}


@st.composite
def results(draw: st.DrawFn, element: str, profile: str, reduced: bool = False) -> Words:
    """Draw the words of a result, from its factor to its clip."""
    return {
        **draw(factors("out", profile, reduced)),
        "result_scale": max(draw(FACTORS), 1),
        "out_offset": draw(offsets(element) | INT32),
        **draw(clips(element)),
    }


@st.composite
def channel_records(draw: st.DrawFn, profile: str, channels: int) -> Array:
    """Draw the bias and the zero term of each channel from a few different values."""
    few = draw(st.lists(RECORDS, min_size=1, max_size=4))
    rng = np.random.default_rng(draw(SEED))
    bias, zero_terms = rng.choice(np.array(few, np.int64), (2, channels))
    if profile in ("fbgemm", "onednn"):
        reals = draw(st.lists(REALS, min_size=1, max_size=4))
        bias = rng.choice(np.array(reals, np.float64), channels).view(np.int64)
    return np.stack([bias, zero_terms], axis=1).astype("<i8")


@st.composite
def scale_tables(draw: st.DrawFn, element: str, profile: str, channels: int) -> Array:
    """Draw a scale table with one record per channel."""
    rng = np.random.default_rng(draw(SEED))
    low, high = limits(element)
    weight_offsets = rng.integers(low, high + 1, channels) * draw(st.booleans())
    reduced = profile == "q31" and element == "int16"
    bias = draw(factor_columns(profile, channels))
    return scale_records(weight_offsets, bias, draw(factor_columns(profile, channels, reduced)))
