"""Cycles and host time of networks over cores, scratchpads and DRAM bandwidth, one at a time.

    python benchmarks/scaling.py [--shared ../shared] [--only NAME ...]

What is not varied is the NMP's: 32 cores, 128 KiB, 16 bytes a cycle. Each network is compiled anew
for each device. Prints a Markdown table. Host seconds are of one run, after one that compiles
kernels; those of compiling are the processor's. Both depend on the machine, cycles do not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import attrs
from tilings import inputs_of, networks, shared_option

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.lir.nodes import Module

AXES = {
    "cores_count": ("cores", (1, 2, 4, 8, 16, 32, 64)),
    "scratchpad_bytes": ("bytes of a scratchpad", (65536, 131072, 262144, 524288)),
    "dram_bytes_per_cycle": ("bytes a cycle of DRAM", (4, 8, 16, 32, 64)),
}
"""Setting -> what it is called, values."""
NETWORKS = ("minires", "ResNet-50", "MobileNet-like")


def point(module: Module, config: nmpsim.DeviceConfig) -> tuple[int, float, float]:
    """Cycles, seconds of the processor for compiling, seconds of one run."""
    begin = time.process_time()
    bundle = parse_bundle(compile_module(module, config, tiling="layer"))
    compiling = time.process_time() - begin
    device, inputs = nmpsim.Device(config), inputs_of(bundle)
    device.run(bundle, inputs)
    ready = time.perf_counter()
    cycles = device.run(bundle, inputs).device_cycles
    return cycles, compiling, time.perf_counter() - ready


def rows(name: str, module: Module) -> Iterator[str]:
    """Yield a network's lines of the table."""
    for setting, (called, values) in AXES.items():
        for value in values:
            config = attrs.evolve(nmpsim.default_device(), **{setting: value})
            cycles, compiling, running = point(module, config)
            yield f"| {name} | {value} {called} | {cycles:,} | {compiling:.1f} | {running:.3f} |"


def main() -> None:
    """Print the table line by line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    shared_option(parser)
    parser.add_argument("--only", nargs="*", default=NETWORKS, help="names of networks")
    given = parser.parse_args()
    print("| network | device | cycles | compile, s | run, s |")
    print("| --- | --- | ---: | ---: | ---: |", flush=True)
    for name, make in networks(given.shared):
        if name in given.only:
            for line in rows(name, make()):
                print(line, flush=True)


if __name__ == "__main__":
    main()
