"""Initial programs of the fuzzers: the project's own, and layers of reference networks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

import nmpsim
from nmpsim.analysis.reduce.extract import extract_layers
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.compiler.driver import compile_module
from nmpsim.config import DeviceConfig
from nmpsim.core.device import Device
from nmpsim.diagnostics import UserError

from .engines import make_inputs
from .target import ROOT

ASSEMBLY = sorted((ROOT / "programs" / "assembly").glob("*.s"))
DIGITS = ROOT / "programs" / "digits"
SHARED = Path(os.environ.get("NMPSIM_SHARED", ROOT.parent / "shared")) / "lir_real"
TARGETS = ("nmp", "cpumax", "cpu", "interp")
"""Targets of a network, in order of preference."""
CUT_BYTES = 1 << 15
"""Size limit of a layer's bundle, so that thousands of runs are possible."""


@cache
def small_device(cores: int = 2) -> DeviceConfig:
    """Return a device that is small enough for the reference engine."""
    return attrs.evolve(
        nmpsim.default_device(), cores_count=cores, scratchpad_bytes=32768, dram_bytes=1 << 30
    )


@cache
def assemble_example(name: str = "one_conv.s") -> bytes:
    """Assemble a program of ``programs/assembly`` into a bundle."""
    path = ROOT / "programs" / "assembly" / name
    device = attrs.evolve(nmpsim.default_device(), cores_count=4)
    return assemble(path.read_text(encoding="utf-8"), name, device.settings()).build_bundle()


@cache
def one_conv() -> tuple[Bundle, dict[str, npt.NDArray[Any]]]:
    """Return the smallest program with a layer, and its inputs."""
    bundle = parse_bundle(assemble_example(), "one_conv.bin")
    inputs = make_inputs(bundle.metadata)
    assert inputs is not None
    return bundle, inputs


def compile_digits() -> bytes:
    """Compile the digits network for the small device."""
    text, weights = DIGITS / "digits.lir.txt", DIGITS / "digits.npz"
    return nmpsim.compile(text, weights, device=small_device()).image


def real_layers(cut_for: DeviceConfig) -> Iterator[bytes]:
    """Yield layers of trained networks as programs; only the digits' without reference files."""
    yield from _layers(DIGITS / "digits.npz", cut_for)
    for folder in sorted(SHARED.glob("*/*/")):
        weights = [folder / f"{flavour}.npz" for flavour in TARGETS]
        yield from _layers(next(path for path in weights if path.is_file()), cut_for)


def _layers(weights: Path, cut_for: DeviceConfig) -> Iterator[bytes]:
    """Yield the layers of one network that are small enough, compiled for a device."""
    text = weights.with_name(f"{weights.stem}.lir.txt")
    compiled = nmpsim.compile(text, weights, device=small_device())
    bundle, device = compiled.bundle, Device(small_device(), threads=1)
    inputs = make_inputs(bundle.metadata)
    if inputs is None:
        return
    outputs = device.run(bundle, inputs, save_layers=True).layer_outputs
    given = {name: np.asarray(values) for name, values in inputs.items()}
    seen = set()
    for layer in bundle.metadata.layers:
        try:
            wanted = range(layer.index, layer.index + 1)
            part = extract_layers(bundle.module(), bundle.metadata.layers, wanted, given, outputs)
            image = bytes(compile_module(part.module, cut_for))
        except UserError:
            continue  # no program of its own
        name = hashlib.sha1(image).hexdigest()
        if len(image) <= CUT_BYTES and name not in seen:
            seen.add(name)
            yield image
