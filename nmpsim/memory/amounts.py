"""Checks of conditions on several words of a descriptor, such as the number of results.

The table of descriptors has the conditions. Each word is valid on its own. Products are bounded
before they are multiplied further, so that nothing can overflow 64 bits.
"""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from nmpsim.isa.descriptors import DESCRIPTORS, OPERATIONS
from nmpsim.isa.profiles import ROWS
from nmpsim.isa.words import KINDS, RHS_INT32
from nmpsim.memory.bounds import MOST, OK, exceeds_product
from nmpsim.memory.weight_tail import BLOCK_BYTES, LANES

MAX_TAPS = 1 << 23
"""Largest number of taps of a pool, so that 32 bits hold the sum of as many Int8 values."""
_NAMES = {
    "__name__": __name__,
    "exceeds_product": exceeds_product,
    "HAS_OPERATION": np.array([[name in row.operations for name in OPERATIONS] for row in ROWS]),
    "BLOCK_BYTES": BLOCK_BYTES,
    "LANES": LANES,
    "MAX_TAPS": MAX_TAPS,
    "MOST": MOST,
    "RHS_INT32": RHS_INT32,
}
"""Names in conditions besides words and ``spm_bytes``, the size of the scratchpad."""


def _make_check() -> Any:
    """Return the function that evaluates the conditions of all descriptors."""
    lines = ["def check_amounts(kind, words, spm_bytes):"]
    for name, kind in KINDS.items():
        words = [word.name for word in DESCRIPTORS[name]]
        lines.append(f"    if kind == {kind}:")
        for condition, invalid in DESCRIPTORS[name].invalid:
            used = {one.id for one in ast.walk(ast.parse(condition)) if isinstance(one, ast.Name)}
            lines += [
                f"        {one} = words[{words.index(one)}]" for one in sorted(used & {*words})
            ]
            lines += [f"        if {condition}:", f"            return {words.index(invalid)}"]
        lines.append(f"        return {OK}")
    exec("\n".join([*lines, f"    return {OK}"]), _NAMES)
    return _NAMES["check_amounts"]


check_amounts = _make_check()
"""``check_amounts(kind, words, spm_bytes)``: return the index of the first word that is too large
or conflicts with another, or OK."""
