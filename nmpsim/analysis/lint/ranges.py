"""The rules about value ranges of types and of recorded profiles.

These are ``range-wasted``, ``range-too-narrow``, ``ranges-foreign`` and ``ranges-unknown``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import attrs
import numpy as np

from nmpsim.analysis.lint.findings import LintFinding, Severity
from nmpsim.analysis.lint.fixed_values import read_quantized_weights
from nmpsim.analysis.lint.subject import LintSubject
from nmpsim.analysis.weighted import read_weight_rows, read_weighted_scales
from nmpsim.arrays import Array
from nmpsim.compiler.numerics import WeightedLayerScales
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.lir.names import strip_numeric_suffix
from nmpsim.quantization import SCHEMAS, ValueRange, choose_parameters
from nmpsim.quantization.profile import ProfileLookup

MAX_WASTED_SHARE = 1.0 / 4.0
"""Used share of a type's range below which a tensor is reported: two bits are unused."""
MAX_WASTED_SHARE_FOR_WARNING = 1.0 / 16.0
"""Used share below which the finding is a warning: four bits are unused."""


def check_wasted_ranges(subject: LintSubject) -> Iterator[LintFinding]:
    """Report weights and results that use a small share of their type's range."""
    ranges = get_usable_ranges(subject)
    for op in subject.operations:
        yield from _check_weights_range(op, subject)
        recorded = ranges.find_range(op.instruction.name)
        if recorded is not None and op.operands[0].type.quant is not None:
            yield from _check_result_range(op, recorded)


def compute_used_share(low: float, high: float, view: BufferView) -> float:
    """Compute the share (0 to 1) of a type's range that two integers span."""
    lowest, highest = view.limits
    return (high - low) / (highest - lowest)


def _check_weights_range(op: Operation, subject: LintSubject) -> Iterator[LintFinding]:
    """Check weights, channel by channel if each channel has its own scale."""
    scales = read_weighted_scales(subject.module, op)
    rows = None if scales is None else read_weight_rows(subject.module, op)
    if rows is None or scales is None or not rows.size:
        return
    parts = _used_shares(rows, scales, op.operands[2])
    little = np.flatnonzero(parts < MAX_WASTED_SHARE)
    if not little.size or not (rows != scales.weight_offsets[:, None]).any():
        return
    worst = int(little[np.argmin(parts[little])])
    part = float(parts[worst])
    by_channel = parts.size > 1
    whose = (
        f"{little.size} of {parts.size} channels of the weights" if by_channel else "the weights"
    )
    yield LintFinding(
        _wasted_severity(part),
        f"{whose} %{op.operands[2].name} use a small part of the integer range",
        op,
        tensor=op.operands[2],
        found=_describe_share(part) + (f" in channel {worst}" if by_channel else ""),
        expected=f"at least {100 * MAX_WASTED_SHARE:.0f} % of the range",
        hint="Use a smaller scale; check that the range was chosen from these weights.",
        facts={"part": part, "channels": int(little.size)},
    )


def _used_shares(rows: Array, scales: WeightedLayerScales, view: BufferView) -> Array:
    """Return the used share of the range: of all weights, or of each channel with its own scale."""
    axis, offsets = (
        (1, scales.weight_offsets) if scales.by_channel else (None, scales.weight_offsets[:1])
    )
    low = np.minimum(rows.min(axis=axis), offsets)
    high = np.maximum(rows.max(axis=axis), offsets)
    parts = np.array([compute_used_share(a, b, view) for a, b in zip(low, high, strict=True)])
    idle: Array = np.where(low == high, 1.0, parts)  # a channel of zeros needs no range
    return idle


def _check_result_range(op: Operation, recorded: ValueRange) -> Iterator[LintFinding]:
    view = op.operands[0]
    low, high = min(recorded.low, 0.0) / view.scale, max(recorded.high, 0.0) / view.scale
    part = compute_used_share(low, high, view)
    if not 0.0 < part < MAX_WASTED_SHARE:
        return
    yield LintFinding(
        _wasted_severity(part),
        f"the result of %{op.instruction.name} uses a small part of the integer range",
        op,
        found=f"{_describe_share(part)}, for real values from {recorded.low:.6g} to"
        f" {recorded.high:.6g}",
        expected=f"at least {100 * MAX_WASTED_SHARE:.0f} % of the range",
        hint="Use a smaller scale; check that the calibration used similar inputs.",
        facts={"part": part, "low": recorded.low, "high": recorded.high},
    )


