"""Arithmetic of the numerics profiles on runs of values, compiled from ``isa/formulas.toml``.

A run is a row of a tile; the result replaces its first argument. ``index`` is the first value's in
the layer's output. The definitions are the slow modules of ``core/reference/profiles/``, with which
this file shares nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import attrs
import numpy as np

from nmpsim.isa.profiles import PROFILES, check_profiles
from nmpsim.isa.shared_words import OPERATIONS
from nmpsim.kernels import rounding
from nmpsim.kernels.channels import FIRST_PARAMETER
from nmpsim.kernels.formulas import ELEMENTS, RESULT, Formula, read_formulas
from nmpsim.kernels.jit import jit
from nmpsim.kernels.lanes import IntegerVector, find_parameters
from nmpsim.kernels.operands import IntegerScaleRecord
from nmpsim.kernels.saturate import ONCE
from nmpsim.kernels.saturation_stages import BIAS, RESCALE
from nmpsim.kernels.vector_code import FLOATS

_NAMES: Mapping[str, Any] = {
    "jit": jit,
    "np": np,
    "float32": np.float32,
    "float64": np.float64,
    "ONCE": ONCE,
    "BIAS": BIAS,
    "RESCALE": RESCALE,
    **{
        name: getattr(rounding, name)
        for name in (
            "combine", "divide_away", "exp2", "fma", "get_bits", "get_bits64", "hold", "limit",
            "real", "real64", "round_away", "round_even", "saturate", "shift_away", "within",
        )
    },
}  # fmt: skip
"""Names in the source text of compiled formulas."""

Key = tuple[int, ...]
"""Numbers that select a formula: of the profile and of the element, and others before these."""


def _list_words(*scales: tuple[str, str], **words: str) -> dict[str, str]:
    """Return the expressions of words: those of scales, and others by name."""
    found = {
        f"{name}_{one}": f"{at}.{one}" for name, at in scales for one in IntegerScaleRecord._fields
    }
    return found | words


def _write_terms(terms: Iterable[tuple[str, str]], indent: str, counted_as: str) -> list[str]:
    """Return assignments of terms; ``counted_as`` are the arguments of primitives that count."""
    return [
        f"{indent}{name} = " + re.sub(r"\b(saturate|limit)\(", rf"\1({counted_as}, ", term)
        for name, term in terms
    ]


def _write_loop(formula: Formula, **values: str) -> list[str]:
    """Return a loop that computes values of runs; the result replaces the first one's elements."""
    run, output = next((text.split("[")[0], text) for text in values.values())
    return [
        *_write_terms(formula.constants, "    ", ""),
        f"    for i in range({run}.size):",
        *_write_terms(values.items(), " " * 8, ""),
        *_write_terms(formula.steps, " " * 8, "RESCALE, ONCE, index + i, counters"),
        f"        {output} = {RESULT}",
    ]


def _compile(
    name: str,
    arguments: str,
    formulas: Mapping[Key, Formula],
    keys: Mapping[str, int],
    write_body: Callable[[Formula], Iterable[str]],
    passed: str,
    words: Mapping[str, str] | None = None,
) -> Any:
    """Compile a function that computes the formula of a key.

    Parameters
    ----------
    name, arguments
        Name of the function and its arguments.
    formulas
        Formulas by key; one that several keys have is compiled once.
    keys
        Expressions of the numbers of a key, and how many values each has.
    write_body
        Returns the lines of the function of one formula.
    passed
        Arguments that the functions of formulas take before the words of their formula.
    words
        Expressions of the words; None if the functions take none.
    """
    lines, cases = [], []
    for number, formula in enumerate(dict.fromkeys(formulas.values())):
        used = formula.words if words else ()
        lines += ["@jit", f"def {name}_{number}({', '.join([passed, *used])}):"]
        lines += write_body(formula)
        same = (
            np.ravel_multi_index(key, [*keys.values()])
            for key, one in formulas.items()
            if one == formula
        )
        given = ", ".join([passed, *((words or {})[word] for word in used)])
        cases += [
            f"    if {' or '.join(f'key == {key}' for key in same)}:",
            f"        return {name}_{number}({given})",
        ]
    cases[-2:] = [cases[-1].strip().rjust(len(cases[-1]) - 4)]
    key = "0"
    for expression, count in keys.items():
        key = f"({key}) * {count} + {expression}"
    source = "\n".join([*lines, "@jit", f"def {name}({arguments}):", f"    key = {key}", *cases])
    names = dict(_NAMES)
    exec(compile(source, f"<{name}>", "exec"), names)
    return names[name]


def _read(name: str, *kinds: str, of: tuple[str, ...] = ()) -> dict[Key, Formula]:
    """Return formulas of some kinds by key, in which the number of the kind is first.

    Raises
    ------
    IncompleteError
        A profile of the instructions ``of`` has no such formula; ``name`` is the function that
        needs it.
    """
    found: dict[Key, Formula] = {
        (number, *key): formula
        for number, kind in enumerate(kinds)
        for key, formula in read_formulas(kind).items()
    }
    if of:
        check_profiles(f"{__name__}.{name}", {key[1] for key in found}, *of)
    return found


