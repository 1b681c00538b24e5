"""The tables of numerics profiles.

``ROWS`` are the values of the word ``profile`` of a descriptor, ``NUMERICS`` those of
``--numerics``. Masks, checks of scales, help, ``explain``, the debugger and ``docs/isa.md`` are
derived from them; ``docs/numerics.md`` has the formulas.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Literal, TypeAlias

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
    """Representation of a scale by the words ``pre``, ``mul`` and ``post``."""

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
    """Return the real factor that the words of a scale represent."""
    if kind == "integers":
        return math.ldexp(mul, -pre - post)
    if kind == "fixed point":
        return math.ldexp(mul, pre - post - 31)
    if kind == "float64":
        return math.ldexp(mul, pre - post - 53)
    value: float = struct.unpack("<f", struct.pack("<I", mul & 0xFFFF_FFFF))[0]
    return value


def make_float64_scale(out: ScaleWords, bias: ScaleWords) -> ScaleWords:
    """Join the two halves of a float64 factor; ``bias`` holds its lower ``LOW_BITS`` bits."""
    (pre, high, post), (_, low, more) = out, bias
    return pre, (high << LOW_BITS) + low, post + more


# --- profiles of the device -----------------------------------------------------------------


@frozen
class SumWords:
    """Descriptions of the scales and the bias of a convolution in a profile, in Markdown."""

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
    """Arithmetic of tensor instructions: its number, scales and supporting instructions."""

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

_PRODUCT = ElementwiseWords(("mul",), "`out`: product to result")
_BY_SIDE = "`lhs`, `rhs`: side to result"
_TO_COMMON_SCALE = "`lhs`, `rhs`: side to a common scale; `out`: sum to result"
_QUOTIENT = "the scaled sum, halves away from zero"
_FACTOR = "the factor"
_DIRECT = "by `out`, or by `leaky` below the zero point"

ROWS = (
    ArithmeticProfile(
        GLOW_INT,
        "glow_int",
        INTEGER,
        "Glow's compiled kernels (libjit)",
        "integer multiplier of about nine bits, shifts, halves up",
        sums=SumWords("integer", "bias to sum"),
        has_leaky_sums=True,
        pairs=(ElementwiseWords(("add", "sub", "max", "min"), _BY_SIDE), _PRODUCT),
        average=_QUOTIENT,
        rescale=_DIRECT,
    ),
    ArithmeticProfile(
        GLOW_FLOAT,
        "glow_float",
        REAL,
        "Glow's Interpreter",
        "float32 factor, halves away from zero, zero point before rounding",
        sums=SumWords("integer", "bias to sum"),
        pairs=(
            ElementwiseWords(("add",), _TO_COMMON_SCALE),
            ElementwiseWords(("sub",), _BY_SIDE),
            ElementwiseWords(
                ("max", "min"),
                "`lhs_mul`, `rhs_mul`: the sides' scales; `result_scale` divides",
                uses_result_scale=True,
            ),
            _PRODUCT,
        ),
        average=_FACTOR,
        rescale=f"{_DIRECT}, to a real number; `result_scale` divides it",
        rescale_uses_result_scale=True,
    ),
    ArithmeticProfile(
        GLOW_FLOAT_LATE,
        "glow_float_late",
        REAL,
        "Glow's Interpreter, fully connected layers",
        "float32 factor, halves away from zero, zero point after rounding",
        sums=SumWords("integer", "bias to sum"),
    ),
    ArithmeticProfile(
        NMP,
        "nmp",
        INTEGER,
        "the NMP's own library (assumed)",
        "as glow_int, bias added on the result's scale",
        sums=SumWords("integer on the result's scale", "unused"),
        has_leaky_sums=True,
        pairs=(ElementwiseWords(("add", "sub", "max", "min"), _BY_SIDE), _PRODUCT),
        average=_QUOTIENT,
        rescale=_DIRECT,
    ),
    ArithmeticProfile(
        Q31,
        "q31",
        FIXED_POINT,
        "TFLite and gemmlowp",
        "31-bit factor, rounded twice; 15-bit factor for Int16",
        sums=SumWords("integer on the sum's scale", "unused"),
        pairs=(
            ElementwiseWords(("add", "sub"), _TO_COMMON_SCALE),
            ElementwiseWords(("max", "min"), _BY_SIDE),
            _PRODUCT,
        ),
        average=_QUOTIENT,
        rescale=_DIRECT,
    ),
    ArithmeticProfile(
        FLOAT,
        "float",
        REAL,
        "ONNX Runtime; PyTorch's qnnpack, and elementwise operations of all its engines",
        "float32 factor, halves to even, zero point after rounding",
        sums=SumWords("integer on the sum's scale", "unused"),
        pairs=(
            ElementwiseWords(
                ("add", "sub", "max", "min"),
                "`side * lhs_mul + lhs_post`, `rhs` likewise; `result_scale` multiplies",
                uses_result_scale=True,
                has_addends=True,
            ),
            _PRODUCT,
        ),
        average=_FACTOR,
        rescale="by `out`, to a real number; below the zero point `leaky` multiplies that;"
        " `result_scale` multiplies it",
        rescale_uses_result_scale=True,
    ),
    ArithmeticProfile(
        FBGEMM,
        "fbgemm",
        REAL,
        "PyTorch, engine fbgemm",
        "as float, the bias a real number",
        sums=SumWords("float64 on the sum's scale", "unused"),
        has_gemm=False,
        average=_FACTOR,
    ),
    ArithmeticProfile(
        ONEDNN,
        "onednn",
        REAL,
        "PyTorch, engine onednn",
        "three float32 factors, zero point before rounding",
        sums=SumWords("float64, the real bias", "`bias_mul`: input's scale", "weights' scale"),
        has_gemm=False,
        sums_use_result_scale=True,
    ),
    ArithmeticProfile(
        QNNPACK,
        "qnnpack",
        COMMON_SHIFT,
        "PyTorch, engine qnnpack",
        "integer factors of both sides, one shift, halves away from zero",
        pairs=(
            ElementwiseWords(
                ("add", "sub"), "`lhs_mul`, `rhs_mul`: integers; `out_post`: shift to the right"
            ),
        ),
    ),
    ArithmeticProfile(
        Q31_ONCE,
        "q31_once",
        FLOAT64,
        "TFLite, fully connected layers",
        "float64 factor, rounded once, halves away from zero",
        sums=SumWords(
            "integer on the sum's scale", "`bias_mul`, `bias_post`: low bits of the factor"
        ),
    ),
    ArithmeticProfile(
        ONNX,
        "onnx",
        REAL,
        "ONNX Runtime, elementwise operations and averages",
        "float32, zero point before rounding",
        pairs=(
            ElementwiseWords(
                ("add",),
                "`lhs * lhs_mul + (rhs * rhs_mul + rhs_post)`, each product and sum rounded once",
                has_addends=True,
            ),
            ElementwiseWords(("mul",), "`lhs * rhs * out_mul + rhs_post`", has_addends=True),
        ),
        average="the sum of the taps, each times `out_mul`; without it all taps of the window"
        " divide it; then `result_scale` divides and `out_post` is added",
        average_uses_result_scale=True,
    ),
)
check_exhaustive(
    f"{__name__}.ROWS", enumerate(row.name for row in ROWS), ((r.number, r.name) for r in ROWS)
)

PROFILES = tuple(row.name for row in ROWS)
"""Names of the profiles, by number."""
PROFILES_OF = {
    descriptor: tuple(row.name for row in ROWS if descriptor in row.instructions)
    for descriptor in ("conv", "dwconv", "gemm", "avgpool", "eltwise", "rescale")
}
"""Descriptor -> supported profiles; any other profile is an operand fault."""


def list_profiles_with_form(*forms: ScaleForm) -> tuple[int, ...]:
    """Return the numbers of the profiles whose scales have one of these forms."""
    return tuple(row.number for row in ROWS if row.form in forms)


def compute_profile_mask(descriptor: str) -> int:
    """Return a bit mask of the profiles that a descriptor supports."""
    return sum(1 << PROFILES.index(name) for name in PROFILES_OF[descriptor])


def check_profiles(place: str, numbers: Iterable[int], *descriptors: str) -> None:
    """Raise IncompleteError unless ``numbers`` are the profiles that the descriptors allow."""
    needed = {profile for name in descriptors for profile in PROFILES_OF[name]}
    check_exhaustive(place, (PROFILES[number] for number in numbers), needed)


# --- what a compiler is asked for ------------------------------------------------------------


@frozen
class NumericsProfile:
    """The arithmetic of one reference, by its name for ``--numerics``."""

    name: str
    whose: str
    profiles: tuple[str, ...]
    """Device profiles that the reference's layers use."""


NUMERICS = (
    NumericsProfile("glow-int", "Glow's compiled kernels (libjit)", ("glow_int",)),
    NumericsProfile("glow-float", "Glow's Interpreter", ("glow_float", "glow_float_late")),
    NumericsProfile("nmp", "the NMP's own library (**assumed**)", ("nmp",)),
    NumericsProfile("q31", "TFLite and gemmlowp", ("q31", "q31_once")),
    NumericsProfile("float", "ONNX Runtime", ("float", "onnx")),
    NumericsProfile("float-fbgemm", "PyTorch, engine fbgemm", ("fbgemm", "float")),
    NumericsProfile("float-qnnpack", "PyTorch, engine qnnpack", ("float", "qnnpack")),
    NumericsProfile("float-onednn", "PyTorch, engine onednn", ("onednn", "fbgemm", "float")),
)
NUMERICS_NAMES = tuple(row.name for row in NUMERICS)
DEFAULT_NUMERICS = NUMERICS_NAMES[0]
