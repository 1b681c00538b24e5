"""The program of the last case on its device, for the next case of the same program."""

from __future__ import annotations

from functools import cached_property

import attrs

from nmpsim.bundle import Bundle
from nmpsim.checking.run import constants_of
from nmpsim.config import DeviceConfig
from nmpsim.core.device import Device
from nmpsim.core.limits import Limits


@attrs.frozen(eq=False)
class LoadedProgram:
    """A program on a device that may have run it before."""

    bundle: Bundle
    device: Device

    @cached_property
    def constants(self) -> tuple[str, ...]:
        """See :func:`nmpsim.checking.run.constants_of`."""
        return constants_of(self.bundle)


@attrs.frozen
class _Key:
    """What cases have in common that may share a device."""

    digest: str
    path: str
    """Of the bundle, which errors name."""
    config: DeviceConfig
    limits: Limits
    """What a device knows of a program it has learned in runs that had these."""
    strict: bool
    max_memory: int | None


class LastProgram:
    """Keeps one program; before another one is loaded, its memory is free."""

    def __init__(self) -> None:
        self._key: _Key | None = None
        self._loaded: LoadedProgram | None = None

    def load(
        self,
        bundle: Bundle,
        config: DeviceConfig,
        limits: Limits,
        strict: bool,
        max_memory: int | None,
    ) -> LoadedProgram:
        """A program on a device, on one thread: cases are shared by processes."""
        key = _Key(bundle.digest, bundle.path, config, limits, strict, max_memory)
        if self._loaded is None or key != self._key:
            self._key = self._loaded = None
            device = Device(config, threads=1, max_memory=max_memory)
            self._key, self._loaded = key, LoadedProgram(bundle, device)
        return self._loaded
