"""Glow's profiles, in YAML and as lines."""

from __future__ import annotations

import math

from nmpsim.quantization import read_profile
from nmpsim.quantization.profile import ProfileLookup

from ..mutate import make_text_mutator
from ..target import Target, allow_errors, write_file

PIECES = (
    "---\n", "...\n", "- ", "NodeOutputName: ", "Min: ", "Max: ", "Histogram: [ 1, 2 ]", "'a:0'",
    "a__1:1", "\t", "\n", "  ", "[", "]", "{", "}", ": ", "&a ", "*a", "!!float ", "? ", "<<: *a",
    "%YAML 1.1\n", "# ", "|\n", ">\n", "nan", ".inf", "1e39", "-0.0", "1_0", "0x1", "\x85",
    "\ufeff",
)  # fmt: skip


def run(data: bytes) -> None:
    """Read a profile and look up each of its names."""
    with allow_errors("CONST001"):
        profile = read_profile(write_file(data, "profile.yaml"))
        recorded = ProfileLookup(profile)
        for name, range_ in profile.items():
            assert recorded.find_range(name) == range_
            assert -math.inf < range_.low <= range_.high < math.inf


TARGET = Target(run, mutate=make_text_mutator(PIECES))
