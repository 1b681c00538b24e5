"""Matching of quantized constants with the arrays of a float model.

Glow keeps the model's names if they are legal, appends ``__N`` to names of changed constants, and
renames the constants of channelwise operations. So a constant is matched by its name, by its name
without the suffix, and then by its values. A filter with a folded batch norm equals the model's,
each channel multiplied by a factor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np

from nmpsim.analysis.constant_forms import list_bias_orders, list_kernel_forms
from nmpsim.analysis.shadow.constants import (
    AS_IS,
    FOLDED,
    Layout,
    find_best_layout,
    list_array_variants,
    list_layouts,
)
from nmpsim.analysis.shadow.evaluate import Real
from nmpsim.arrays import Arrays
from nmpsim.interpreter import compute_sqnr_db
from nmpsim.lir.names import make_legal_name, strip_numeric_suffix
from nmpsim.report.analyses import FloatWeight

MIN_MATCH_SQNR_DB = 10.0
"""Lowest SQNR at which an array matches a constant by values alone."""
MIN_MULTIPLE_SQNR_DB = 15.0
"""Lowest SQNR at which a filter's channels count as multiples of the model's."""
MAX_FACTOR_SPREAD = 0.02
"""Relative spread below which factors count as one factor: a scale, not a batch norm."""
MULTIPLE = ", by channel times a factor"
ZERO = "zero"
"""Fault of a bias that is zero although the float model's is not."""
MAX_FORM_ELEMENTS = 1 << 22
"""Largest number of elements of a constant for which other forms are tried."""


@attrs.frozen
class Matches:
    """Matches between constants of a program and float arrays, by constant name."""

    floats: Mapping[str, Real] = attrs.field(eq=False)
    """Float values in the LIR's layout by constant name."""
    found: tuple[FloatWeight, ...]
    unmatched: tuple[str, ...]
    """Names of constants without float values."""


@attrs.frozen(eq=False)
class _Match:
    source: str
    how: str
    layout: Layout
    fault: str = ""
    """Difference of the constant from the array, such as "the kernel's two axes swapped"."""

    @property
    def is_multiple(self) -> bool:
        """Whether the values are the array's, each channel multiplied by a factor."""
        return self.how.endswith(MULTIPLE)

    def error_db(self, real: Real) -> float:
        """Return the SQNR of the constant in dB."""
        values = self.layout.get_values()
        return compute_sqnr_db(values, real - values)


def match_constants(
    constants: Mapping[str, Real], arrays: Arrays, filters: Mapping[str, str] | None = None
) -> Matches:
    """Match constants with float arrays by name, then by elements in the closest layout.

    Parameters
    ----------
    constants
        Real values of the quantized constants, in the LIR's layout.
    arrays
        The float model's, by their names.
    filters
        Bias -> filter of its layer. If a batch norm is folded into the filter but not into
        the model's array, the array of the bias's name is not used if it differs too much.

    Returns
    -------
    Matches
        Includes constants that equal an array only in another form: zero, or with its axes or
        channels in another order.
    """
    legal = {make_legal_name(name): name for name in arrays}
    named = {n: m for n, real in constants.items() if (m := _by_name(n, real, arrays, legal))}
    for bias, filter_ in (filters or {}).items():
        unfolded = filter_ in named and named[filter_].is_multiple
        if unfolded and bias in named and named[bias].error_db(constants[bias]) < MIN_MATCH_SQNR_DB:
            del named[bias]
    used = {match.source for match in named.values()}
    others = {name: array for name, array in arrays.items() if name not in used}
    found: dict[str, _Match] = {}
    for name, real in constants.items():
        match = named.get(name) or _by_values(real, others)
        if match is not None:
            found[name] = match
    _add_faulty_matches(constants, arrays, filters or {}, found)
    return _make_matches(constants, found)


def _add_faulty_matches(
    constants: Mapping[str, Real],
    arrays: Arrays,
    filters: Mapping[str, str],
    found: dict[str, _Match],
) -> None:
    """Match the remaining constants with the remaining arrays, in other forms of the arrays."""
    is_near = {
        name: one.error_db(constants[name]) >= MIN_MATCH_SQNR_DB for name, one in found.items()
    }
    used = {one.source for name, one in found.items() if is_near[name]}
    rest = {name: array for name, array in arrays.items() if name not in used}
    faulty: dict[str, _Match] = {}
    for name in [name for name in constants if not is_near.get(name)]:
        match = _by_form(constants[name], rest)
        if match is not None:
            faulty[name] = match
            del rest[match.source]
    zeros = [name for name in filters if name in constants and not constants[name].any()]
    for name, source in _pair_zeros(zeros, constants, rest):
        layout = Layout(AS_IS, arrays[source], arrays[source].shape)
        faulty[name] = _Match(source, "name or size", layout, ZERO)
    for name, match in faulty.items():
        known = found.get(name)
        is_same = known is not None and known.source == match.source
        found[name] = attrs.evolve(match, how=known.how) if known and is_same else match


