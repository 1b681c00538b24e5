"""The tables of numerics profiles, ``profiles.toml``.

``ROWS`` are the values of the word ``profile`` of a descriptor, ``NUMERICS`` those of
``--numerics``. Masks, checks of scales, help, ``explain``, the debugger and ``docs/isa.md`` are
derived from them; ``docs/numerics.md`` has the formulas.
"""

from __future__ import annotations

import math
import struct
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nmpsim.isa.exhaustive import check_exhaustive
from nmpsim.records import frozen

# --- the form of a scale ---------------------------------------------------------------------

ScaleKind: TypeAlias = Literal["integers", "fixed point", "float64", "float32"]
"""integers: shift right, multiply, shift right. fixed point: shift left, times a multiplier of
2^-31, shift right. float64: a float64 of 53 bits ``mul``, times 2^(pre - post - 53). float32: the
multiplier's bits."""


ScaleWords: TypeAlias = tuple[int, int, int]
"""``pre``, ``mul`` and ``post`` of a scale."""


@frozen
class ScaleForm:
    """Form of a scale: how the words ``pre``, ``mul`` and ``post`` represent a factor."""

    name: str
    kind: ScaleKind
    formula: str
    """Definition of ``scale(x)``, in Markdown."""
    has_common_shift: bool = False
    """Whether both factors of a sum are shifted together, by ``out_post``."""


INTEGER = ScaleForm(
    "integer",
    "integers",
    "`((x >> pre) * mul + half) >> post`; `half` is `(1 << post) >> 1`",
)
FIXED_POINT = ScaleForm(
    "fixed point", "fixed point", "`x << pre`, times `mul / 2^31`, divided by `2^post`"
)
FLOAT64 = ScaleForm(
    "float64",
    "float64",
    "`x` as float64 times the float64 `(mul * 2^22 + bias_mul) * 2^(pre - post - bias_post - 53)`",
)
LOW_BITS = 22
"""Number of the 53 bits of a float64 factor that are stored in ``bias_mul``."""
REAL = ScaleForm("real", "float32", "`x` as float32 times `mul`, the bits of a float32; no shifts")
COMMON_SHIFT = ScaleForm(
    "common shift",
    "integers",
    "`x * mul`; the sum of both sides is divided by `2^out_post`",
    has_common_shift=True,
)


def compute_real_factor(kind: ScaleKind, pre: int, mul: int, post: int) -> float:
    """Compute the real factor that the words of a scale represent."""
    if kind == "integers":
        return math.ldexp(mul, -pre - post)
    if kind == "fixed point":
        return math.ldexp(mul, pre - post - 31)
    if kind == "float64":
        return math.ldexp(mul, pre - post - 53)
    value: float = struct.unpack("<f", struct.pack("<I", mul & 0xFFFF_FFFF))[0]
    return value


def make_float64_scale(out: ScaleWords, bias: ScaleWords) -> ScaleWords:
    """Combine the bits of one float64 factor from ``out`` and ``bias``; return the scale words."""
    (pre, high, post), (_, low, more) = out, bias
    return pre, (high << LOW_BITS) + low, post + more


# --- profiles of the device -----------------------------------------------------------------


@frozen
class SumWords:
    """Meaning of the descriptor words for the scales and the bias of a convolution, in Markdown."""

    record: str
    """Description of the bias in the channel record."""
    bias: str
    """Meaning of the scale ``bias``."""
    out: str = "sum to result"
    """Meaning of the scale ``out``."""


@frozen
class ElementwiseWords:
    """Descriptor words that hold the scales of a group of elementwise operations."""

    operations: tuple[str, ...]
    words: str
    """Description of the words, in Markdown."""
    uses_result_scale: bool = False
    has_addends: bool = False
    """Whether ``lhs_post`` and ``rhs_post`` hold a float32 that is added."""


