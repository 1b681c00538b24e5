"""Words that stand for the numerics profiles of a program in kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nmpsim.core.state import LAYER, Bytes, Int64s
from nmpsim.diagnostics import fail
from nmpsim.isa.profiles import PROFILES
from nmpsim.kernels.entries import AddressedKernel, pause_garbage_collection
from nmpsim.kernels.numba_settings import IS_JIT_DISABLED

if TYPE_CHECKING:
    from nmpsim.bundle.formulas import CustomFormulas

_ARGUMENTS = 34
"""Number of arguments of the function of custom formulas."""
_PROFILE_BITS = 4
"""Bits of a profile's number in its word; the address of a function is above them."""
_STANDARD = np.arange(len(PROFILES))


def get_profile_words(formulas: Bytes) -> Int64s:
    """Return a word for each profile: its number, combined with the address of custom formulas.

    Parameters
    ----------
    formulas
        Text of the program's formulas, as in :class:`~nmpsim.core.state.Machine`.

    Raises
    ------
    UserError
        ENV001 if there are formulas and Numba's compiler is off.
    """
    return _find_words(formulas.tobytes()) if formulas.size else _STANDARD


@cache
def _find_words(text: bytes) -> Int64s:
    if IS_JIT_DISABLED:
        raise fail(
            "ENV001",
            "the compiled engine cannot run a program with custom formulas",
            found="NUMBA_DISABLE_JIT=1",
            expected="Numba's compiler, or the reference engine",
            hint="Unset NUMBA_DISABLE_JIT, or pass --engine reference.",
        )
    from nmpsim.bundle.formulas import parse_stored_formulas  # few programs have formulas

    custom = parse_stored_formulas(text)
    kernel = AddressedKernel(f"formulas.{custom.digest}", partial(_make_source, custom), _ARGUMENTS)
    with pause_garbage_collection():
        address = kernel.address()
    words = _STANDARD.copy()
    for name in custom.profiles:
        words[PROFILES.index(name)] += address << _PROFILE_BITS
    return words


def _make_source(custom: CustomFormulas) -> Callable[..., Any]:
    from nmpsim.kernels.custom_formulas import make_formula_function
    from nmpsim.kernels.profiles import CALL_ARGUMENTS, PROFILE_BITS, WORDS

    assert len(CALL_ARGUMENTS) + len(WORDS) == _ARGUMENTS and PROFILE_BITS == _PROFILE_BITS
    return make_formula_function(custom.changed_table, LAYER)
