"""Compile programs with a tiling mode, and read the search's explanation."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from program_writer import Program

from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.compiler.tiling.search import TiledLayer
from nmpsim.config import DeviceConfig
from nmpsim.lir.constants import attach_constants, find_tensors_file
from nmpsim.lir.parser import parse_file
from nmpsim.lir.verify import verify

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
FEW: list[dict[str, int]] = [
    {"queues_depth": 1, "cores_count": 5},
    {"dram_bytes_per_cycle": 3, "dram_row_bytes": 256},
    {"dram_latency_cycles": 200, "dram_row_miss_cycles": 90},
    {"scratchpad_bytes": 8192, "sync_barrier_cycles": 0, "mac_in_lanes": 1},
]
"""Settings of devices that differ from the NMP."""


@cache
def digits() -> Program:
    """Return the trained network of the repository with the image of a seven."""
    text = DIGITS / "digits.lir.txt"
    module, _ = attach_constants(parse_file(text), [DIGITS / "digits.npz"], find_tensors_file(text))
    verify(module)
    return Program(module, {"data": np.load(DIGITS / "images" / "7.npy")})


def compile_with_tiling(
    program: Program, config: DeviceConfig, tiling: str, fuse: bool = True
) -> tuple[Bundle, list[TiledLayer]]:
    """Return the compiled bundle and the tiling of each of its device layers."""
    layers: list[TiledLayer] = []
    image = compile_module(
        program.module,
        config,
        numerics=program.numerics,
        fuse_activations=fuse,
        tiling=tiling,
        on_tiling=layers.append,
    )
    return parse_bundle(image), layers