def _wasted_severity(part: float) -> Severity:
    return "warning" if part < MAX_WASTED_SHARE_FOR_WARNING else "note"


def _describe_share(part: float) -> str:
    return f"{100 * part:.3g} % of the range, with {-math.log2(part):.1f} unused bits"


MAX_UNKNOWN_RATIO = 3
"""A profile is reported if it covers fewer than one in this many results."""
MIN_RESULTS = 3
"""Smallest number of results from which a profile is judged."""
MAX_SCALE_RATIO = 2.0
"""Largest ratio between a scale and the scale that the recorded range requires."""


@attrs.frozen
class ProfileMatch:
    """Match of a recorded profile with a program: numbers of compared and mismatching values."""

    compared: str
    """``constants`` or ``results``: the values that were compared."""
    known: int
    """Number of compared values."""
    mismatches: int
    """Number of values outside their recorded range."""
    example: str
    """Description of the first mismatch, or of a match if nothing mismatches."""
    recorded: ValueRange
    """Recorded range of the example."""

    @property
    def is_foreign(self) -> bool:
        """Whether over half of the compared values are outside their recorded ranges."""
        return 2 * self.mismatches > self.known


def get_usable_ranges(subject: LintSubject) -> ProfileLookup:
    """Return the recorded ranges, or no ranges if the profile does not belong to the network."""
    found = match_profile(subject)
    return ProfileLookup({} if found is not None and found.is_foreign else subject.ranges or {})


def find_unusable_reason(subject: LintSubject) -> str:
    """Return why the recorded ranges cannot be used, or "" if the ranges are usable."""
    found = match_profile(subject)
    return "the profile belongs to another network" if found and found.is_foreign else ""


@lru_cache(maxsize=1)  # several rules ask
def match_profile(subject: LintSubject) -> ProfileMatch | None:
    """Match a recorded profile with constants or results; return None if too few values are known.

    None without a profile, or if neither constants nor results are known well enough.
    """
    if not subject.ranges:
        return None
    recorded = ProfileLookup(subject.ranges)
    compared, found = "constants", []
    if subject.has_constant_values:
        found = list(_compare_constants(subject, recorded))
    if not found:
        compared, found = "results", list(_compare_results(subject, recorded, subject.ranges))
        if len(found) < MIN_RESULTS:
            return None
    mismatches = [one for one in found if one[0]]
    _, example, range_ = (mismatches or found)[0]
    return ProfileMatch(compared, len(found), len(mismatches), example, range_)


_Comparison = tuple[bool, str, ValueRange]
"""Whether a value mismatches its recorded range, its description, and the range."""


def _compare_constants(subject: LintSubject, recorded: ProfileLookup) -> Iterator[_Comparison]:
    values = {name: (one.reals, one.steps) for name, one in read_quantized_weights(subject).items()}
    values |= {one.view.buffer.name: (one.dequantized, one.scales) for one in subject.biases}
    for name, (reals, steps) in values.items():
        if (range_ := recorded.find_range(name)) is not None:
            example = f"%{name} from {reals.min():.6g} to {reals.max():.6g}"
            yield _range_differs(reals, float(steps.max()), range_), example, range_


def _range_differs(reals: Array, step: float, recorded: ValueRange) -> bool:
    """Return whether a recorded range differs by more than rounding."""
    error = max(abs(reals.min() - recorded.low), abs(reals.max() - recorded.high))
    return bool(error > 1.01 * step)


def _compare_results(
    subject: LintSubject, recorded: ProfileLookup, ranges: Mapping[str, ValueRange]
) -> Iterator[_Comparison]:
    for op, view in list_quantized_results(subject):
        name = op.instruction.name
        if (range_ := recorded.find_range(name)) is not None:
            possible = list_possible_ranges(range_, ranges.values())
            ratio = min(_scale_ratio(view, one) for one in possible)
            yield ratio > MAX_SCALE_RATIO, f"%{name} on {view.scale:.6g}", range_


def _scale_ratio(view: BufferView, recorded: ValueRange) -> float:
    """Return the ratio of a scale and the one a range requires in the closest schema."""
    wanted = np.array(
        [
            float(choose_parameters(recorded.low, recorded.high, schema, view.type.elem).scale)
            for schema in SCHEMAS
        ]
    )
    return float(np.exp2(np.abs(np.log2(view.scale / wanted))).min()) if view.scale > 0 else 1.0


