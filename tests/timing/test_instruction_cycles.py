"""MACs and cycles of each tensor instruction, from its words: the table of docs/timing.md by hand.

Default device: the MAC array takes 8 cycles to start, then 8 inputs by 8 outputs a cycle; the
vector unit takes 4 to start and has 16 lanes. Int16 has 4 inputs (of a depthwise convolution 4
outputs) and 8 lanes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from toy_rows import add_descriptor

from nmpsim.config import default_device
from nmpsim.isa.descriptors import DESCRIPTORS
from nmpsim.timing import get_costs
from nmpsim.timing.work import count_busy_cycles, count_macs, count_vector_elements

COSTS = get_costs(default_device())
KINDS = list(DESCRIPTORS)
INT8, INT16 = 0, 1
OTHER = 11
"""What stands in each word that must not count."""

WINDOW = {"out_h": 3, "out_w": 2, "kernel_h": 5, "kernel_w": 3}
"""6 pixels, each of 15 taps in 5 rows."""

BY_HAND = [
    # A row of 3 x 4 = 12 inputs takes 2 steps (3 of 4 inputs each for Int16); 20 outputs 3 blocks.
    ("conv", INT8, {**WINDOW, "in_channels": 4, "out_channels": 20, "groups": 1}, 7200, 188),
    ("conv", INT16, {**WINDOW, "in_channels": 4, "out_channels": 20, "groups": 1}, 7200, 278),
    # Two groups of 10 outputs are 2 blocks each: 6 pixels x 5 rows x 2 steps x 4.
    ("conv", INT8, {**WINDOW, "in_channels": 4, "out_channels": 20, "groups": 2}, 7200, 248),
    ("dwconv", INT8, {**WINDOW, "channels_count": 20}, 1800, 278),
    ("dwconv", INT16, {**WINDOW, "channels_count": 20}, 1800, 458),
    # 7 rows of ceil(30 / 8) = 4 steps, or ceil(30 / 4) = 8; ceil(20 / 8) = 3 blocks.
    ("gemm", INT8, {"rows": 7, "inner": 30, "columns": 20}, 4200, 92),
    ("gemm", INT16, {"rows": 7, "inner": 30, "columns": 20}, 4200, 176),
    # 90 taps of ceil(40 / 16) = 3 batches, or ceil(40 / 8) = 5.
    ("maxpool", INT8, {**WINDOW, "channels": 40}, 0, 274),
    ("maxpool", INT16, {**WINDOW, "channels": 40}, 0, 454),
    ("avgpool", INT8, {**WINDOW, "channels": 40}, 0, 274),
    ("avgpool", INT16, {**WINDOW, "channels": 40}, 0, 454),
    ("eltwise", INT8, {"rows": 7, "columns": 40}, 0, 25),
    ("eltwise", INT16, {"rows": 7, "columns": 40}, 0, 39),
    # ceil(200 / 16) = 13 batches, or 25.
    ("rescale", INT8, {"count": 200}, 0, 17),
    ("rescale", INT16, {"count": 200}, 0, 29),
    ("lut", INT8, {"count": 200}, 0, 17),
    ("fill", INT8, {"count": 200}, 0, 17),
    ("fill", INT16, {"count": 200}, 0, 29),
    ("transpose", INT8, {"size_0": 2, "size_1": 3, "size_2": 5, "size_3": 7}, 0, 214),
    ("load", INT8, {}, 0, 0),
    ("store", INT16, {}, 0, 0),
]

VECTOR_ELEMENTS = {"maxpool": 3600, "avgpool": 3600, "eltwise": 280, "transpose": 210}
VECTOR_ELEMENTS |= dict.fromkeys(("rescale", "lut", "fill"), 200)


def make_words(name: str, element: int, words: Mapping[str, int]) -> dict[str, int]:
    """Return all words of a descriptor; words that are not given get a filler value."""
    others = {word.name: OTHER for word in DESCRIPTORS[name]}
    own = {"element": element} if "element" in others else {}
    assert set(words) <= set(others), "a word of this descriptor"
    return {**others, **own, **words}


@pytest.mark.parametrize(("name", "element", "words", "its_macs", "its_cycles"), BY_HAND)
def test_an_instruction_takes_its_cycles(
    name: str, element: int, words: Mapping[str, int], its_macs: int, its_cycles: int
) -> None:
    named = make_words(name, element, words)
    row = np.array(list(named.values()), np.int64)
    kind = KINDS.index(name)
    for d in (row, row.tolist()):  # as each engine has it
        assert (count_macs(kind, d), count_busy_cycles(kind, d, COSTS)) == (its_macs, its_cycles)
        assert count_vector_elements(kind, d) == VECTOR_ELEMENTS.get(name, 0)


def without_cycles() -> set[str]:
    return {name for name, *_ in BY_HAND} ^ set(DESCRIPTORS)


def test_each_instruction_is_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_cycles() == set()
    add_descriptor(monkeypatch)
    assert without_cycles() == {"toy"}
