"""Compiling deep networks: convolutions, sums and pools, 1,000 of them by default.

    python benchmarks/many_layers.py [--layers N]

In one network blocks repeat as in a ResNet, in the other no two convolutions are alike, so that
none is tiled like an earlier one. Each is compiled twice; the bundles must be the same bytes.
Prints a Markdown table. Seconds are the processor's, of all threads, and those of the clock, which
also count what other work the computer does.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from networks import Network

import nmpsim
from nmpsim.lir.nodes import Module
from nmpsim.lir.printer import format_module

STAGES = 4
"""Of a network; a pool ends each."""
BLOCK = 3
"""Layers of a block: 3x3 convolution, 1x1 convolution, sum."""
SIZE = 56
"""Height and width of the input."""


def repeated(layers: int) -> Module:
    """Blocks of one shape in each stage, with twice the channels of the stage before."""
    return _network("repeated", layers, lambda stage, _: 32 << stage)


def distinct(layers: int) -> Module:
    """In each block the 3x3 convolution has a number of channels of its own."""
    return _network("distinct", layers, lambda stage, block: (16 << stage) + block)


def _network(name: str, layers: int, inner: Callable[[int, int], int]) -> Module:
    """So many layers; ``inner`` channels lie between the convolutions of a block of a stage."""
    network = Network(name)
    x = network.input(1, SIZE, SIZE, 16)
    blocks = max((layers - 2 * STAGES - 1) // (BLOCK * STAGES), 1)
    for stage in range(STAGES):
        channels = 32 << stage
        x = network.conv(x, channels, kernel=1)
        for block in range(blocks):
            between = network.conv(x, inner(stage, block))
            x = network.add(network.conv(between, channels, kernel=1), x)
        x = network.pool(x, 2)
    while network.count < layers:
        x = network.add(x, x)
    return network.module(x)


def rows(layers: int, folder: Path) -> Iterator[str]:
    """Yield a line of the table for each network."""
    text, weights = folder / "network.lir.txt", folder / "weights.npz"
    for make in (repeated, distinct):
        module, images = make(layers), []
        text.write_text(format_module(module), encoding="utf-8")
        np.savez(weights, **module.constants)
        for _ in range(2):
            clock, processor = time.perf_counter(), time.process_time()
            images.append(nmpsim.compile(text, weights).image)
            clock, processor = time.perf_counter() - clock, time.process_time() - processor
        if images[0] != images[1]:
            raise SystemExit(f"{module.name}: two bundles of the same network differ")
        yield (
            f"| {module.name} | {layers:,} | {len(images[0]) / 1e6:.1f} MB |"
            f" {processor:.1f} s | {clock:.1f} s |"
        )


def main() -> None:
    """Print the table line by line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=1000)
    given = parser.parse_args()
    print("| network | layers | bundle | processor | clock |")
    print("| --- | ---: | ---: | ---: | ---: |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for line in rows(given.layers, Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
