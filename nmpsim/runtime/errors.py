"""Errors of the runtime classes, which are also the exceptions that the other runtimes raise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from nmpsim.diagnostics import UserError, fail
from nmpsim.report.data import RunReport


class RuntimeInputError(UserError, ValueError):
    """Exception raised for a wrong argument; a ValueError, as the other runtimes raise."""


def refuse_argument(
    message: str, found: object, expected: str, hint: str | None = None
) -> NoReturn:
    """Raise a RuntimeInputError (INPUT001) for a wrong argument."""
    error = fail("INPUT001", message, found=str(found), expected=expected, hint=hint)
    raise RuntimeInputError(error.diagnostics)


@contextmanager
def errors_as_value_errors() -> Iterator[None]:
    """Convert errors of inputs (INPUT001, INPUT002) to RuntimeInputError."""
    try:
        yield
    except UserError as error:
        if all(one.code.startswith("INPUT") for one in error.diagnostics):
            raise RuntimeInputError(error.diagnostics) from error
        raise


def check_trap(report: RunReport) -> None:
    """Raise RuntimeError if a run ended in a trap."""
    if report.trap is not None:
        raise RuntimeError(f"the run ended in a trap: {report.trap}")
