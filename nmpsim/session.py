"""What a user imports: compile, load, run."""

from __future__ import annotations

from pathlib import Path

import attrs

from nmpsim.bundle import Bundle, read_bundle, write_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.config import DeviceConfig, default_device, from_settings
from nmpsim.core.device import Device, Progress
from nmpsim.lir import attach_constants, default_tensors_file, parse_file, verify

__all__ = ["Compiled", "Device", "Progress", "compile", "device_of", "load", "save"]


@attrs.frozen
class Compiled:
    """A bundle in memory."""

    image: bytes
    """The bundle file's bytes."""
    warnings: tuple[str, ...]


def compile(
    lir: Path | str,
    weights: Path | str | None = None,
    tensors: Path | str | None = None,
    *,
    device: DeviceConfig | None = None,
    numerics: str = "glow-int",
    fuse: bool = True,
) -> Compiled:
    """Compile LIR text for a device.

    Args:
        lir: file of Glow's ``-dump-ir`` text.
        weights: ``.npz`` with the constants by their names in the LIR.
        tensors: JSON with exact scales; the file beside the LIR is taken if there is one.
        device: the default device if None.
        numerics: arithmetic profile.
        fuse: let activations become the clip of the operation before them.

    Raises:
        UserError: LIR, CONST, COMP and FILE codes, several at once where possible.
    """
    path = Path(lir)
    module = parse_file(path)
    exact = default_tensors_file(path) if tensors is None else Path(tensors)
    files = [] if weights is None else [Path(weights)]
    module, warnings = attach_constants(module, files, exact)
    verify(module)
    image = compile_module(
        module,
        default_device() if device is None else device,
        numerics=numerics,
        fuse_activations=fuse,
    )
    return Compiled(image, warnings)


def save(compiled: Compiled, path: Path | str) -> None:
    """Write the bundle; it appears whole or not at all."""
    write_bundle(path, compiled.image)


def device_of(bundle: Bundle) -> DeviceConfig:
    """The device that a bundle was compiled for."""
    return from_settings(bundle.metadata.device)


def load(path: Path | str) -> Bundle:
    """Read and check a bundle; its constants stay in the file until they are used."""
    return read_bundle(path)
