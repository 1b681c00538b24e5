"""Limits of a run: cycles, seconds and host threads."""

from __future__ import annotations

import math
import os
from typing import Any

import attrs

from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import Diagnostic, UserError, fail
from nmpsim.records import frozen

MAX_CYCLES = 1 << 62
"""Largest limit of cycles, as in device files."""


@frozen
class Limits:
    """Limits of a run in cycles and seconds."""

    max_cycles: int | None = attrs.field(default=None)
    """Cycles of the device; the limit of the device's settings if None."""
    timeout: float | None = attrs.field(default=None)
    """Seconds of simulation, excluding the compilation of kernels; unlimited if None."""

    @max_cycles.validator
    def _check_cycles(self, _: object, value: object) -> None:
        if value is not None and (type(value) is not int or not 1 <= value <= MAX_CYCLES):
            found, expected = f"max_cycles={value!r}", f"1 to {MAX_CYCLES} cycles"
            raise fail("ARG001", "the cycle limit is invalid", found=found, expected=expected)

    @timeout.validator
    def _check_timeout(self, _: object, value: Any) -> None:
        if value is not None and (type(value) not in (int, float) or not 0 < value < math.inf):
            raise fail(
                "ARG001",
                "the time limit is invalid",
                found=f"timeout={value!r}",
                expected="a finite number of seconds above 0",
            )

    def apply_to_device(self, config: DeviceConfig) -> DeviceConfig:
        """Return a device's settings with the cycle limit applied, or unchanged without a limit."""
        if self.max_cycles is None:
            return config
        return attrs.evolve(config, limits_cycles=self.max_cycles)


NO_LIMITS = Limits()


class TimeLimitError(UserError):
    """Exception raised if a command exceeds its time limit (LIMIT002)."""


class TimeBudget:
    """Budget of simulation time that all runs of a command share."""

    def __init__(
        self, limits: Limits, spent: float = 0.0, subject: str = "the run and what was asked of it"
    ) -> None:
        """Begin with ``spent`` seconds used; ``subject`` is the subject of the error message."""
        self._limits = limits
        self._spent = spent
        self._subject = subject

    def check(self, seconds: float = 0.0) -> None:
        """Raise TimeLimitError if ``seconds`` more seconds of simulation would exceed the limit."""
        timeout = self._limits.timeout
        if timeout is not None and self._spent + seconds > timeout:
            raise self._late(timeout)

    def spend(self, seconds: float) -> None:
        """Add ``seconds`` to the simulation time that has been spent."""
        self._spent += seconds

    def get_remaining_limits(self) -> Limits:
        """Return the limits for the next run; raise TimeLimitError if no time is left."""
        timeout = self._limits.timeout
        if timeout is None:
            return self._limits
        if self._spent >= timeout:
            raise self._late(timeout)
        return attrs.evolve(self._limits, timeout=timeout - self._spent)

    def _late(self, timeout: float) -> TimeLimitError:
        message = f"{self._subject} took longer than {timeout:g} s"
        hint = "Pass a longer --timeout."
        return TimeLimitError([Diagnostic("LIMIT002", message, hint=hint)])


def count_available_processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolve_thread_count(threads: int | None) -> int:
    """Return ``threads``, by default the number of processors; raise UserError if less than 1."""
    if threads is None:
        return count_available_processors()
    if threads < 1:
        raise fail(
            "ARG001",
            "the number of threads is invalid",
            found=f"threads={threads}",
            expected="1 or more",
        )
    return threads
