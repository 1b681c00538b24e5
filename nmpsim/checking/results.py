"""Results of checks, and their JSON document; docs/check.md describes each field."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, TypeAlias, TypedDict

import attrs

from nmpsim.diagnostics import (
    EXIT_OK,
    EXIT_OVER_BUDGET,
    EXIT_USER,
    EXIT_WORSE,
    Diagnostic,
)
from nmpsim.experiments.identity import get_code_version
from nmpsim.report.data import Saturation
from nmpsim.report.fields import AT_END, NOT_IN_JSON, JsonKey, WrittenBefore
from nmpsim.report.json import to_json

Status: TypeAlias = Literal["passed", "wrong", "over"]
"""Status of a check; ``over`` means that the outputs are right but cost more than allowed."""


@attrs.frozen
class FailedLayer:
    """Layer for which a check failed, and the reason of the failure."""

    index: int
    name: str
    display_name: Annotated[str, NOT_IN_JSON]
    line: Annotated[int, "in the LIR text; 0 if unknown"]
    message: str

    @property
    def place(self) -> str:
        """Text with index, name and line of the layer, such as ``layer 3 conv1, line 25``."""
        text = f"layer {self.index} {self.display_name}"
        return f"{text}, line {self.line}" if self.line else text


@attrs.frozen
class CheckResult:
    """Result of one check of a run."""

    name: Annotated[
        str,
        "trap, exit, outputs, layers, top1, cycles, saturation, memory, energy, area or hazards",
    ]
    status: Status
    message: Annotated[str, "what was found; of a failed check it names the layer"]
    culprits: Annotated[
        tuple[FailedLayer, ...], "worst first; of outputs and layers in program order"
    ] = ()

    @property
    def failed(self) -> bool:
        """Whether the check did not pass."""
        return self.status != "passed"


@attrs.frozen
class LayerOutcome:
    """Outcome of a checked run for one layer, compared with the baseline if there is one."""

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
    """Saturation that the network does not ask for."""

    @property
    def change(
        self,
    ) -> Annotated[
        Literal["regressed", "improved", "unchanged", "unknown"],
        "regressed if it has moved to the host; else by its cycles, then by what saturated;"
        " unknown without a baseline",
        AT_END,
    ]:
        """Change from the baseline, judged by placement, cycles and saturation."""
        if self.cycles_before is None or self.saturated_before is None:
            return "unknown"
        if self.has_moved_to_host:
            return "regressed"
        now, before = (self.cycles, self.saturated), (self.cycles_before, self.saturated_before)
        if now == before:
            return "unchanged"
        worse = self.cycles > self.cycles_before or self.saturated > self.saturated_before
        return "regressed" if worse else "improved"

    @property
    def has_moved_to_host(self) -> bool:
        """Whether the layer ran on the device in the baseline and runs on the host now."""
        return (self.placement_before, self.placement) == ("device", "host")

    @property
    def differs_from_baseline(self) -> bool:
        """Whether output, constants or rescale values differ from the baseline."""
        return bool(self.output_changed or self.constants_changed or self.rescale_changed)

    @property
    def added_cycles(self) -> int:
        """Increase of cycles over the baseline, or 0 without a baseline."""
        return self.cycles - (self.cycles if self.cycles_before is None else self.cycles_before)


@attrs.frozen
class CoreFile:
    """Core file of a failed case, for ``nmpsim debug``."""

    path: str
    position: Annotated[str, "where in the run, as `after layer conv1`"]

    @property
    def command(self) -> str:
        """Command that opens the core file in the debugger."""
        return f"nmpsim debug {shlex.quote(self.path)}"


@attrs.frozen
class CaseResult:
    """Result of checking a case: errors, checks, and layers compared with the baseline."""

    name: str
    source: Annotated[str, "the LIR text"]
    contract: Annotated[str, "as in the report of the run: its contract's status"] = "not_checked"
    cycles: int = 0
    cycles_before: Annotated[int | None, "null without a baseline"] = None
    device_changes: Annotated[
        tuple[str, ...], "settings that are not what they were in the baseline"
    ] = ()
    baseline_version: Annotated[str | None, "the nmpsim that made the baseline, if another one"] = (
        None
    )
    baseline_written: bool = False
    core: Annotated[CoreFile | None, "of a failed case, where one was asked for"] = None
    errors: Annotated[tuple[Diagnostic, ...], NOT_IN_JSON] = ()
    """Errors because of which the case could not be checked."""
    checks: tuple[CheckResult, ...] = ()
    layers: tuple[LayerOutcome, ...] = ()
    seconds: Annotated[float, NOT_IN_JSON] = 0.0
    """Duration of the check in seconds."""

    @property
    def error_texts(
        self,
    ) -> Annotated[
        list[str], "why it could not be checked", JsonKey("errors"), WrittenBefore("checks")
    ]:
        """Messages of the errors that prevented the check."""
        return [str(error) for error in self.errors]

    @property
    def failed_checks(self) -> tuple[CheckResult, ...]:
        """Checks of the case that failed."""
        return tuple(check for check in self.checks if check.failed)

    @property
    def version_note(self) -> str | None:
        """Note that the baseline's nmpsim version is not this version, or None if it is."""
        if self.baseline_version is None:
            return None
        text = f"the baseline was made by nmpsim {self.baseline_version}, not by this version"
        if self.failed_checks or self.errors:
            text += "; to find the cause of the change, check the same bundle with that version"
        return text

    @property
    def status(
        self,
    ) -> Annotated[Literal["passed", "wrong", "over", "error"], WrittenBefore("source")]:
        """Worst status of the case: ``error``, ``wrong``, ``over`` or ``passed``."""
        if self.errors:
            return "error"
        found = {check.status for check in self.checks}
        return "wrong" if "wrong" in found else "over" if "over" in found else "passed"


def get_exit_code(results: Iterable[CaseResult]) -> int:
    """Return the exit code of ``nmpsim check`` for the results of all cases."""
    found = {result.status for result in results}
    codes = (("error", EXIT_USER), ("wrong", EXIT_WORSE), ("over", EXIT_OVER_BUDGET))
    return next((code for status, code in codes if status in found), EXIT_OK)


class CheckDocument(TypedDict):
    """JSON document of ``nmpsim check --format json``."""

    schema: Literal["nmpsim-check-6"]
    nmpsim: Annotated[str, "version, and a digest of the sources"]
    exit_code: int
    cases: list[CaseResult]


def make_check_document(results: Sequence[CaseResult]) -> CheckDocument:
    """Return the results of all cases as a JSON document."""
    version, code = get_code_version(), get_exit_code(results)
    return to_json({"nmpsim": version, "exit_code": code, "cases": results}, CheckDocument)
