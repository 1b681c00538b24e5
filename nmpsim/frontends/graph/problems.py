"""Collection of operators that cannot be compiled, which are reported in one error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nmpsim.diagnostics import MAX_ERRORS, Diagnostic, Place, UserError
from nmpsim.frontends.imported_model import NotConstantError, UnsupportedError

INVALID_NODE_ERRORS = (
    IndexError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
)
"""Exceptions that invalid attributes or inputs of a node cause."""


class LoweringError(UserError):
    """Exception for a graph with operators that cannot be compiled."""

    unknown: frozenset[str] = frozenset()
    """Tensors whose values would have to be known; empty if no values would help."""


class UnsupportedOperators:
    """Unsupported operators of a graph, collected with a reason for each."""

    def __init__(
        self, place: Place, hint: Callable[[str], str | None], noun: str = "operator"
    ) -> None:
        self._place = place
        self._hint = hint
        self._noun = noun
        self._diagnostics: dict[int, Diagnostic] = {}
        self._unknown: set[str] = set()
        self._is_certain = False

    def add_error(self, index: int, label: str, error: Exception) -> None:
        """Add the error of an operator, unless the operator already has an error."""
        found, expected = str(error), getattr(error, "expected", None)
        if not isinstance(error, UnsupportedError):
            found = f"{type(error).__name__}: {error}"
            expected = f"valid inputs and attributes of the {self._noun}"
        message, hint = f"{self._noun} {label} cannot be compiled", self._hint(found)
        problem = Diagnostic(
            "MODEL002", message, self._place, found=found[:240], expected=expected, hint=hint
        )
        self._diagnostics.setdefault(index, problem)
        if isinstance(error, NotConstantError) and error.name:
            self._unknown.add(error.name)
        else:
            self._is_certain = True

    @contextmanager
    def collect_errors(self, index: int, label: str) -> Iterator[None]:
        """Record the error that a ``with`` block raises for an unsupported or invalid operator."""
        try:
            yield
        except (UnsupportedError, *INVALID_NODE_ERRORS) as error:
            self.add_error(index, label, error)

    def raise_errors(self, limit: int = MAX_ERRORS) -> None:
        """Raise LoweringError with the first ``limit`` problems if there are any."""
        if self._diagnostics:
            ordered = [self._diagnostics[index] for index in sorted(self._diagnostics)]
            error = LoweringError(ordered[:limit])
            error.unknown = frozenset() if self._is_certain else frozenset(self._unknown)
            raise error
