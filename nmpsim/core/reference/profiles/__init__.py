"""Bit-exact arithmetic of the numerics profiles, one module each.

``docs/numerics.md`` gives the source of each formula. float32 operations are rounded one by one;
``rha`` is rounding half away from zero, ``rne`` half to even.
"""

from __future__ import annotations

from importlib import import_module

from nmpsim.core.reference.profiles.formulas import ProfileFormulas
from nmpsim.isa.profiles import ROWS, check_profiles

FORMULAS: dict[int, ProfileFormulas] = {
    row.number: import_module(f"{__name__}.{row.name}").FORMULAS for row in ROWS
}
"""Number of a profile -> formulas of the module with its name."""

BIASES = {n: f.bias for n, f in FORMULAS.items() if f.bias}
RESULTS = {n: f.result for n, f in FORMULAS.items() if f.result}
AVERAGES = {n: f.average for n, f in FORMULAS.items() if f.average}
PAIRS = {n: f.pair for n, f in FORMULAS.items() if f.pair}
RESCALES = {n: f.rescale for n, f in FORMULAS.items() if f.rescale}
check_profiles(f"{__name__}.BIASES", BIASES, "conv", "dwconv", "gemm")
check_profiles(f"{__name__}.RESULTS", RESULTS, "conv", "dwconv", "gemm")
check_profiles(f"{__name__}.AVERAGES", AVERAGES, "avgpool")
check_profiles(f"{__name__}.PAIRS", PAIRS, "eltwise")
check_profiles(f"{__name__}.RESCALES", RESCALES, "rescale")
