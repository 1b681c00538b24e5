"""Which array of a float model each quantized constant was made from.

Glow keeps the model's names where they are legal, and appends ``__N`` where it changed a
constant; the constants of channelwise operations get names of their own. So a constant is looked
for by its name, by its name without the suffix, and at last by its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.shadow.errors import Real
from nmpsim.analysis.shadow.layouts import Layout, best_layout
from nmpsim.interpreter import sqnr_db
from nmpsim.lir.names import legal_name, without_suffix
from nmpsim.report.shadow import FloatWeight

Arrays = Mapping[str, npt.NDArray[Any]]
LEAST_SQNR_DB = 10.0
"""Values alone say that an array is a constant's only if they are at least this near."""


@attrs.frozen
class Matches:
    """Float values for the constants of a program."""

    floats: Mapping[str, Real] = attrs.field(eq=False)
    """Constant -> float values in the LIR's layout."""
    found: tuple[FloatWeight, ...]
    unmatched: tuple[str, ...]
    """Constants without float values."""


@attrs.frozen(eq=False)
class _Match:
    source: str
    how: str
    layout: Layout


def match_constants(constants: Mapping[str, Real], arrays: Arrays) -> Matches:
    """Find the float values of constants, each in the layout that is nearest to the constant.

    Args:
        constants: real values of the quantized constants, in the LIR's layout.
        arrays: the float model's, by their names.
    """
    legal = {legal_name(name): name for name in arrays}
    named = {n: m for n, real in constants.items() if (m := _by_name(n, real, arrays, legal))}
    used = {match.source for match in named.values()}
    others = {name: array for name, array in arrays.items() if name not in used}
    found: dict[str, _Match] = {}
    for name, real in constants.items():
        match = named.get(name) or _by_values(real, others)
        if match is not None:
            found[name] = match
    return Matches(
        {name: match.layout.values() for name, match in found.items()},
        tuple(_described(name, constants[name], match) for name, match in found.items()),
        tuple(name for name in constants if name not in found),
    )


def _by_name(name: str, real: Real, arrays: Arrays, legal: Mapping[str, str]) -> _Match | None:
    """The array of a constant's name, with or without the suffix, if it fits."""
    for how, wanted in (("name", name), ("name without suffix", without_suffix(name))):
        source = legal.get(wanted)
        layout = None if source is None else best_layout(arrays[source], real)
        if source is not None and layout is not None:
            return _Match(source, how, layout)
    return None


def _by_values(real: Real, arrays: Arrays) -> _Match | None:
    """The array whose values are nearest, if they are near."""
    best, best_db = None, LEAST_SQNR_DB
    for name, array in arrays.items():
        layout = best_layout(array, real)
        if layout is None:
            continue
        near = sqnr_db(layout.values(), real - layout.values())
        if near >= best_db:
            best, best_db = _Match(name, "values", layout), near
    return best


def _described(name: str, real: Real, match: _Match) -> FloatWeight:
    floats = match.layout.values()
    return FloatWeight(
        constant=name,
        source=match.source,
        how=match.how,
        layout=match.layout.name,
        sqnr_db=sqnr_db(floats, real - floats),
        worst_error=float(np.abs(real - floats).max(initial=0.0)),
        largest=float(np.abs(floats).max(initial=0.0)),
    )
