"""Runs with the digests that checks and baselines need, and a cache of the last program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from nmpsim.arrays import Array, Arrays
from nmpsim.bundle import Bundle
from nmpsim.bundle.layout import DEBUG_SECTIONS
from nmpsim.checking.rescale import DescriptorRecorder, digest_rescale_values
from nmpsim.config import DeviceConfig
from nmpsim.core.limits import NO_LIMITS, Limits
from nmpsim.core.run import ProgressCallback, make_layer_key
from nmpsim.experiments.identity import compute_array_digest
from nmpsim.interpreter import locate_tensors, view_tensor
from nmpsim.report.data import LayerReport, RunReport
from nmpsim.session import Device


@attrs.frozen(eq=False)
class CheckedRun:
    """Run with its report and layer outputs, and digests of the bundle, inputs and constants."""

    report: RunReport
    bundle: str
    """Digest of the bundle."""
    inputs: str
    """Digest of the inputs as they were passed."""
    source: str
    """Name of the LIR text."""
    memory_bytes: int
    """Bytes of DRAM for code, constants and activations."""
    layer_outputs: tuple[Array | None, ...]
    """Output of each layer by index; None for a layer that the run did not reach."""
    constants: tuple[str, ...]
    """Digest of each layer's constants by index; see :func:`digest_constants`."""
    rescale: tuple[str, ...]
    """Digest of each layer's rescale values by index; see :func:`digest_rescale_values`."""
    output_layers: Mapping[str, int]
    """Output of the program -> index of the layer that writes it."""

    @property
    def outputs(self) -> Arrays:
        """Outputs of the program in their logical shapes."""
        return self.report.outputs

    @property
    def cycles(self) -> int:
        """Cycles of the whole run."""
        return self.report.cycles

    @property
    def layers(self) -> Sequence[LayerReport]:
        """Reports of all layers."""
        return self.report.layers

    def get_output_digest(self, layer: LayerReport) -> str:
        """Return the digest of a layer's output, or "" if the run did not reach the layer."""
        output = self.layer_outputs[layer.index]
        return "" if output is None else digest_output(output)


@attrs.frozen(eq=False)
class LoadedProgram:
    """Loaded program: a bundle, and the device that runs it."""

    bundle: Bundle
    device: Device

    @cached_property
    def constants(self) -> tuple[str, ...]:
        """Digest of each layer's constants, in layer order."""
        return digest_constants(self.bundle)

    def run(
        self,
        inputs: Arrays,
        progress: ProgressCallback | None = None,
        limits: Limits = NO_LIMITS,
        strict: bool = True,
    ) -> CheckedRun:
        """Run the program; return the run with the digests that checks compare.

        Parameters
        ----------
        inputs
            Inputs of the program.
        progress
            Called after every layer.
        limits
            Limits of the run.
        strict
            Whether violations of the contract stop the run.

        Raises
        ------
        UserError
            INPUT001, INPUT002 or BUN004; BUN005 for chains without a module.
        """
        bundle, used = self.bundle, DescriptorRecorder()
        report = self.device.run(
            bundle,
            inputs,
            save_layers=True,
            progress=progress,
            work=used,
            limits=limits,
            strict=strict,
        )
        saved = report.layer_outputs
        return CheckedRun(
            attrs.evolve(report, layer_outputs={}),
            bundle.digest,
            compute_array_digest(inputs),
            bundle.metadata.source,
            int(bundle.image.size) + bundle.rw_bytes,
            tuple(saved.get(make_layer_key(layer)) for layer in bundle.metadata.layers),
            self.constants,
            digest_rescale_values(bundle, used.get_rows()),
            {layer.operand: layer.index for layer in bundle.metadata.layers},
        )


def digest_constants(bundle: Bundle) -> tuple[str, ...]:
    """Return the digest of each layer's constants, regardless of the constants' names.

    Empty for a layer without constants, and for all layers if the bundle carries no LIR.
    """
    layers = bundle.metadata.layers
    if any(name not in bundle.debug for name in DEBUG_SECTIONS):
        return ("",) * len(layers)
    module = bundle.module()
    places, held = locate_tensors(module), module.constants
    instructions = {one.name: one for one in module.instructions}
    digests = []
    for layer in layers:
        names = [name for name in dict.fromkeys((*layer.fused, layer.name)) if name in instructions]
        operands = [places[one.name] for name in names for one in instructions[name].operands]
        arrays = [
            view_tensor(held[place.storage], place) for place in operands if place.storage in held
        ]
        named = {str(number): array for number, array in enumerate(arrays)}
        digests.append(compute_array_digest(named) if named else "")
    return tuple(digests)


def digest_output(values: Array) -> str:
    """Return the digest of an output's values."""
    return compute_array_digest({"": values})


def list_changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the settings that differ between two devices, as ``setting OLD -> NEW``."""
    return tuple(
        f"{key} {before.get(key)} -> {now.get(key)}"
        for key in sorted({*before, *now} - {"name"})
        if before.get(key) != now.get(key)
    )


class ProgramCache:
    """Cache of the program and device that were loaded last."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] | None = None
        self._loaded: LoadedProgram | None = None

    def load(
        self,
        bundle: Bundle,
        config: DeviceConfig,
        limits: Limits,
        strict: bool,
        max_memory: int | None,
    ) -> LoadedProgram:
        """Return a program with a single-threaded device, from the cache if possible."""
        # Errors name the path, and limits affect what a device caches.
        key = (bundle.digest, bundle.path, config, limits, strict, max_memory)
        if self._loaded is None or key != self._key:
            self._key = self._loaded = None
            device = Device(config, threads=1, max_memory=max_memory)
            self._key, self._loaded = key, LoadedProgram(bundle, device)
        return self._loaded
