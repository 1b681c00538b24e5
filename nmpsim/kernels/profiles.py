"""Arithmetic of the numerics profiles on runs of values, compiled from ``isa/formulas.toml``.

A run is a row of a tile; the result replaces its first argument. ``index`` is the first value's in
the layer's output. The definitions are the slow modules of ``core/reference/profiles/``, with which
this file shares nothing.

A program may replace formulas (see ``custom_formulas.py``). The word ``profile`` of quantizers and
other parameters then also contains the address of the function that computes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np

from nmpsim.isa.descriptors import OPERATIONS
from nmpsim.isa.profiles import PROFILES, check_profiles
from nmpsim.kernels import rounding
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.channels import FIRST_PARAMETER
from nmpsim.kernels.formula_ranges import FLOAT32, Interval, find_parameter_ranges
from nmpsim.kernels.formulas import (
    ELEMENTS,
    FORMULAS,
    RESULT,
    Formula,
    FormulaTable,
    read_formulas,
)
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import IntegerScaleRecord
from nmpsim.kernels.pointers import call, get_address
from nmpsim.kernels.saturate import ONCE
from nmpsim.kernels.saturation_stages import BIAS, RESCALE
from nmpsim.records import frozen

PROFILE_BITS = 4
"""Bits of the word ``profile`` that hold the number of a profile; an address may be above them."""


@jit
def get_profile_number(profile: Int) -> Any:
    """Return the number of a profile, without the address of custom formulas."""
    return profile & ((ONCE << PROFILE_BITS) - ONCE)


@jit
def is_custom(profile: Int) -> Any:
    """Return whether the word ``profile`` contains the address of the program's own formulas."""
    return profile >> PROFILE_BITS != 0


