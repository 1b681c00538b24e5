"""Small programs for tests of one property, and functions that compile and run them."""

from __future__ import annotations

import attrs
import numpy as np
from lir_draft import Draft, Ref, int8, random_values
from program_writer import Program

from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.config import DeviceConfig, default_device
from nmpsim.lir.nodes import TensorType

SMALL = attrs.evolve(default_device(), cores_count=4, scratchpad_bytes=16384)
WINDOW = {
    "Kernels": (3, 3),
    "Strides": (1, 1),
    "Pads": (1, 1, 1, 1),
    "Dilation": (1, 1),
}


def program(draft: Draft, seed: int = 0) -> Program:
    """Return the module of a draft as a program with random inputs."""
    rng = np.random.default_rng(seed)
    inputs = {name: random_values(rng, kind) for name, kind in draft.inputs.items()}
    return Program(draft.module(), inputs)


def compile_draft(
    draft: Draft, config: DeviceConfig = SMALL, fuse: bool = True, tiling: str = "layer"
) -> Bundle:
    module = draft.module()
    return parse_bundle(compile_module(module, config, fuse_activations=fuse, tiling=tiling))


def image(draft: Draft, channels: int = 8, elem: str = "i8") -> Ref:
    """Add an input image of 6 by 5 pixels."""
    kind = int8((1, 6, 5, channels), 0.05, 3)
    return draft.input(attrs.evolve(kind, elem=elem))


def convolve(
    draft: Draft,
    source: Ref,
    target: Ref,
    bias_elem: str = "i32",
    activation: str = "NONE",
    arguments: tuple[float, ...] = (),
    opcode: str = "convolution",
    group: int = 1,
) -> Ref:
    """Add a 3x3 convolution with weights from a fixed seed."""
    rng = np.random.default_rng(1)
    channels = target.shape[3]
    filter_kind = int8((channels, 3, 3, source.shape[3] // group), 0.02, 1)
    filter_ = draft.constant(random_values(rng, filter_kind), "i8", 0.02, 1)
    values = rng.integers(-100, 100, channels)
    dtype = {"i8": np.int8, "i16": np.int16, "i32": np.int32}[bias_elem]
    bias = draft.constant(values.astype(dtype), bias_elem, 0.001, 0)
    return draft.emit(
        opcode,
        target,
        source,
        filter_,
        bias,
        **WINDOW,
        Group=group,
        FusedActivation=activation,
        FusedActivationArgs=arguments,
    )


def out_kind(source: Ref, channels: int = 8, scale: float = 0.1, offset: int = -4) -> TensorType:
    return int8((*source.shape[:3], channels), scale, offset)
