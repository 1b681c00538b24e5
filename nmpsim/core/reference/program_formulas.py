"""Formulas of a program: those of the numerics profiles, or the program's own."""

from __future__ import annotations

from nmpsim.core.reference.operands import Descriptor, Scratchpad
from nmpsim.core.reference.profiles import FORMULAS
from nmpsim.core.reference.profiles.formulas import ProfileFormulas


def find_formulas(spm: Scratchpad, d: Descriptor) -> ProfileFormulas:
    """Find the formulas of a descriptor's profile: custom formulas of the program, or built-in."""
    number, stored = d["profile"], spm.program_formulas
    if not stored.size:
        return FORMULAS[number]
    # Few programs have formulas of their own, whose reader takes long to import.
    from nmpsim.core.reference.custom_formulas import find_program_formulas

    return find_program_formulas(stored.tobytes(), number)
