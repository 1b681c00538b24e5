"""Compiled functions that are made from expressions in tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nmpsim.core.compiled.traps import WORD
from nmpsim.isa.exhaustive import check_exhaustive
from nmpsim.isa.table import INSTRUCTIONS, InstructionKind, list_mnemonics
from nmpsim.kernels.jit import jit_inlined

UNKNOWN: Any = np.int64(-(1 << 63))
"""Result of a function that does not know the instruction."""
_NUMBERS = {i.mnemonic: number for number, i in enumerate(INSTRUCTIONS)}


def define_function(header: str, *lines: str, **names: Any) -> Any:
    """Define a Python function with a header, such as ``f(x)``, and a body; return the function.

    ``names`` are the values of the names in the body.
    """
    exec("\n    ".join([f"def {header}:", *lines]), names)
    return names[header.partition("(")[0]]


def make_switch(
    place: str, results: Mapping[str, str], *kinds: InstructionKind, **names: Any
) -> Any:
    """Return a compiled switch: a function from instruction number and operands to the result.

    Parameters
    ----------
    place
        Module and name of the function.
    results
        Expressions by mnemonics: ``a`` and ``b`` are the operands, ``ua`` and ``ub`` the same
        unsigned.
    kinds
        Kinds of instructions, all of which must have a result.
    names
        Functions in the expressions.

    Returns
    -------
    function
        Function of the instruction number and the operands; UNKNOWN for other instructions.
    """
    check_exhaustive(place, " ".join(results).split(), list_mnemonics(*kinds))
    lines = ["ua, ub = a & WORD, b & WORD"]
    for mnemonics, result in results.items():
        is_number = " or ".join(f"number == {_NUMBERS[one]}" for one in mnemonics.split())
        lines.append(f"if {is_number}: return np.int64({result})")
    header = f"{place.rpartition('.')[2]}(number, a, b)"
    names |= {"np": np, "WORD": WORD, "UNKNOWN": UNKNOWN}
    return jit_inlined(define_function(header, *lines, "return UNKNOWN", **names))
