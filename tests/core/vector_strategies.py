"""Hypothesis strategies for the words of vector instructions, by element and profile."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from core_strategies import INT32, SEED, SHIFT, Words
from core_tensors import Array, scale
from hypothesis import strategies as st

INTEGER_PROFILES = ("glow_int", "nmp", "q31")
PAIR_PROFILES = (*INTEGER_PROFILES, "glow_float", "float", "qnnpack")
AVERAGE_PROFILES = (*INTEGER_PROFILES, "glow_float", "float", "fbgemm")
RESCALE_PROFILES = (*INTEGER_PROFILES, "glow_float", "float")
ELEMENTS = st.sampled_from(["int8", "int16"])
DTYPES: dict[str, Any] = {"int8": np.int8, "int16": np.int16}
LARGEST_FLOAT = 0x7F7F_FFFF
USUAL_FACTORS = st.floats(2.0**-14, 16.0, width=32)


def float_bits(value: float) -> int:
    """Bits of a float32."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


FACTORS = USUAL_FACTORS.map(float_bits) | st.integers(0, LARGEST_FLOAT)
ADDENDS = st.floats(-300.0, 300.0, width=32).map(float_bits) | st.integers(
    0, LARGEST_FLOAT
).flatmap(lambda bits: st.sampled_from([bits, bits | 1 << 31]))


def limits(element: str) -> tuple[int, int]:
    """Lowest and highest value."""
    info = np.iinfo(DTYPES[element])
    return int(info.min), int(info.max)


def elements(element: str) -> st.SearchStrategy[int]:
    """One value of an element."""
    low, high = limits(element)
    return st.integers(low, high) | st.sampled_from([low, low + 1, high - 1, high])


@st.composite
def tensors(draw: st.DrawFn, element: str, count: int) -> Array:
    """Elements: all values, near zero, only the extremes, or all the same."""
    rng = np.random.default_rng(draw(SEED))
    low, high = limits(element)
    kind = draw(st.sampled_from(["any", "small", "extremes", "lowest", "highest"]))
    if kind in ("any", "small"):
        reach = (low, high) if kind == "any" else (-9, 9)
        return rng.integers(*reach, count, endpoint=True).astype(DTYPES[element])
    choices = {"extremes": [low, high], "lowest": [low], "highest": [high]}[kind]
    return rng.choice(np.array(choices, DTYPES[element]), count)


@st.composite
def factors(draw: st.DrawFn, prefix: str, profile: str) -> Words:
    """A scale as compilers choose it for a profile, or any that the check lets pass."""
    if profile not in (*INTEGER_PROFILES, "qnnpack"):
        return {f"{prefix}_mul": draw(FACTORS), f"{prefix}_post": draw(ADDENDS)}
    if draw(st.booleans()):
        return scale(prefix, draw(SHIFT), draw(INT32), draw(SHIFT))
    if profile == "q31":
        mul = draw(st.integers(1 << 30, (1 << 31) - 1))
        return scale(prefix, draw(st.integers(0, 20)), mul, draw(st.integers(0, 20)))
    post = draw(st.integers(0, 24))
    return scale(prefix, draw(st.integers(0, 7)), draw(st.integers(1, 511)), post)


@st.composite
def vector_clips(draw: st.DrawFn, element: str) -> Words:
    low, high = limits(element)
    low, high = sorted([draw(elements(element) | st.just(low)), draw(elements(element))])
    return {"clip_low": low, "clip_high": high, "clip_wanted": draw(st.integers(0, 3))}


RESULT_SCALES = USUAL_FACTORS.map(float_bits) | st.integers(1, LARGEST_FLOAT)
OFFSETS = st.integers(-128, 127) | INT32
