"""Where more of a resource costs more cycles: random programs on random devices.

    python benchmarks/anomalies.py [--count 200] [--seed 1] [--only compiled|same] [--over 5]

Makes networks of one to three layers and devices, then doubles one resource of a device (or halves
one cost) at a time, and runs the network again: with the same program, and compiled again for the
changed device. Prints a Markdown table of how often that took more cycles and by how much at most;
before it a line for each case over ``--over`` percent. docs/timing.md ("Effect of faster
resources") says what is to be expected. The same seeds give the same cases, and ``--seed S --count
1`` repeats one.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import attrs
import numpy as np
from networks import Network

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.config import SETTINGS, DeviceConfig
from nmpsim.lir.nodes import Module

DOUBLED = (
    "cores_count",
    "scratchpad_bytes",
    "mac_out_lanes",
    "mac_in_lanes",
    "vector_lanes",
    "queues_depth",
    "dma_fill_bytes_per_cycle",
    "dram_bytes_per_cycle",
    "dram_row_bytes",
    "dram_channels",
    "dram_banks",
    "dram_refresh_interval_cycles",
    "dram_lookahead_cycles",
)
HALVED = (
    "control_descriptor_cycles",
    "mac_startup_cycles",
    "vector_startup_cycles",
    "dma_startup_cycles",
    "dram_latency_cycles",
    "dram_row_miss_cycles",
    "dram_write_recovery_cycles",
    "dram_write_read_cycles",
    "dram_read_write_cycles",
    "dram_refresh_cycles",
    "sync_barrier_cycles",
)
OF_THE_PROGRAM = ("cores_count", "scratchpad_bytes")
"""A program does not change with these: only one that is compiled again does."""
RANGES: Mapping[str, tuple[int, int]] = {
    "control_descriptor_cycles": (0, 30),
    "mac_startup_cycles": (0, 40),
    "vector_startup_cycles": (0, 40),
    "queues_depth": (1, 8),
    "dma_startup_cycles": (0, 30),
    "dma_fill_bytes_per_cycle": (1, 64),
    "dram_bytes_per_cycle": (1, 64),
    "dram_latency_cycles": (0, 200),
    "dram_row_miss_cycles": (0, 90),
    "sync_barrier_cycles": (0, 60),
}
CHOICES: Mapping[str, tuple[int, ...]] = {
    "cores_count": (1, 2, 3, 4, 6, 8, 12, 16, 32),
    "scratchpad_bytes": (16384, 32768, 65536, 131072),
    "mac_out_lanes": (4, 8, 16),
    "mac_in_lanes": (4, 8, 16),
    "vector_lanes": (4, 8, 16, 32),
    "dram_burst_bytes": (16, 32, 64, 128),
    "dram_row_bytes": (256, 1024, 2048, 4096),
}
BANKED: Mapping[str, tuple[int, ...]] = {
    "dram_channels": (1, 2, 4),
    "dram_banks": (1, 2, 4, 8, 16),
    "dram_write_recovery_cycles": (0, 10, 25),
    "dram_write_read_cycles": (0, 8, 16),
    "dram_read_write_cycles": (0, 6, 12),
    "dram_lookahead_cycles": (0, 32, 128),
}


def random_device(rng: np.random.Generator) -> DeviceConfig:
    """Half of all devices have the default's DRAM with one open row."""
    settings = {name: int(rng.integers(low, high + 1)) for name, (low, high) in RANGES.items()}
    settings |= {name: int(rng.choice(values)) for name, values in CHOICES.items()}
    if rng.random() < 0.5:
        settings |= {name: int(rng.choice(values)) for name, values in BANKED.items()}
        settings["dram_precharge_cycles"] = settings["dram_row_miss_cycles"] // 2
        if rng.random() < 0.5:
            settings["dram_refresh_interval_cycles"] = int(rng.integers(1000, 4000))
            settings["dram_refresh_cycles"] = int(rng.integers(50, 300))
    return attrs.evolve(nmpsim.default_device(), **settings)


