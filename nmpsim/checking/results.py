"""What checks found: frozen data that the views show."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias

import attrs

from nmpsim.diagnostics import (
    EXIT_OK,
    EXIT_OVER_BUDGET,
    EXIT_USER,
    EXIT_WORSE,
    Diagnostic,
)
from nmpsim.report.data import Saturation
from nmpsim.report.fields import AT_END, NOT_IN_JSON

Status: TypeAlias = Literal["passed", "wrong", "over"]
"""over: the answer is right, but it cost more than allowed."""


@attrs.frozen
class Culprit:
    """A layer that a check failed for, and what it did."""

    index: int
    name: str
    display_name: Annotated[str, NOT_IN_JSON]
    line: Annotated[int, "in the LIR text; 0 if unknown"]
    message: str

    @property
    def place(self) -> str:
        """``layer 3 conv1, line 25``"""
        text = f"layer {self.index} {self.display_name}"
        return f"{text}, line {self.line}" if self.line else text


@attrs.frozen
class Check:
    """One thing that was asked of a run."""

    name: Annotated[str, "trap, outputs, layers, top1, cycles, saturation, memory or hazards"]
    status: Status
    message: Annotated[str, "what was found; of a failed check it names the layer"]
    culprits: Annotated[
        tuple[Culprit, ...], "worst first; of outputs and layers in program order"
    ] = ()

    @property
    def failed(self) -> bool:
        """True unless it passed."""
        return self.status != "passed"


@attrs.frozen
class LayerOutcome:
    """A layer of the run, compared with the baseline where there is one."""

    index: int
    name: str
    display_name: Annotated[str, NOT_IN_JSON]
    op: str
    operation: Annotated[str, NOT_IN_JSON]
    line: int
    placement: Literal["device", "host"]
    placement_before: Literal["device", "host"] | None
    cycles: int
    cycles_before: int | None
    saturated: int
    saturated_before: int | None
    output_changed: Annotated[bool | None, "null without a baseline"]
    constants_changed: Annotated[bool | None, "null without a baseline"]
    rescale_changed: Annotated[bool | None, "null without a baseline"]
    saturation: Annotated[tuple[Saturation, ...], NOT_IN_JSON]
    """What saturated and should not."""

    @property
    def change(
        self,
    ) -> Annotated[
        Literal["regressed", "improved", "unchanged", "unknown"],
        "regressed if it has moved to the host; else by its cycles, then by what saturated;"
        " unknown without a baseline",
        AT_END,
    ]:
        """By where it runs, its cycles, then by what saturated; unknown without a baseline."""
        if self.cycles_before is None or self.saturated_before is None:
            return "unknown"
        if self.moved_to_host:
            return "regressed"
        now, before = (self.cycles, self.saturated), (self.cycles_before, self.saturated_before)
        if now == before:
            return "unchanged"
        worse = self.cycles > self.cycles_before or self.saturated > self.saturated_before
        return "regressed" if worse else "improved"

    @property
    def moved_to_host(self) -> bool:
        """True if it ran on the device in the baseline."""
        return (self.placement_before, self.placement) == ("device", "host")

    @property
    def computes_otherwise(self) -> bool:
        """True if output, constants or rescale are not the baseline's, whatever it costs."""
        return bool(self.output_changed or self.constants_changed or self.rescale_changed)

    @property
    def more_cycles(self) -> int:
        """Than in the baseline."""
        return self.cycles - (self.cycles if self.cycles_before is None else self.cycles_before)


@attrs.frozen
class CoreFile:
    """What `nmpsim debug` opens."""

    path: str
    stands: Annotated[str, "where in the run, as `after layer conv1`"]

    @property
    def command(self) -> str:
        """What opens it."""
        return f"nmpsim debug {shlex.quote(self.path)}"


@attrs.frozen
class CaseResult:
    """What became of a case."""

    name: str
    source: str
    """The LIR text, for places."""
    checks: tuple[Check, ...] = ()
    layers: tuple[LayerOutcome, ...] = ()
    contract: str = "not_checked"
    """As in the report of the run: proved, checked, violated or not_checked."""
    cycles: int = 0
    cycles_before: int | None = None
    device_changes: tuple[str, ...] = ()
    """Settings that are not what they were in the baseline."""
    baseline_version: str | None = None
    """The nmpsim that made the baseline, if it was another one."""
    seconds: float = 0.0
    """What checking took here."""
    baseline_written: bool = False
    core: CoreFile | None = None
    """Of a failed case, where one was asked for."""
    errors: tuple[Diagnostic, ...] = ()
    """Why it could not be checked."""

    @property
    def failed(self) -> tuple[Check, ...]:
        """Checks that did not pass."""
        return tuple(check for check in self.checks if check.failed)

    @property
    def version_note(self) -> str | None:
        """That the baseline is another nmpsim's, and what that means for what failed."""
        if self.baseline_version is None:
            return None
        text = f"the baseline was made by nmpsim {self.baseline_version}, this is another one"
        if self.failed or self.errors:
            text += "; the version tells whose change it is: check the same bundle with that nmpsim"
        return text

    @property
    def status(self) -> Literal["passed", "wrong", "over", "error"]:
        """The worst that happened."""
        if self.errors:
            return "error"
        found = {check.status for check in self.checks}
        return "wrong" if "wrong" in found else "over" if "over" in found else "passed"


def exit_code(results: Iterable[CaseResult]) -> int:
    """What cannot be checked comes first, then wrong answers, then budgets."""
    found = {result.status for result in results}
    codes = (("error", EXIT_USER), ("wrong", EXIT_WORSE), ("over", EXIT_OVER_BUDGET))
    return next((code for status, code in codes if status in found), EXIT_OK)