_NAMES: Mapping[str, Any] = {
    "jit": jit,
    "np": np,
    "float32": np.float32,
    "float64": np.float64,
    "ONCE": ONCE,
    "BIAS": BIAS,
    "RESCALE": RESCALE,
    "call": call,
    "get_address": get_address,
    "is_custom": is_custom,
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


def compile_formulas(
    name: str,
    arguments: Sequence[str],
    formulas: Mapping[Key, Formula],
    keys: Mapping[str, int],
    write_body: Callable[[Formula], Iterable[str]],
    passed: Sequence[str],
    words: Mapping[str, str] | None = None,
    first_lines: Sequence[str] = (),
) -> Any:
    """Compile a function that selects a formula by key and computes it.

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
    first_lines
        Lines before the choice of the formula.
    """
    lines, cases = [], []
    for number, formula in enumerate(dict.fromkeys(formulas.values())):
        used = formula.words if words else ()
        lines += ["@jit", f"def {name}_{number}({', '.join([*passed, *used])}):"]
        lines += write_body(formula)
        same = (
            np.ravel_multi_index(key, [*keys.values()])
            for key, one in formulas.items()
            if one == formula
        )
        given = ", ".join([*passed, *((words or {})[word] for word in used)])
        cases += [
            f"    if {' or '.join(f'key == {key}' for key in same)}:",
            f"        return {name}_{number}({given})",
        ]
    cases[-2:] = [cases[-1].strip().rjust(len(cases[-1]) - 4)]
    key = "0"
    for expression, count in keys.items():
        key = f"({key}) * {count} + {expression}"
    head = ["@jit", f"def {name}({', '.join(arguments)}):", *first_lines, f"    key = {key}"]
    names = dict(_NAMES)
    exec(compile("\n".join([*lines, *head, *cases]), f"<{name}>", "exec"), names)
    return names[name]


def read_formula_kinds(
    place: str, kinds: Sequence[str], of: Sequence[str] = (), table: FormulaTable = FORMULAS
) -> dict[Key, Formula]:
    """Return a mapping from (index in ``kinds``, profile number, element type) to formulas.

    Raises
    ------
    IncompleteError
        A profile of the instructions ``of`` has no such formula; ``place`` is the function that
        needs it.
    """
    found: dict[Key, Formula] = {
        (number, *key): formula
        for number, kind in enumerate(kinds)
        for key, formula in read_formulas(kind, table).items()
    }
    if of:
        check_profiles(f"{__name__}.{place}", {key[1] for key in found}, *of)
    return found


# --- functions -------------------------------------------------------------------------------


@frozen
class FormulaFamily:
    """Family of formulas, one for each profile and element type, that one function computes."""

    kinds: tuple[str, ...]
    """Kinds of the formulas: keys of ``isa/formulas.toml``."""
    write_body: Callable[[Formula], list[str]]
    """Returns the lines of the function of one formula."""
    run: str = ""
    """Argument whose values are replaced, int64 [size]."""
    other: str = ""
    """Argument that is read, an array of ``size`` or more 64-bit numbers."""
    more: tuple[str, ...] = ("index", "counters")
    """Arguments after the arrays."""
    instructions: tuple[str, ...] = ()
    """Descriptors whose profiles must have these formulas."""

    @property
    def passed(self) -> tuple[str, ...]:
        """Names of the arguments that the function of each formula takes."""
        return *filter(None, (self.run, self.other)), *self.more


def _list_coders(formula: Formula) -> Iterable[tuple[str, int, str, str]]:
    """Yield name and row of each parameter, and the functions that encode and decode it."""
    for row, (name, known) in enumerate(find_parameter_ranges(formula).items(), FIRST_PARAMETER):
        if isinstance(known, Interval):
            yield name, row, "np.int64", "np.int64"
        elif known == FLOAT32:
            yield name, row, "get_bits", "real"
        else:
            yield name, row, "get_bits64", "real64"


def _write_parameters(formula: Formula) -> list[str]:
    coders = _list_coders(formula)
    stores = [f"    table[{row}, index] = {encode}({name})" for name, row, encode, _ in coders]
    return [*_write_terms(formula.constants, "    ", ""), *(stores or ["    pass"])]


def _write_sums(formula: Formula) -> list[str]:
    coders = _list_coders(formula)
    loads = {name: f"{decode}(table[{row}, i])" for name, row, _, decode in coders}
    return _write_loop(attrs.evolve(formula, constants=()), acc="run[i]", **loads)


def _write_bias(formula: Formula) -> list[str]:
    return [
        *_write_terms(
            (*formula.constants, *formula.steps), "    ", "BIAS, pixels, index, counters"
        ),
        f"    return np.int64({RESULT})",
    ]


_MAC = "conv", "dwconv", "gemm"
FAMILIES = {
    "fill_parameters": FormulaFamily(("sums",), _write_parameters, other="table", more=("index",)),
    "scale_sums": FormulaFamily(("sums",), _write_sums, "run", "table", instructions=_MAC),
    "scale_bias": FormulaFamily(
        ("bias",), _write_bias, more=("pixels", "index", "counters"), instructions=_MAC
    ),
    "apply_leaky": FormulaFamily(("leaky_sums",), partial(_write_loop, acc="run[i]"), "run"),
    "compute_averages": FormulaFamily(
        ("average",),
        partial(_write_loop, acc="sums[i]", total="totals[i]"),
        "sums",
        "totals",
        instructions=("avgpool",),
    ),
    "compute_binary": FormulaFamily(
        OPERATIONS,
        partial(_write_loop, lhs="left[i]", rhs="right[i]"),
        "left",
        "right",
        instructions=("eltwise",),
    ),
    "rescale_values": FormulaFamily(
        ("rescale", "leaky"),
        partial(_write_loop, x="values[i]"),
        "values",
        instructions=("rescale",),
    ),
}
"""Families of formulas by the name of their function."""
CALL_ARGUMENTS = (
    *("family", "kind", "profile", "element", "run", "other", "size", "pixels", "index"),
    *("layers", "layer_count", "channel_saturated", "channels", "layer"),
)
"""Integers with which functions of custom formulas are called; WORDS follow."""
WORDS = (
    *(f"{scale}_{field}" for scale in ("bias", "out", "lhs", "rhs", "leaky") for field in
      IntegerScaleRecord._fields),
    *("bias", "out_offset", "result_scale", "divisor", "operation"),
)  # fmt: skip
"""Words that formulas may use, besides ``element``."""


def _write_call(name: str, profile: str, size: str, **given: str) -> list[str]:
    """Return lines that call the function of custom formulas if a profile has one."""
    family = FAMILIES[name]
    known = {
        "family": str([*FAMILIES].index(name)),
        "profile": f"{profile} & {(1 << PROFILE_BITS) - 1}",
        "size": size,
        **{one: f"get_address({getattr(family, one)})" for one in ("run", "other")
           if getattr(family, one)},
        **{one: one for one in family.more},
    }  # fmt: skip
    if "counters" in family.more:
        known |= {
            "layers": "get_address(counters.layers)",
            "layer_count": "counters.layers.size",
            "channel_saturated": "get_address(counters.channel_saturated)",
            "channels": "counters.channel_saturated.shape[2]",
            "layer": "counters.layer",
        }
    known |= given
    values = ", ".join(f"np.int64({known.get(one, 0)})" for one in (*CALL_ARGUMENTS, *WORDS))
    called = f"call({profile} >> {PROFILE_BITS}, ({values}))"
    result = [f"        return {called}"]
    if name != "scale_bias":
        result = [f"        {called}", "        return None"]
    return [f"    if is_custom({profile}):", *result]


def _make_function(
    name: str,
    arguments: str,
    at: str,
    words: Mapping[str, str],
    *,
    size: str = "0",
    kind: str = "0",
    element: str = "",
) -> Any:
    """Compile the function of a family of formulas.

    Parameters
    ----------
    name, arguments
        Name of the function and its arguments.
    at
        Argument that has the profile.
    words
        Expressions of the words that formulas may use.
    size, kind, element
        Expressions of the number of values, of the kind of the formula and of the element type.
    """
    family, element = FAMILIES[name], element or f"{at}.element"
    keys = {kind: len(OPERATIONS), f"{at}.profile": len(PROFILES), element: len(ELEMENTS)}
    own = {word: text for word, text in words.items() if word != "element"}
    return compile_formulas(
        name,
        [arguments],
        read_formula_kinds(name, family.kinds, family.instructions),
        keys,
        family.write_body,
        family.passed,
        words,
        _write_call(name, f"{at}.profile", size, kind=kind, element=element, **own),
    )


_SUM_WORDS = _list_words(
    ("bias", "bias_scale"),
    ("out", "out"),
    bias="bias",
    element="q.element",
    out_offset="q.out_offset",
    result_scale="q.result_scale",
)
fill_parameters = _make_function(
    "fill_parameters",
    "q, bias, bias_scale, out, table, index",
    "q",
    _SUM_WORDS,
    size="table.shape[1]",
)
"""Write the parameters of channel ``index`` to the table of ``channels.py``."""

_SUMS = read_formula_kinds("scale_sums", ("sums",), _MAC)
SUMS = list(dict.fromkeys(_SUMS.values()))
"""Formulas of sums."""
SUM_NUMBERS = np.full((len(PROFILES), len(ELEMENTS)), -1)
"""Number of a formula in SUMS [profile, element], or -1."""
for _key, _formula in _SUMS.items():
    SUM_NUMBERS[_key[1:]] = SUMS.index(_formula)

scale_sums = compile_formulas(
    "scale_sums",
    ["run, table, q, index, counters"],
    _SUMS,
    {"0": 1, "q.profile": len(PROFILES), "q.element": len(ELEMENTS)},
    _write_sums,
    FAMILIES["scale_sums"].passed,
    None,
    _write_call("scale_sums", "q.profile", "run.size", element="q.element"),
)
"""Scale sums (int64) with the parameters of their channels."""

scale_bias = _make_function(
    "scale_bias",
    "q, bias, bias_scale, pixels, index, counters",
    "q",
    _list_words(("bias", "bias_scale"), bias="bias", element="q.element"),
)
"""Return the initial value of a channel's sum; count its saturation once for each pixel."""

apply_leaky = _make_function(
    "apply_leaky",
    "run, q, index, counters",
    "q",
    _list_words(("leaky", "q.leaky_scale"), out_offset="q.out_offset"),
    size="run.size",
)
"""Scale results below the zero point by the slope of a leaky ReLU."""

compute_averages = _make_function(
    "compute_averages",
    "sums, totals, divisor, a, index, counters",
    "a",
    _list_words(
        ("out", "a.scale"),
        divisor="divisor",
        element="a.element",
        out_offset="a.out_offset",
        result_scale="a.result_scale",
    ),
    size="sums.size",
)
"""Compute averages of sums, before the clip; ``totals`` are sums of dequantized values."""

compute_binary = _make_function(
    "compute_binary",
    "left, right, t, q, index, counters",
    "q",
    _list_words(
        *((side, f"q.{side}_scale") for side in ("lhs", "rhs", "out")),
        operation="t.operation",
        out_offset="q.out_offset",
        result_scale="q.result_scale",
    ),
    size="left.size",
    kind="t.operation",
    element="t.element",
)
"""Compute the results of two runs without their zero points, before the clip."""

rescale_values = _make_function(
    "rescale_values",
    "values, u, index, counters",
    "u",
    _list_words(
        ("out", "u.scale"),
        ("leaky", "u.leaky_scale"),
        out_offset="u.out_offset",
        result_scale="u.result_scale",
    ),
    size="values.size",
    kind="np.int64(u.leaky != 0)",
)
"""Rescale values without their zero point, before the clip."""