def random_network(rng: np.random.Generator) -> tuple[Module, str]:
    """One to three layers, and what they are."""
    network = Network("random")
    size, channels = int(rng.integers(1, 29)), int(rng.choice([1, 3, 8, 16, 20, 32, 64]))
    x, named = network.input(1, size, size, channels), [f"{size}x{size}x{channels}"]
    for _ in range(rng.integers(1, 4)):
        kind = rng.choice(["conv", "conv", "conv", "depthwise", "pool"])
        kernel, stride = int(rng.choice([1, 3, 3, 5])), int(rng.choice([1, 1, 2]))
        if kind == "pool" and size >= 2:
            x, size = network.pool(x, 2), size // 2
            named.append("max pool 2x2")
        elif kind == "depthwise" and channels > 1:
            x, size = network.conv(x, channels, 3, stride, channels), -(-size // stride)
            named.append(f"depthwise 3x3, stride {stride}")
        else:
            channels = int(rng.choice([1, 4, 8, 16, 24, 40, 64]))
            x, size = network.conv(x, channels, kernel, stride), -(-size // stride)
            named.append(f"{kernel}x{kernel} to {channels}, stride {stride}")
    return network.module(x), ", ".join(named)


def more_of(config: DeviceConfig) -> Iterator[tuple[str, DeviceConfig]]:
    """Yield devices with more of one resource, where that is possible."""
    for name in (*DOUBLED, *HALVED):
        value = getattr(config, name)
        more = value // 2 if name in HALVED else value * 2
        if name == "dram_lookahead_cycles" and value == 0:
            more = 64
        if more == value or more > SETTINGS[name].high:
            continue
        changed = {name: more}
        if name == "dram_channels":  # which share the bandwidth: twice of it, too
            changed["dram_bytes_per_cycle"] = config.dram_bytes_per_cycle * 2
        if name == "dram_row_miss_cycles":
            changed["dram_precharge_cycles"] = config.dram_precharge_cycles // 2
        yield name, attrs.evolve(config, **changed)


def compiled(module: Module, config: DeviceConfig) -> Bundle:
    """Return the program for a device."""
    return parse_bundle(compile_module(module, config, tiling="layer"))


def cycles(bundle: Bundle, config: DeviceConfig) -> int:
    """Of a run; they do not depend on the inputs, which are zero."""
    inputs: dict[str, Any] = {t.name: np.zeros(t.shape, np.int8) for t in bundle.metadata.inputs}
    return nmpsim.Device(config).run(bundle, inputs, strict=False).device_cycles


Case = tuple[str, str, int, int]
"""The setting, "same" or "compiled", cycles before and after."""


def cases(module: Module, config: DeviceConfig, only: str | None = None) -> Iterator[Case]:
    """All changes of a device, with the same program and with one for the changed device."""
    bundle = compiled(module, config)
    before = cycles(bundle, config)
    for name, changed in more_of(config):
        if only != "compiled" and name not in OF_THE_PROGRAM:
            yield name, "same", before, cycles(bundle, changed)
        if only != "same":
            yield name, "compiled", before, cycles(compiled(module, changed), changed)


Found = defaultdict[tuple[str, str], list[float]]
"""Setting and program -> percent of cycles more, of each case."""


def search(seeds: range, only: str | None, over: float, found: Found) -> None:
    """Try networks and print cases over the limit."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        config, (module, named) = random_device(rng), random_network(rng)
        for name, program, before, after in cases(module, config, only):
            more = 100 * (after / before - 1)
            found[name, program].append(more)
            if more > over:
                print(f"{seed}: {name} ({program}) {before:,} to {after:,}: {named}", flush=True)


def main() -> None:
    """Search, also until Ctrl-C, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="networks")
    parser.add_argument("--seed", type=int, default=1, help="of the first one")
    parser.add_argument("--only", choices=("same", "compiled"))
    parser.add_argument("--over", type=float, default=5.0, help="percent")
    given = parser.parse_args()
    found: Found = defaultdict(list)
    seeds = range(given.seed, given.seed + given.count)
    with suppress(KeyboardInterrupt):
        search(seeds, given.only, given.over, found)
    print("\n| more of | program | tried | slower | over 1 % | at most |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for (name, program), more in sorted(found.items(), key=lambda item: item[0][::-1]):
        slower, over = sum(x > 0 for x in more), sum(x > 1 for x in more)
        line = f"| `{name}` | {program} | {len(more)} | {slower} | {over} | {max(more):.1f} % |"
        print(line)


if __name__ == "__main__":
    main()
