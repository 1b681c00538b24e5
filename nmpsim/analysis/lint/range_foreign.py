"""The rules ``ranges-foreign`` and ``ranges-unknown``: a profile that is not the program's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import attrs
import numpy as np

from nmpsim.analysis.lint.findings import Finding
from nmpsim.analysis.lint.subject import Array, Subject
from nmpsim.analysis.lint.weights_reference import weights_of
from nmpsim.compiler.operations import Operation, View
from nmpsim.diagnostics import Place
from nmpsim.lir.names import strip_numeric_suffix
from nmpsim.quantization import SCHEMAS, Range, choose_parameters
from nmpsim.quantization.recorded import Recorded

FOREIGN, UNKNOWN = "ranges-foreign", "ranges-unknown"
FEW = 3
"""A profile that knows less than one stem in N is another network's."""
LEAST_RESULTS = 3
"""Fewer results say nothing about a profile."""
FAR = 2.0
"""Factor between a scale and the one that a range calls for, in the schema that is nearest."""


@attrs.frozen
class Evidence:
    """How much of what a profile names is not the program's."""

    what: str
    known: int
    others: tuple[str, ...]
    example: str
    recorded: Range

    @property
    def is_foreign(self) -> bool:
        """Whether more of it is not than is."""
        return 2 * len(self.others) > self.known


def ranges_of(subject: Subject) -> Recorded:
    """The profile by names; empty if it is another network's, and where there is none."""
    found = evidence(subject)
    return Recorded({} if found is not None and found.is_foreign else subject.ranges or {})


def unusable(subject: Subject) -> str:
    """Why ranges cannot be compared; empty if they can, or none were given."""
    found = evidence(subject)
    return "the profile is that of another network" if found and found.is_foreign else ""


@lru_cache(maxsize=1)  # several rules ask
def evidence(subject: Subject) -> Evidence | None:
    """By the constants that a profile names; without them by the results. None says nothing."""
    if not subject.ranges:
        return None
    recorded = Recorded(subject.ranges)
    by_constants = _by_constants(subject, recorded) if subject.has_constants else None
    return by_constants or _by_results(subject, recorded, subject.ranges)


def _by_constants(subject: Subject, recorded: Recorded) -> Evidence | None:
    values = {name: (one.reals, one.steps) for name, one in weights_of(subject).items()}
    values |= {one.view.buffer.name: (one.reals, one.scales) for one in subject.biases}
    known = {
        name: (reals, float(steps.max()), range_)
        for name, (reals, steps) in values.items()
        if (range_ := recorded.find(name)) is not None
    }
    others = [
        name for name, (reals, step, range_) in known.items() if _differs(reals, step, range_)
    ]
    if not known:
        return None
    name = (others or list(known))[0]
    reals, _, range_ = known[name]
    example = f"%{name} from {reals.min():.6g} to {reals.max():.6g}"
    return Evidence("constants", len(known), tuple(others), example, range_)


def _differs(reals: Array, step: float, recorded: Range) -> bool:
    """By more than rounding."""
    error = max(abs(reals.min() - recorded.low), abs(reals.max() - recorded.high))
    return bool(error > 1.01 * step)


def _by_results(
    subject: Subject, recorded: Recorded, ranges: Mapping[str, Range]
) -> Evidence | None:
    known = {
        op.instruction.name: (view, range_)
        for op, view in quantized_results(subject)
        if (range_ := recorded.find(op.instruction.name)) is not None
    }
    if len(known) < LEAST_RESULTS:
        return None
    others = [
        name
        for name, (view, range_) in known.items()
        if min(_factor(view, one) for one in possible(range_, ranges.values())) > FAR
    ]
    name = (others or list(known))[0]
    view, range_ = known[name]
    return Evidence("results", len(known), tuple(others), f"%{name} on {view.scale:.6g}", range_)


def _factor(view: View, recorded: Range) -> float:
    """How far a scale is from the one of a range, in the schema that is nearest."""
    wanted = np.array(
        [
            float(choose_parameters(recorded.low, recorded.high, schema, view.type.elem).scale)
            for schema in SCHEMAS
        ]
    )
    return float(np.exp2(np.abs(np.log2(view.scale / wanted))).min()) if view.scale > 0 else 1.0


def possible(own: Range, ranges: Iterable[Range]) -> list[Range]:
    """An operation's own range, and those that an activation after it may have.

    Glow merges these into the operation and takes the activation's type. A ReLU of any kind keeps
    the highest value to the bit; a clip cuts at zero and at a whole number.
    """
    after = [
        one
        for one in ranges
        if own.low < one.low <= 0
        and (
            one.high == own.high
            or (one.low == 0 and one.high < own.high and one.high == round(one.high) > 0)
        )
    ]
    return [own, *after]


def quantized_results(subject: Subject) -> Iterator[tuple[Operation, View]]:
    """Every operation whose result is quantized, and the result."""
    for op in subject.operations:
        if op.operands[0].type.quant is not None:
            yield op, op.operands[0]


def check_foreign(subject: Subject) -> Iterator[Finding]:
    """A profile whose names are alike, and whose numbers are not the program's."""
    found = evidence(subject)
    if found is None or not found.is_foreign:
        return
    yield Finding(
        FOREIGN,
        "error",
        f"the profile is that of another network: {len(found.others)} of {found.known}"
        f" {found.what} that it names are others",
        Place(subject.module.file),
        found=found.example,
        expected=f"{found.recorded.low:.6g} to {found.recorded.high:.6g}, as recorded",
        hint="a profile of this network and these weights; its ranges are not compared",
        facts={"by": found.what, "known": found.known, "others": len(found.others)},
    )


def check_unknown(subject: Subject) -> Iterator[Finding]:
    """A profile that knows few of the results."""
    if subject.ranges is None:
        return
    recorded = Recorded(subject.ranges)
    stems: dict[str, bool] = defaultdict(bool)
    for op, _ in quantized_results(subject):
        name = op.instruction.name
        stems[strip_numeric_suffix(name)] |= recorded.find(name) is not None
    known = sum(stems.values())
    if not stems or known * FEW >= len(stems):
        return
    yield Finding(
        UNKNOWN,
        "warning",
        f"the profile knows {known} of {len(stems)} quantized results",
        Place(subject.module.file),
        found=f"ranges of {', '.join(list(subject.ranges)[:3])}",
        expected=f"ranges of {', '.join(list(stems)[:3])}",
        hint="is it the profile of another network?",
        facts={"known": known, "results": len(stems)},
    )
