"""Report of the check of pointers: wrong uses, and what the check cannot tell."""

from __future__ import annotations

from typing import Annotated

from nmpsim.diagnostics import Diagnostic, Place
from nmpsim.records import frozen
from nmpsim.report.fields import Count, Whole


@frozen
class PointerFinding:
    """Wrong use of a pointer, or use of an undefined value."""

    message: Annotated[str, "description"]
    file: Annotated[str | None, "source file, or null"]
    line: Annotated[Whole | None, "line in this file, or null"]
    core: Annotated[Count, "number of the core"]
    pc: Annotated[Count, "address of the instruction"]
    calls: Annotated[tuple[str, ...], "list of texts: the active calls, innermost first"]

    def make_diagnostic(self) -> Diagnostic:
        """Return the finding as an error message."""
        place = Place(f"{self.pc:#x}" if self.file is None else self.file, self.line)
        hint = f"Debug core {self.core} at {self.pc:#x}."
        if self.calls:
            hint = f"See the calls: {', '.join(self.calls)}."
        return Diagnostic("POINTER001", self.message, place, hint=hint)


@frozen
class PointerReport:
    """Report of the check of pointers in a run."""

    findings: Annotated[
        tuple[PointerFinding, ...], "list of [pointer_finding](#pointer_finding), at most 100"
    ]
    limits: Annotated[
        tuple[str, ...],
        "list of texts: checks that the compiler's flags make incomplete",
    ]
