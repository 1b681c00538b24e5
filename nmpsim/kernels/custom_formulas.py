"""Compiled code of formulas that a program brings with it.

One function of 64-bit integers computes all of them. Its address is part of the word ``profile`` of
parameters (see ``profiles.py``), so kernels call it like a kernel of an instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from nmpsim.isa.descriptors import OPERATIONS
from nmpsim.isa.profiles import PROFILES
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.formulas import ELEMENTS, FormulaTable
from nmpsim.kernels.jit import jit_allocating
from nmpsim.kernels.pointers import pointer
from nmpsim.kernels.profiles import (
    CALL_ARGUMENTS,
    FAMILIES,
    WORDS,
    compile_formulas,
    read_formula_kinds,
)
from nmpsim.kernels.saturate import SaturationCounters
from nmpsim.kernels.saturation_stages import STAGE_NAMES
from nmpsim.kernels.workspace_size import TABLE_ROWS

carray = numba.carray
_STAGES = len(STAGE_NAMES)


@jit_allocating
def _get_integers(address: Int, size: Int) -> Any:
    return carray(pointer(address), size, np.int64)


@jit_allocating
def _get_floats(address: Int, size: Int) -> Any:
    return carray(pointer(address), size, np.float32)


@jit_allocating
def _get_table(address: Int, size: Int) -> Any:
    return carray(pointer(address), (TABLE_ROWS, size), np.int64)


def make_formula_function(table: FormulaTable, layer_type: np.dtype[Any]) -> Callable[..., Int]:
    """Return a Python function, to be compiled by Numba, that evaluates any formula of ``table``.

    Parameters
    ----------
    table
        Formulas of the profiles that the program changes.
    layer_type
        Record type of the counters of a layer.

    Returns
    -------
    callable
        Function of integers, CALL_ARGUMENTS and WORDS, for compilation.
    """

    @jit_allocating
    def get_counters(layers: Int, count: Int, saturated: Int, channels: Int, layer: Int) -> Any:
        return SaturationCounters(
            carray(pointer(layers), count, layer_type),
            carray(pointer(saturated), (_STAGES, 2, channels), np.int64),
            layer,
        )

    names: dict[str, Any] = {
        "get_counters": get_counters,
        "get_integers": _get_integers,
        "get_floats": _get_floats,
        "get_table": _get_table,
    }
    lines = [
        f"def compute_formula({', '.join([*CALL_ARGUMENTS, *WORDS])}):",
        "    counters = get_counters(layers, layer_count, channel_saturated, channels, layer)",
        "    integers, others = get_integers(run, size), get_integers(other, size)",
        "    floats, table = get_floats(other, size), get_table(other, size)",
    ]
    keys = {"kind": len(OPERATIONS), "profile": len(PROFILES), "element": len(ELEMENTS)}
    for number, (name, family) in enumerate(FAMILIES.items()):
        known = read_formula_kinds(name, family.kinds, table=table)
        formulas = {key: formula.flatten() for key, formula in known.items()}
        if not formulas:
            continue
        arguments = [*keys, *family.passed, *WORDS]
        words = {"element": "element", **{word: word for word in WORDS}}
        has_words = name != "scale_sums"  # the table of channels holds its parameters
        names[name] = compile_formulas(
            name, arguments, formulas, keys, family.write_body, family.passed,
            words if has_words else None,
        )  # fmt: skip
        arrays = {
            family.run: "integers",
            family.other: {"totals": "floats", "table": "table"}.get(family.other, "others"),
        }
        given = ", ".join(arrays.get(one, one) for one in arguments)
        result = "return " if name == "scale_bias" else ""
        lines += [f"    if family == {number}:", f"        {result}{name}({given})"]
    exec(compile("\n".join([*lines, "    return 0"]), "<custom formulas>", "exec"), names)
    function: Callable[..., Int] = names["compute_formula"]
    return function
