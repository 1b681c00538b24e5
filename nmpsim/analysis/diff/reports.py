"""Comparison of two reports: outputs, costs and saturation of each layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import attrs
import numpy as np

from nmpsim.analysis.diff.compare import QuantizationParameters, RunDifference, compare_runs
from nmpsim.analysis.difference import EXACT, Tolerance
from nmpsim.analysis.matching import KnownValues, StoredTensor
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.report.data import LayerReport, OutputReport, RunReport

Number = int | float
_LAYER_FACTS = (
    "op",
    "placement",
    "numerics",
    "elem",
    "shape",
    "scale",
    "offset",
    "cycles",
    "macs",
    "bytes_read",
    "bytes_written",
    "bursts",
    "row_misses",
)
"""Attributes of a layer that are compared, in this order; saturation follows."""


@attrs.frozen
class ReportChange:
    """Change of a fact between two reports: its values in both reports."""

    what: str
    first: str | Number | None
    second: str | Number | None


@attrs.frozen
class LayerChange:
    """Change of a layer between two reports: the facts that differ."""

    name: str
    display_name: str
    index: int
    """Index in the first report."""
    changes: tuple[ReportChange, ...]


@attrs.frozen
class ReportDifference:
    """Difference between two reports, without wall time and engine."""

    facts: tuple[ReportChange, ...]
    """Changed facts of the whole run: program, numerics, cycles, trap, device settings."""
    layers: tuple[LayerChange, ...]
    only_first: tuple[str, ...]
    """Names of layers that only the first report has."""
    only_second: tuple[str, ...]
    outputs: RunDifference | None
    """Comparison of outputs; None if the reports have no output in common."""

    @property
    def differs(self) -> bool:
        """Whether any compared fact or output differs."""
        return bool(
            self.facts
            or self.layers
            or self.only_first
            or self.only_second
            or self.outputs is None
            or self.outputs.differing
            or self.outputs.only_first
            or self.outputs.only_second
        )


def compare_reports(
    first: RunReport, second: RunReport, *, tolerance: Tolerance = EXACT
) -> ReportDifference:
    """Compare two reports layer by layer.

    Parameters
    ----------
    first
        The earlier report, or the reference.
    second
        The report to check.
    tolerance
        Differences of outputs up to which elements count as equal.
    """
    mine = {layer.name: layer for layer in first.layers}
    theirs = {layer.name: layer for layer in second.layers}
    return ReportDifference(
        facts=tuple(_changes(_facts(first), _facts(second))),
        layers=tuple(_layer_changes(mine, theirs)),
        only_first=tuple(name for name in mine if name not in theirs),
        only_second=tuple(name for name in theirs if name not in mine),
        outputs=_outputs(first, second, tolerance),
    )


def _layer_changes(
    mine: dict[str, LayerReport], theirs: dict[str, LayerReport]
) -> Iterator[LayerChange]:
    for name, layer in mine.items():
        if name not in theirs:
            continue
        changes = tuple(_changes(_layer_facts(layer), _layer_facts(theirs[name])))
        if changes:
            yield LayerChange(name, layer.display_name, layer.index, changes)


def _changes(
    first: dict[str, str | Number | None], second: dict[str, str | Number | None]
) -> Iterator[ReportChange]:
    for what in dict.fromkeys([*first, *second]):
        # A count that one report lacks is zero.
        one, other = first.get(what, 0), second.get(what, 0)
        if one != other:
            yield ReportChange(what, one, other)


def _facts(report: RunReport) -> dict[str, str | Number | None]:
    return {
        "program": report.program,
        "numerics": report.numerics,
        "cycles": report.cycles,
        "on the host": report.host.text,
        "trap": None if report.trap is None else report.trap.message,
        **{f"device {name}": value for name, value in report.device.items()},
    }


def _layer_facts(layer: LayerReport) -> dict[str, str | Number | None]:
    saturated: Counter[str] = Counter()
    for one in layer.saturation:
        saturated[f"saturated at {one.stage} {one.side}"] += one.count
    facts = {name.replace("_", " "): getattr(layer, name) for name in _LAYER_FACTS}
    return {**facts, "shape": "x".join(map(str, layer.shape)), **saturated}


def _outputs(first: RunReport, second: RunReport, tolerance: Tolerance) -> RunDifference | None:
    before = [_tensor(output) for output in first.output_reports]
    after = [_tensor(output) for output in second.output_reports]
    if not {one.name for one in before} & {one.name for one in after}:
        return None
    parameters = {
        output.name: QuantizationParameters(output.scale, output.offset or 0)
        for output in second.output_reports
        if output.scale is not None
    }
    return compare_runs(before, after, tolerance=tolerance, parameters=parameters)


def _tensor(output: OutputReport) -> StoredTensor:
    dtype = ELEM_DTYPES.get(output.elem, output.values.dtype)
    with np.errstate(over="ignore"):
        values = output.values.astype(dtype)
    return StoredTensor(output.name, None, True, None, lambda: KnownValues.from_array(values))
