"""Cycles of networks with and without chains of layers, and the times of compilers and runs.

    python benchmarks/chains.py [--shared ../shared] [--only NAME ...]

Networks that need the folder of reference files are left out without it. Prints a Markdown table:
cycles with ``--tiling layer`` and ``chain``, whether the outputs are equal, seconds of the
processor for both compilations, and the ratio of the host times of later runs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from tilings import RECORDED, inputs_of, networks, shared_option

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.compiler.driver import compile_module

RUNS = 5
"""Runs of which the fastest counts."""


def programs(shared: Path) -> dict[str, Any]:
    """Return by name what compiles a network with a tiling."""
    found: dict[str, Any] = {
        name: lambda tiling, make=make: compile_module(
            make(), nmpsim.default_device(), tiling=tiling
        )
        for name, make in networks(shared)
        if name in RECORDED
    }
    for path in sorted(shared.glob("models/*/model.tflite")):
        found[path.parent.name] = lambda path=path, **how: nmpsim.compile(path, **how).file
    return found


def random_inputs(bundle: nmpsim.Bundle) -> dict[str, np.ndarray[Any, Any]]:
    """Return random integers for quantized inputs; zeros for others."""
    rng, values = np.random.default_rng(1), inputs_of(bundle)
    for tensor in bundle.metadata.user_inputs:
        dtype = {"i8": np.int8, "ui8": np.uint8}.get(tensor.elem)
        if dtype is not None:
            values[tensor.name] = rng.integers(0, 256, tensor.shape).astype(np.uint8).view(dtype)
    return values


def line(name: str, compile_with: Any) -> str:
    """Return a network's line of the table."""
    cycles, seconds, host, outputs = [], [], [], []
    for tiling in ("layer", "chain"):
        begin = time.process_time()
        image = compile_with(tiling=tiling)
        seconds.append(time.process_time() - begin)
        bundle = parse_bundle(image)
        device, inputs = nmpsim.Device(), random_inputs(bundle)
        report = device.run(bundle, inputs, strict=True)
        cycles.append(report.device_cycles)
        outputs.append(report.outputs)
        times = []
        for _ in range(RUNS):
            begin = time.perf_counter()
            device.run(bundle, inputs)
            times.append(time.perf_counter() - begin)
        host.append(min(times))
    same = all(np.array_equal(outputs[1][key], value) for key, value in outputs[0].items())
    figures = f"{cycles[0]:,} | {cycles[1]:,} | {'yes' if same else 'NO'}"
    return f"| {name} | {figures} | {seconds[0]:.1f} | {seconds[1]:.1f} | {host[1] / host[0]:.2f} |"


def main() -> None:
    """Print the table line by line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    shared_option(parser)
    parser.add_argument("--only", nargs="*", help="names of networks")
    given = parser.parse_args()
    print("| network | layer | chain | equal | compile layer, s | chain, s | host time |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: |", flush=True)
    for name, compile_with in programs(given.shared).items():
        if not given.only or name in given.only:
            print(line(name, compile_with), flush=True)


if __name__ == "__main__":
    main()
