"""Valid descriptors, and descriptors with one invalid word.

Everything lies in a scratchpad with room for whatever a word may ask for, far from everything else:
so a limit can be tried on both sides, and what fails there fails by that limit alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from nmpsim.isa.table import DESCRIPTORS
from nmpsim.isa.words import KINDS
from nmpsim.memory import checks

SPM = 0x2000_0000
"""First address of a scratchpad: docs/isa.md, address map."""
ROOMY = 1 << 62
"""Bytes of a scratchpad that holds anything."""
AREA = 1 << 55
ONE = 0x3F80_0000
"""Bits of the float32 1, and an integer factor as good as any."""
PROFILES = {
    "glow_int": 0, "glow_float": 1, "glow_float_late": 2, "nmp": 3, "q31": 4, "float": 5,
    "fbgemm": 6, "onednn": 7, "qnnpack": 8, "q31_once": 9,
    "onnx": 10,
}  # fmt: skip
INT8, INT16 = 0, 1
Words = dict[str, int]

WINDOW = dict.fromkeys(("kernel_h", "kernel_w", "stride_h", "stride_w", "out_h", "out_w"), 1)
IMAGE = {"in_row_stride": 64, "in_pixel_stride": 2, "out_row_stride": 1024,
         "out_pixel_stride": 2}  # fmt: skip
RESULT = {"out_mul": ONE, "result_scale": ONE}
WEIGHTED = {
    **WINDOW, **IMAGE, **RESULT, "dilation_h": 1, "dilation_w": 1, "bias_mul": ONE,
    "leaky_mul": ONE,
}  # fmt: skip
BASES: dict[str, Words] = {
    "load": {
        "run_bytes": 8, "count_x": 2, "count_y": 2, "dram_stride_x": 8, "dram_stride_y": 16,
        "spm_stride_x": 8, "spm_stride_y": 16,
    },
    "store": {
        "run_bytes": 8, "count_x": 2, "count_y": 2, "dram_stride_x": 8, "dram_stride_y": 16,
        "spm_stride_x": 8, "spm_stride_y": 16,
    },
    "conv": {**WEIGHTED, "groups": 1, "in_channels": 1, "out_channels": 1},
    "dwconv": {**WEIGHTED, "channels_count": 1},
    "gemm": {
        **RESULT, "rows": 1, "inner": 1, "columns": 1, "lhs_stride": 2, "rhs_stride": 2,
        "out_stride": 1024,
    },
    "maxpool": {**WINDOW, **IMAGE, "channels": 1, "in_h": 1, "in_w": 1},
    "avgpool": {**WINDOW, **IMAGE, **RESULT, "channels": 1, "in_h": 1, "in_w": 1},
    "eltwise": {
        **RESULT, "rows": 1, "columns": 1, "lhs_stride": 2, "rhs_stride": 4,
        "out_stride": 1024, "lhs_mul": ONE, "rhs_mul": ONE,
    },
    "rescale": {**RESULT, "count": 1, "leaky_mul": ONE},
    "lut": {"count": 1},
    "fill": {"count": 1},
    "transpose": {
        "element_bytes": 1,
        **{f"size_{d}": 1 for d in range(4)}, **{f"in_stride_{d}": 2 for d in range(4)},
        **{f"out_stride_{d}": 2 for d in range(4)},
    },
}  # fmt: skip
"""Descriptor -> words; addresses follow, words that are not named are 0."""

OPERANDS = {
    "load": ("spm",),
    "store": ("spm",),
    "conv": ("input", "weights", "channels", "scales", "output", "partial"),
    "dwconv": ("input", "weights", "channels", "scales", "output"),
    "gemm": ("lhs", "rhs", "output", "partial"),
    "maxpool": ("input", "output"),
    "avgpool": ("input", "output"),
    "eltwise": ("lhs", "rhs", "output"),
    "rescale": ("input", "output"),
    "lut": ("input", "output", "table"),
    "fill": ("output",),
    "transpose": ("input", "output"),
}
"""Descriptor -> its addresses in the scratchpad."""


def make_words(name: str, changes: Mapping[str, int] = {}) -> Words:
    """Build a valid descriptor with ``changes`` applied."""
    places = {word: SPM + place * AREA for place, word in enumerate(OPERANDS[name], start=1)}
    return {**BASES[name], **places, **changes}


class StaleWorkspace(dict[tuple[int, int], int]):
    """Footprint workspace whose unwritten words are operands outside any memory."""

    def __missing__(self, key: tuple[int, int]) -> int:
        return (key[1] + 1) << 40


def fault(name: str, values: Mapping[str, int], spm_bytes: int = ROOMY) -> str | None:
    """Return the name of the word that an operand fault reports, or None without a fault."""
    names = [word.name for word in DESCRIPTORS[name]]
    assert set(values) <= set(names), set(values) - set(names)
    given = [values.get(word, 0) for word in names]
    found = checks.find_invalid_word(KINDS[name], given, spm_bytes, StaleWorkspace())
    assert -1 <= found < len(names)
    return None if found == -1 else names[found]