def list_possible_ranges(recorded: ValueRange, ranges: Iterable[ValueRange]) -> list[ValueRange]:
    """Return the recorded range of a result, and the ranges of possible fused activations.

    Glow fuses an activation and uses its type. Any ReLU keeps the highest value exactly; a clip has
    the limits zero and a whole number.

    Parameters
    ----------
    recorded
        Recorded range of the operation.
    ranges
        All recorded ranges.
    """
    after = [
        one
        for one in ranges
        if recorded.low < one.low <= 0
        and (
            one.high == recorded.high
            or (one.low == 0 and one.high < recorded.high and one.high == round(one.high) > 0)
        )
    ]
    return [recorded, *after]


def list_quantized_results(subject: LintSubject) -> Iterator[tuple[Operation, BufferView]]:
    """Yield each operation with a quantized result, and the view of the result."""
    for op in subject.operations:
        if op.operands[0].type.quant is not None:
            yield op, op.operands[0]


def check_foreign_profile(subject: LintSubject) -> Iterator[LintFinding]:
    """Report a profile that was not recorded from the program's network."""
    found = match_profile(subject)
    if found is None or not found.is_foreign:
        return
    yield LintFinding(
        "error",
        f"the profile belongs to another network: its ranges of {found.mismatches} of {found.known}"
        f" {found.compared} do not match",
        found=found.example,
        expected=f"{found.recorded.low:.6g} to {found.recorded.high:.6g}, the range in the profile",
        hint="Pass a profile of this network and these weights.",
        facts={"by": found.compared, "known": found.known, "others": found.mismatches},
    )


def check_profile_coverage(subject: LintSubject) -> Iterator[LintFinding]:
    """Report a profile that has ranges for few of the quantized results."""
    if subject.ranges is None:
        return
    recorded = ProfileLookup(subject.ranges)
    stems: dict[str, bool] = defaultdict(bool)
    for op, _ in list_quantized_results(subject):
        name = op.instruction.name
        stems[strip_numeric_suffix(name)] |= recorded.find_range(name) is not None
    known = sum(stems.values())
    if not stems or known * MAX_UNKNOWN_RATIO >= len(stems):
        return
    yield LintFinding(
        "warning",
        f"the profile has ranges for {known} of {len(stems)} quantized results",
        found=f"a profile with ranges for {', '.join(list(subject.ranges)[:3]) or 'no results'}",
        expected=f"a profile with ranges for {', '.join(list(stems)[:3])}",
        hint="Pass a profile of this network.",
        facts={"known": known, "results": len(stems)},
    )


MIN_COVERED_SHARE = 15.0 / 16.0
"""Share of a recorded range that a type must cover; a calibration may cut off outliers."""
MIN_COVERED_SHARE_FOR_WARNING = 0.5
"""Covered share below which the finding is an error: the type is not made for these values."""


def check_narrow_ranges(subject: LintSubject) -> Iterator[LintFinding]:
    """Report results whose type does not cover their recorded range."""
    ranges = get_usable_ranges(subject)
    for op, view in list_quantized_results(subject):
        recorded = ranges.find_range(op.instruction.name)
        if recorded is not None:
            yield from _check_narrow_result(op, view, recorded, subject)


def _check_narrow_result(
    op: Operation, view: BufferView, recorded: ValueRange, subject: LintSubject
) -> Iterator[LintFinding]:
    low, high = view.real_limits
    meant = list_possible_ranges(recorded, (subject.ranges or {}).values())
    part = max(_covered_share(low, high, view.scale, one) for one in meant)
    if part >= MIN_COVERED_SHARE:
        return
    severity: Severity = "error" if part < MIN_COVERED_SHARE_FOR_WARNING else "warning"
    yield LintFinding(
        severity,
        f"the type of the result of %{op.instruction.name} is too narrow for its values",
        op,
        found=f"a type from {low:.6g} to {high:.6g}",
        expected=f"a type from {recorded.low:.6g} to {recorded.high:.6g}, the range in the profile",
        hint="Choose the scale and the zero point from this profile.",
        facts={"part": part, "low": recorded.low, "high": recorded.high},
    )


def _covered_share(low: float, high: float, step: float, recorded: ValueRange) -> float:
    """Return the share of a recorded range within low and high, on its worse side."""
    ends = [(recorded.high, high), (-recorded.low, -low)]
    parts = [(held + step) / wanted for wanted, held in ends if wanted > step]
    return max(min(parts, default=1.0), 0.0)
