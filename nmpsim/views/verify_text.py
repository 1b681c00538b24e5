"""Verifications as text: the verdict of each input, and a table of the layers that differ."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console

from nmpsim.analysis.difference import OutputDifference
from nmpsim.diagnostics import format_count, join_first
from nmpsim.lir.names import map_display_names
from nmpsim.verification import (
    OutputChange,
    SampleVerification,
    Verification,
    VerifiedLayer,
)
from nmpsim.views.console import print_heading, print_line, print_more, print_table
from nmpsim.views.measures import TableColumn, make_columns
from nmpsim.views.text import format_real

MAX_NAMES = 8
"""Names of layers that are listed in one line."""
MAX_ROWS = 40
"""Rows of a table that are shown without ``--all``."""


def print_verification(
    verification: Verification, console: Console, *, show_all: bool = False
) -> None:
    """Print the verdict of each input that differs, and the layers of the first such input."""
    samples, differing = verification.samples, verification.differing
    shown = make_layer_names(verification)
    for line in describe_verification(verification):
        print_line(console, line)
    if len(samples) > 1:
        for sample in differing if show_all else differing[:MAX_ROWS]:
            print_line(console, f"{sample.input}: {_summarize(sample, shown)}")
        if not show_all and len(differing) > MAX_ROWS:
            print_line(console, f"and {len(differing) - MAX_ROWS:,} more; --all shows them")
        if not differing:
            return
        print_heading(console, differing[0].input)
    chosen = (differing or samples)[0]
    verdict, *facts = describe_sample(chosen, verification.runtime, shown)
    print_line(console, verdict, "bold")
    for fact in facts:
        print_line(console, f"  {fact}")
    rows = chosen.compared if show_all else chosen.differing
    if rows:
        console.print()
        columns = make_verification_columns(shown)
        print_table(console, rows if show_all else rows[:MAX_ROWS], *columns)
        if not show_all:
            print_more(console, len(rows) - MAX_ROWS, "; --all shows them")


def make_layer_names(verification: Verification) -> Mapping[str, str]:
    """Return the display name of each layer by its full name."""
    return map_display_names(one.name for one in verification.samples[0].layers)


def describe_verification(verification: Verification) -> list[str]:
    """Return lines with the runtime, the compared layers and the number of equal inputs."""
    samples, differing = verification.samples, verification.differing
    lines = [
        f"{verification.runtime}: {verification.reference}",
        _describe_coverage(samples[0], make_layer_names(verification)),
    ]
    if len(samples) > 1:
        equal = f"{len(samples) - len(differing):,} of {len(samples):,} inputs equal to the bit"
        lines.append(f"{equal}, {len(differing):,} different")
    return lines


def describe_sample(
    sample: SampleVerification, runtime: str, shown: Mapping[str, str]
) -> list[str]:
    """Return the verdict of an input, and lines with the differences and their likely causes."""
    if sample.trap:
        return [f"the run did not complete: {sample.trap}"]
    lines = [_judge_sample(sample, shown)]
    wrong = sample.first_wrong
    if wrong is not None and wrong.isolated is not None:
        lines.append(_describe_difference(wrong.isolated))
    if not sample.is_equal:
        lines += [_describe_output(one, len(sample.outputs) > 1) for one in sample.outputs]
    lines += [f"likely cause: {cause}" for cause in sample.causes]
    name = runtime.partition(",")[0]
    for variant in sample.variants:
        if variant.differs:
            changes = [one for one in variant.outputs if not one.difference.equal]
            moved = "; ".join(_describe_output(one, len(variant.outputs) > 1) for one in changes)
            equal = "; the program is equal to it" if variant.equals_program else ""
            lines.append(f"note: {name} with {variant.settings} gives another {moved}{equal}")
    return lines


def make_verification_columns(shown: Mapping[str, str]) -> list[TableColumn]:
    """Make the columns of the layer table; ``shown`` has the display names by full name."""
    return make_columns(
        "verify_layers", layer=lambda one: shown[one.name], at=_format_place, verdict=_judge
    )


def _format_place(layer: VerifiedLayer) -> str | None:
    worst = None if layer.difference is None else layer.difference.worst
    return None if worst is None else ", ".join(map(str, worst.at))


def _summarize(sample: SampleVerification, shown: Mapping[str, str]) -> str:
    """Return the verdict of an input in one line."""
    if sample.trap:
        return f"the run did not complete: {sample.trap}"
    moved = [_describe_output(one, len(sample.outputs) > 1) for one in sample.outputs]
    return "; ".join([_judge_sample(sample, shown), *moved])


def _judge_sample(sample: SampleVerification, shown: Mapping[str, str]) -> str:
    """Return the first wrong layer as text, or that no layer is wrong."""
    wrong = sample.first_wrong
    if wrong is not None:
        return f"first layer wrong by itself: {shown[wrong.name]}"
    if sample.is_equal:
        return "all equal to the bit"
    if not sample.differing:
        return "all compared layers are equal, but an output differs"
    first = shown[sample.differing[0].name]
    return f"no layer is wrong by itself; the first layer that differs is {first}"


def _describe_coverage(sample: SampleVerification, shown: Mapping[str, str]) -> str:
    missing = [one for one in sample.layers if one.difference is None]
    text = f"{len(sample.compared):,} of {format_count(len(sample.layers), 'layer')} compared"
    for problem in dict.fromkeys(one.problem for one in missing):
        names = [shown[one.name] for one in missing if one.problem == problem]
        text += f"; {problem}: {join_first(names, MAX_NAMES)}"
    return text


def _judge(layer: VerifiedLayer) -> str:
    if layer.difference is None:
        return layer.problem
    if layer.is_wrong:
        return "wrong by itself"
    if not layer.differs:
        return "equal"
    return "wrong inputs" if layer.isolated is not None else "unknown inputs"


def _describe_difference(found: OutputDifference) -> str:
    text = f"{found.beyond:,} of {format_count(found.elements, 'element')} differ"
    worst = found.worst
    if worst is None:
        return text
    at = ", ".join(map(str, worst.at))
    if isinstance(worst.actual, float):
        text += f", largest error {format_real(found.max_error or 0)}"
    else:
        text += f", at most {format_count(worst.ulp, 'unit')}"
    return f"{text}: {format_real(worst.actual)} at [{at}], not {format_real(worst.expected)}"


def _describe_output(output: OutputChange, is_named: bool) -> str:
    name = f"answer {output.name}" if is_named else "answer"
    if output.difference.equal:
        return f"{name}: unchanged"
    found = f"{name}: {_describe_difference(output.difference)}"
    if output.best is None:
        return found
    if output.has_other_best:
        return f"{found}; top-1 is {output.best}, not {output.reference_best}"
    return f"{found}; top-1 unchanged ({output.best})"
