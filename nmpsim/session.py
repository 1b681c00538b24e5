"""What a user imports: compile, load, run, look into the errors of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.analysis.shadow import ShadowEvaluation
from nmpsim.bundle import Bundle, read_bundle, write_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.config import DeviceConfig, default_device, from_settings
from nmpsim.core.device import Device, Progress
from nmpsim.core.inputs import checked_inputs
from nmpsim.diagnostics import fail
from nmpsim.lir import attach_constants, default_tensors_file, parse_file, verify
from nmpsim.report.data import RunReport

__all__ = ["Compiled", "Device", "Progress", "Shadow", "compile", "device_of", "load", "save"]


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


class Shadow:
    """A second, exact evaluation of a program, for any number of its runs."""

    def __init__(self, bundle: Bundle, float_weights: Path | str | None = None) -> None:
        """Read what it needs.

        Args:
            bundle: the program; it must carry its LIR.
            float_weights: ``.npz`` with the float values of constants by their names in the LIR,
                or an ONNX model; without it only rounding and saturation can be told.

        Raises:
            UserError: BUN005 if the bundle has no LIR; FILE001, CONST001, CONST003 or PKG001 for
                the float weights.
        """
        path = None if float_weights is None else Path(float_weights)
        self._bundle = bundle
        self._evaluation = ShadowEvaluation.of(bundle.module(), path)

    def beside(self, report: RunReport, inputs: Mapping[str, npt.NDArray[Any]]) -> RunReport:
        """The report of a run with where each layer's error comes from (``report.shadow``).

        Args:
            report: a run of the bundle with ``save_layers=True``.
            inputs: what that run was given.

        Raises:
            UserError: ARG001 if the report has no layer outputs.
        """
        if report.layers and not report.layer_outputs and report.trap is None:
            message = "the run has kept no layer outputs"
            raise fail("ARG001", message, hint="device.run(bundle, inputs, save_layers=True)")
        stored = checked_inputs(self._bundle.metadata.inputs, inputs)
        return attrs.evolve(report, shadow=self._evaluation.beside(report, stored, inputs))
