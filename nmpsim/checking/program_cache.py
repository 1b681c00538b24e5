"""Cache of the last program on its device, for the next case of the same program."""

from __future__ import annotations

from functools import cached_property

import attrs

from nmpsim.bundle import Bundle
from nmpsim.checking.run import digest_constants
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
        """Digests of each layer's constants."""
        return digest_constants(self.bundle)


@attrs.frozen
class _Key:
    """Properties that cases must share to use the same device."""

    digest: str
    path: str
    """Path of the bundle, which errors name."""
    config: DeviceConfig
    limits: Limits
    """Limits of the runs, which affect what a device caches."""
    strict: bool
    max_memory: int | None


class ProgramCache:
    """Cache of one program; its memory is freed before another one is loaded."""

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
        """Return a program on a single-threaded device, reusing the cached one if possible."""
        key = _Key(bundle.digest, bundle.path, config, limits, strict, max_memory)
        if self._loaded is None or key != self._key:
            self._key = self._loaded = None
            device = Device(config, threads=1, max_memory=max_memory)
            self._key, self._loaded = key, LoadedProgram(bundle, device)
        return self._loaded
