"""Cycles of single convolutions as the compiler tiles them, and with a search without limits.

    python benchmarks/tiler.py [--only large|small] [--most 400] [--cores 32]

Prints a Markdown table. Without limits means: every grid of cores and every tiling that the planner
knows, of which the ``--most`` most promising are simulated (0: all of them, which takes hours for
large layers). Cycles are those of the compiler's estimate, which the device then takes; they do not
depend on the machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
from networks import Network

import nmpsim
from nmpsim.compiler.driver import compile_module
from nmpsim.compiler.tiling import conv_scheme, search
from nmpsim.compiler.tiling.search import TiledLayer
from nmpsim.lir.nodes import Module

Layer = tuple[int, int, int, int, int]
"""Rows (and columns) of the input, its channels, those of the result, kernel, stride."""
EVERYTHING = 1 << 40
LARGE: tuple[Layer, ...] = (
    # Those that once lost most.
    (448, 64, 64, 3, 1),
    (224, 128, 128, 3, 1),
    (28, 1024, 1024, 3, 1),
    (112, 256, 256, 3, 1),
    (56, 512, 512, 3, 1),
    # VGG-16
    (224, 3, 64, 3, 1),
    (224, 64, 64, 3, 1),
    (112, 64, 128, 3, 1),
    (112, 128, 128, 3, 1),
    (56, 128, 256, 3, 1),
    (56, 256, 256, 3, 1),
    (28, 256, 512, 3, 1),
    (28, 512, 512, 3, 1),
    (14, 512, 512, 3, 1),
    # U-Net
    (512, 3, 64, 3, 1),
    (512, 64, 64, 3, 1),
    (256, 128, 128, 3, 1),
    (128, 256, 256, 3, 1),
    (64, 512, 512, 3, 1),
    (32, 1024, 1024, 3, 1),
    (64, 1024, 512, 3, 1),
    (128, 512, 256, 3, 1),
    (256, 256, 128, 3, 1),
    (512, 128, 64, 3, 1),
    (512, 64, 2, 1, 1),
    # YOLO
    (1024, 3, 32, 3, 1),
    (1024, 32, 64, 3, 2),
    (512, 64, 32, 1, 1),
    (512, 32, 64, 3, 1),
    (512, 64, 128, 3, 2),
    (256, 128, 64, 1, 1),
    (256, 128, 256, 3, 2),
    (128, 128, 256, 3, 1),
    (64, 512, 256, 1, 1),
    (32, 1024, 512, 1, 1),
)
SMALL: tuple[Layer, ...] = (
    (14, 32, 64, 3, 1),
    (4, 256, 256, 3, 1),
    (7, 64, 64, 3, 1),
    (8, 16, 16, 3, 1),
    (16, 16, 32, 3, 1),
    (16, 32, 32, 3, 2),
    (12, 48, 24, 3, 1),
    (14, 64, 16, 1, 1),
    (7, 128, 128, 1, 1),
    (10, 20, 40, 5, 1),
    (28, 8, 16, 3, 1),
    (5, 96, 96, 3, 1),
)


def single(layer: Layer) -> Module:
    """Return a network of one convolution."""
    size, inputs, outputs, kernel, stride = layer
    network = Network("single")
    source = network.input(1, size, size, inputs)
    return network.module(network.conv(source, outputs, kernel=kernel, stride=stride))


def tiled(module: Module, config: nmpsim.DeviceConfig) -> TiledLayer:
    """How its convolution is tiled."""
    layers: list[TiledLayer] = []
    compile_module(module, config, on_tiling=layers.append)
    return layers[0]


@contextmanager
def without_limits(most: int) -> Iterator[None]:
    """Simulate the most promising of all tilings, on all grids."""
    kept = (search.MAX_TRIALS, search.MIN_TRIALS, search.MAX_TILES)
    ranked, grids = search.MAX_RANKED, conv_scheme.GRIDS_AT_ONCE
    search.MAX_RANKED = search.MAX_TRIALS = search.MIN_TRIALS = most
    search.MAX_TILES = conv_scheme.GRIDS_AT_ONCE = EVERYTHING
    yield
    search.MAX_TRIALS, search.MIN_TRIALS, search.MAX_TILES = kept
    search.MAX_RANKED, conv_scheme.GRIDS_AT_ONCE = ranked, grids


def row(layer: Layer, config: nmpsim.DeviceConfig, most: int) -> str:
    """Return a layer's line of the table."""
    module = single(layer)
    begin = time.process_time()
    compile_module(module, config, tiling="layer")
    took = time.process_time() - begin
    cycles = tiled(module, config).chosen.estimate.cycles
    with without_limits(most):
        best = tiled(module, config).chosen.estimate.cycles
    size, inputs, outputs, kernel, stride = layer
    named = f"{kernel}x{kernel}, {size}x{size}, {inputs} to {outputs}"
    named += f", stride {stride}" if stride > 1 else ""
    return f"| {named} | {cycles:,} | {best:,} | {cycles / best - 1:.1%} | {took:.2f} |"


def main() -> None:
    """Print the table line by line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("large", "small"))
    parser.add_argument("--most", type=int, default=400)
    parser.add_argument("--cores", type=int, default=32)
    given = parser.parse_args()
    config = attrs.evolve(nmpsim.default_device(), cores_count=given.cores)
    print("| convolution | cycles | without limits | more | compile, s |")
    print("| --- | ---: | ---: | ---: | ---: |", flush=True)
    for layer in {"large": LARGE, "small": SMALL, None: (*SMALL, *LARGE)}[given.only]:
        print(row(layer, config, given.most or EVERYTHING), flush=True)


if __name__ == "__main__":
    main()
