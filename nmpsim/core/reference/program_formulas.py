"""Formulas of a program: those of the numerics profiles, or the program's own."""

from __future__ import annotations

from nmpsim.core.reference.profiles import FORMULAS
from nmpsim.core.reference.profiles.formulas import ProfileFormulas
from nmpsim.core.state import Bytes


def find_formulas(stored: Bytes, number: int) -> ProfileFormulas:
    """Return the formulas of a profile in a program.

    Parameters
    ----------
    stored
        Text of the program's formulas, as in :class:`~nmpsim.core.state.Machine`.
    number
        Number of the profile.
    """
    if not stored.size:
        return FORMULAS[number]
    # Few programs have formulas of their own, whose reader takes long to import.
    from nmpsim.core.reference.custom_formulas import find_program_formulas

    return find_program_formulas(stored.tobytes(), number)