def _pair_zeros(
    zeros: Sequence[str], constants: Mapping[str, Real], arrays: Arrays
) -> Iterator[tuple[str, str]]:
    """Yield biases of zero and the arrays that they should have, by name or as only arrays left."""
    legal = {make_legal_name(name.removesuffix(FOLDED)): name for name in arrays}
    left = {}
    for name in zeros:
        source = legal.get(strip_numeric_suffix(make_legal_name(name)))
        if source is not None and arrays[source].shape == constants[name].shape:
            yield name, source
            left[source] = name
    rest = [name for name in zeros if name not in left.values()]
    for shape in dict.fromkeys(constants[name].shape for name in rest):
        names = [name for name in rest if constants[name].shape == shape]
        sources = [
            name
            for name, array in arrays.items()
            if name not in left and array.shape == shape and array.any()
        ]
        if len(sources) != len(names):
            sources = [name for name in sources if name.endswith(FOLDED)]
        if len(sources) == len(names):
            yield from zip(names, sources, strict=True)


def _by_form(real: Real, arrays: Arrays) -> _Match | None:
    """Return the array that equals a constant in another form, or None."""
    if real.size > MAX_FORM_ELEMENTS or not real.any():
        return None
    ordered = np.sort(real, axis=None)
    for name, array in arrays.items():
        if array.size != real.size:
            continue
        flat = np.sort(array, axis=None)
        if compute_sqnr_db(flat, ordered - flat) < MIN_MATCH_SQNR_DB:
            continue
        for layout in list_layouts(array, real.shape):
            fault = find_form(real, layout.get_values())
            if fault:
                return _Match(name, "values", layout, fault)
    return None


def find_form(real: Real, floats: Real) -> str:
    """Return the form of float values that a constant has, or "" if it has none."""
    if real.ndim == 1:
        forms = list_bias_orders(floats)
    else:
        kernel = floats if floats.ndim == 4 else floats.reshape(len(floats), 1, 1, -1)
        forms = list_kernel_forms(kernel)
    for text, values in forms:
        if compute_sqnr_db(floats, real - values.reshape(real.shape)) >= MIN_MATCH_SQNR_DB:
            return text
    return ""


def match_floats_by_name(constants: Mapping[str, Real], floats: Arrays) -> Matches:
    """Match constants with the float arrays of the same names."""
    matches = {
        name: _Match(name, "name", Layout(AS_IS, floats[name], floats[name].shape))
        for name in constants
        if name in floats
    }
    return _make_matches(constants, matches)


def _make_matches(constants: Mapping[str, Real], found: Mapping[str, _Match]) -> Matches:
    return Matches(
        {name: match.layout.get_values() for name, match in found.items()},
        tuple(_describe(name, constants[name], match) for name, match in found.items()),
        tuple(name for name in constants if name not in found),
    )


def _by_name(name: str, real: Real, arrays: Arrays, legal: Mapping[str, str]) -> _Match | None:
    """Return the array with a constant's name, with or without the suffix, if it fits."""
    for how, wanted in (("name", name), ("name without suffix", strip_numeric_suffix(name))):
        source = legal.get(wanted)
        forms = [] if source is None else list_array_variants(source, arrays)
        layouts = [(form, find_best_layout(arrays[form], real)) for form in forms]
        found = [_Match(form, how, layout) for form, layout in layouts if layout is not None]
        if len(found) == 1:
            return _times_factors(found[0], real)
        if found:
            return max(found, key=lambda match: match.error_db(real))
    return None


def _times_factors(match: _Match, real: Real) -> _Match:
    """Return the array with each channel scaled to the constant, if that explains it."""
    values = match.layout.get_values()
    if real.ndim < 4 or match.error_db(real) >= MIN_MULTIPLE_SQNR_DB:
        return match
    axes = tuple(range(1, real.ndim))
    power = np.square(values).sum(axes, keepdims=True)
    common = (values * real).sum(axes, keepdims=True)
    factors = np.divide(common, power, out=np.zeros_like(power), where=power > 0)
    layout = Layout(match.layout.name, values * factors, values.shape)
    scaled = _Match(match.source, match.how + MULTIPLE, layout)
    alike = np.ptp(factors) <= MAX_FACTOR_SPREAD * np.abs(factors).max(initial=0.0)
    return match if alike or scaled.error_db(real) < MIN_MULTIPLE_SQNR_DB else scaled


def _by_values(real: Real, arrays: Arrays) -> _Match | None:
    """Return the array with the closest values, if they are close enough."""
    best, best_db = None, MIN_MATCH_SQNR_DB
    for name, array in arrays.items():
        layout = find_best_layout(array, real)
        if layout is None:
            continue
        match = _Match(name, "values", layout)
        if (near := match.error_db(real)) >= best_db:
            best, best_db = match, near
    return best


def _describe(name: str, real: Real, match: _Match) -> FloatWeight:
    floats = match.layout.get_values()
    return FloatWeight(
        constant=name,
        source=match.source,
        how=match.how,
        layout=match.layout.name,
        sqnr_db=match.error_db(real),
        worst_error=float(np.abs(real - floats).max(initial=0.0)),
        largest=float(np.abs(floats).max(initial=0.0)),
        fault=match.fault,
    )