def _get_keys(kind: str, at: str, element: str = "") -> dict[str, int]:
    """Return the expressions of the numbers of a key; ``at`` has the profile."""
    element = element or f"{at}.element"
    return {kind: len(OPERATIONS), f"{at}.profile": len(PROFILES), element: len(ELEMENTS)}


# --- sums ------------------------------------------------------------------------------------

_MAC = "conv", "dwconv", "gemm"
_SUMS = _read("scale_sums", "sums", of=_MAC)
SUMS = list(dict.fromkeys(_SUMS.values()))
"""Formulas of sums."""
SUM_NUMBERS = np.full((len(PROFILES), len(ELEMENTS)), -1)
"""Number of a formula in SUMS [profile, element], or -1."""
for _key, _formula in _SUMS.items():
    SUM_NUMBERS[_key[1:]] = SUMS.index(_formula)


def _list_coders(formula: Formula) -> Iterable[tuple[str, int, str, str]]:
    """Yield name and row of each parameter, and the functions that encode and decode it."""
    for row, (name, known) in enumerate(find_parameters(formula).items(), FIRST_PARAMETER):
        if isinstance(known, IntegerVector):
            yield name, row, "np.int64", "np.int64"
        elif known.kind is FLOATS:
            yield name, row, "get_bits", "real"
        else:
            yield name, row, "get_bits64", "real64"


def _write_parameters(formula: Formula) -> list[str]:
    coders = _list_coders(formula)
    stores = [f"    table[{row}, c] = {encode}({name})" for name, row, encode, _ in coders]
    return [*_write_terms(formula.constants, "    ", ""), *stores]


def _write_sums(formula: Formula) -> list[str]:
    coders = _list_coders(formula)
    loads = {name: f"{decode}(table[{row}, i])" for name, row, _, decode in coders}
    return _write_loop(attrs.evolve(formula, constants=()), acc="run[i]", **loads)


fill_parameters = _compile(
    "fill_parameters",
    "q, bias, bias_scale, out, table, c",
    _SUMS,
    _get_keys("0", "q"),
    _write_parameters,
    "table, c",
    _list_words(
        ("bias", "bias_scale"),
        ("out", "out"),
        bias="bias",
        element="q.element",
        out_offset="q.out_offset",
        result_scale="q.result_scale",
    ),
)
"""Write the parameters of channel ``c`` to the table of ``channels.py``."""

scale_sums = _compile(
    "scale_sums",
    "run, table, formula, index, counters",
    {(number,): formula for number, formula in enumerate(SUMS)},
    {"formula": len(SUMS)},
    _write_sums,
    "run, table, index, counters",
)
"""Scale sums (int64) by a formula of SUMS with the parameters of their channels."""

scale_bias = _compile(
    "scale_bias",
    "q, bias, bias_scale, pixels, index, counters",
    _read("scale_bias", "bias", of=_MAC),
    _get_keys("0", "q"),
    lambda formula: [
        *_write_terms(formula.constants, "    ", "BIAS, pixels, index, counters"),
        f"    return np.int64({formula.steps[-1][1]})",
    ],
    "pixels, index, counters",
    _list_words(("bias", "bias_scale"), bias="bias", element="q.element"),
)
"""Return the initial value of a channel's sum; count its saturation once for each pixel."""

apply_leaky = _compile(
    "apply_leaky",
    "run, q, index, counters",
    _read("apply_leaky", "leaky_sums"),
    _get_keys("0", "q"),
    partial(_write_loop, acc="run[i]"),
    "run, index, counters",
    _list_words(("leaky", "q.leaky_scale"), out_offset="q.out_offset"),
)
"""Scale results below the zero point by the slope of a leaky ReLU."""

# --- other instructions ----------------------------------------------------------------------

compute_averages = _compile(
    "compute_averages",
    "sums, totals, divisor, a, index, counters",
    _read("compute_averages", "average", of=("avgpool",)),
    _get_keys("0", "a"),
    partial(_write_loop, acc="sums[i]", total="totals[i]"),
    "sums, totals, index, counters",
    _list_words(
        ("out", "a.scale"),
        divisor="divisor",
        element="a.element",
        out_offset="a.out_offset",
        result_scale="a.result_scale",
    ),
)
"""Compute averages of sums, before the clip; ``totals`` are sums of dequantized values."""

compute_binary = _compile(
    "compute_binary",
    "left, right, t, q, index, counters",
    _read("compute_binary", *OPERATIONS, of=("eltwise",)),
    _get_keys("t.operation", "q", "t.element"),
    partial(_write_loop, lhs="left[i]", rhs="right[i]"),
    "left, right, index, counters",
    _list_words(
        *((side, f"q.{side}_scale") for side in ("lhs", "rhs", "out")),
        operation="t.operation",
        out_offset="q.out_offset",
        result_scale="q.result_scale",
    ),
)
"""Compute the results of two runs without their zero points, before the clip."""

rescale_values = _compile(
    "rescale_values",
    "values, u, index, counters",
    _read("rescale_values", "rescale", "leaky", of=("rescale",)),
    _get_keys("np.int64(u.leaky != 0)", "u"),
    partial(_write_loop, x="values[i]"),
    "values, index, counters",
    _list_words(
        ("out", "u.scale"),
        ("leaky", "u.leaky_scale"),
        out_offset="u.out_offset",
        result_scale="u.result_scale",
    ),
)
"""Rescale values without their zero point, before the clip."""