@frozen
class ArithmeticProfile:
    """Arithmetic profile of the device: its number, scale form and supported instructions."""

    number: int
    """Value of the word ``profile``."""
    name: str
    form: ScaleForm
    whose: str
    summary: str
    sums: SumWords | None = None
    """Words of ``nmp.conv`` and ``nmp.dwconv``, and of ``nmp.gemm`` if ``has_gemm``."""
    has_gemm: bool = True
    has_leaky_sums: bool = False
    """Whether a leaky activation may follow a sum."""
    sums_use_result_scale: bool = False
    pairs: tuple[ElementwiseWords, ...] = ()
    """Words of ``nmp.eltwise``; other operations are refused."""
    average: str = ""
    """Quantity that ``divide=by_valid_taps`` of ``nmp.avgpool`` divides."""
    average_uses_result_scale: bool = False
    """Whether ``nmp.avgpool`` uses ``result_scale``, and adds a float32 in ``out_post``."""
    rescale: str = ""
    """Description of the result of ``nmp.rescale``, in Markdown."""
    rescale_uses_result_scale: bool = False

    @property
    def instructions(self) -> tuple[str, ...]:
        """Names of the descriptors whose instructions support the profile."""
        has = {
            "conv": self.sums is not None,
            "dwconv": self.sums is not None,
            "gemm": self.sums is not None and self.has_gemm,
            "avgpool": bool(self.average),
            "eltwise": bool(self.pairs),
            "rescale": bool(self.rescale),
        }
        return tuple(name for name, holds in has.items() if holds)

    @property
    def operations(self) -> tuple[str, ...]:
        """Names of the elementwise operations that the profile supports."""
        return tuple(name for pair in self.pairs for name in pair.operations)


(
    GLOW_INT,
    GLOW_FLOAT,
    GLOW_FLOAT_LATE,
    NMP,
    Q31,
    FLOAT,
    FBGEMM,
    ONEDNN,
    QNNPACK,
    Q31_ONCE,
    ONNX,
) = range(11)
"""Numbers of the profiles, for compiled code."""

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_FORMS = {form.name: form for form in (INTEGER, FIXED_POINT, FLOAT64, REAL, COMMON_SHIFT)}


def _make_pair(*, operations: Sequence[str], words: str, **fields: bool) -> ElementwiseWords:
    """Return a group of elementwise operations from a row of the table."""
    return ElementwiseWords(tuple(operations), _TABLE["texts"].get(words, words), **fields)


def _make_profile(
    number: int,
    name: str,
    *,
    form: str,
    sums: Mapping[str, str] | None = None,
    pairs: Sequence[Mapping[str, Any]] = (),
    **fields: Any,
) -> ArithmeticProfile:
    """Return the profile of a row of the table."""
    return ArithmeticProfile(
        number,
        name,
        _FORMS[form],
        sums=None if sums is None else SumWords(**sums),
        pairs=tuple(_make_pair(**pair) for pair in pairs),
        **fields,
    )


ROWS = tuple(
    _make_profile(number, name, **row)
    for number, (name, row) in enumerate(_TABLE["device"].items())
)
PROFILES = tuple(row.name for row in ROWS)
"""Names of the profiles, by number."""
check_exhaustive(
    f"{__name__}.ROWS",
    enumerate(PROFILES),
    ((globals().get(name.upper()), name) for name in PROFILES),
)
PROFILES_OF = {
    descriptor: tuple(row.name for row in ROWS if descriptor in row.instructions)
    for descriptor in ("conv", "dwconv", "gemm", "avgpool", "eltwise", "rescale")
}
"""Descriptor -> supported profiles; any other profile is an operand fault."""


def list_profiles_with_form(*forms: ScaleForm) -> tuple[int, ...]:
    """Return the numbers of the profiles whose scale form is in ``forms``."""
    return tuple(row.number for row in ROWS if row.form in forms)


def compute_profile_mask(descriptor: str) -> int:
    """Compute a bit mask of the profiles that a descriptor supports."""
    return sum(1 << PROFILES.index(name) for name in PROFILES_OF[descriptor])


def check_profiles(place: str, numbers: Iterable[int], *descriptors: str) -> None:
    """Raise IncompleteError unless ``numbers`` are all profiles that the descriptors support."""
    needed = {profile for name in descriptors for profile in PROFILES_OF[name]}
    check_exhaustive(place, (PROFILES[number] for number in numbers), needed)


# --- what a compiler is asked for ------------------------------------------------------------


@frozen
class NumericsProfile:
    """Numerics profile: its name for ``--numerics``, its reference and its device profiles."""

    name: str
    whose: str
    profiles: tuple[str, ...]
    """Device profiles that the reference's layers use."""


NUMERICS = tuple(
    NumericsProfile(name, row["whose"], tuple(row["profiles"]))
    for name, row in _TABLE["numerics"].items()
)
NUMERICS_NAMES = tuple(row.name for row in NUMERICS)
DEFAULT_NUMERICS = NUMERICS_NAMES[0]
