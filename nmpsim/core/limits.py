"""What a run may take at most, whatever the bundle says of itself."""

from __future__ import annotations

import math
from typing import Any

import attrs

from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import Diagnostic, UserError, fail
from nmpsim.records import frozen

MAX_CYCLES = 1 << 62
"""As many as a device file may allow."""


@frozen
class Limits:
    """Limits of a run; raises ``UserError`` (ARG001) for what is none."""

    max_cycles: int | None = attrs.field(default=None)
    """Cycles of the device; those that the device's settings allow if None."""
    timeout: float | None = attrs.field(default=None)
    """Seconds of simulation, without those for compiling kernels; any number if None."""

    @max_cycles.validator
    def _check_cycles(self, _: object, value: object) -> None:
        if value is not None and (type(value) is not int or not 1 <= value <= MAX_CYCLES):
            expected = f"a whole number from 1 to {MAX_CYCLES}"
            raise fail("ARG001", "this is no limit of cycles", found=value, expected=expected)

    @timeout.validator
    def _check_timeout(self, _: object, value: Any) -> None:
        if value is not None and (type(value) not in (int, float) or not 0 < value < math.inf):
            raise fail("ARG001", "this is no limit of time", found=value, expected="seconds")

    def of_device(self, config: DeviceConfig) -> DeviceConfig:
        """A device with this limit of cycles."""
        if self.max_cycles is None:
            return config
        return attrs.evolve(config, limits_cycles=self.max_cycles)


NO_LIMITS = Limits()


class TimeLimitError(UserError):
    """LIMIT002: what belongs to a run takes longer than it may."""


class TimeBudget:
    """The seconds of simulation that all runs of a command have together."""

    def __init__(
        self, limits: Limits, spent: float = 0.0, subject: str = "the run and what was asked of it"
    ) -> None:
        """``spent``: seconds that are gone already; ``subject``: what is said to be late."""
        self._limits = limits
        self._spent = spent
        self._subject = subject

    def check(self, seconds: float = 0.0) -> None:
        """Raises :class:`TimeLimitError` if no time would be left after this many seconds more."""
        timeout = self._limits.timeout
        if timeout is not None and self._spent + seconds > timeout:
            raise self._late(timeout)

    def spend(self, seconds: float) -> None:
        """This many seconds have passed."""
        self._spent += seconds

    def left(self) -> Limits:
        """Limits of one run more; raises :class:`TimeLimitError` if no time is left for it."""
        timeout = self._limits.timeout
        if timeout is None:
            return self._limits
        if self._spent >= timeout:
            raise self._late(timeout)
        return attrs.evolve(self._limits, timeout=timeout - self._spent)

    def _late(self, timeout: float) -> TimeLimitError:
        message = f"{self._subject} took longer than {timeout:g} s"
        hint = "give it a longer --timeout"
        return TimeLimitError([Diagnostic("LIMIT002", message, hint=hint)])
