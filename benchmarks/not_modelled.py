"""How large the errors are of what the timing leaves out: the numbers of docs/timing.md.

    python benchmarks/not_modelled.py BUNDLE [--input X.npy]

Runs a program on the device that it was compiled for. Prints shares of its cycles: by how much they
would change at most, or if one setting stood for what is missing. Cycles do not depend on the host.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import attrs
import numpy as np

import nmpsim
from nmpsim.config import DeviceConfig
from nmpsim.isa.table import DRAM_BASE, Unit
from nmpsim.memory.dram import advance_past_grant, get_next_address
from nmpsim.timing import get_costs

PORT_BYTES = 16
"""Of the scratchpad, each cycle; an assumption."""


class LoadedBursts:
    """Listens to a run's work: bursts that are loaded, and how many distinct ones in a layer."""

    def __init__(self, config: DeviceConfig) -> None:
        burst = config.dram_burst_bytes
        self._one_burst = get_costs(config)._replace(dram_row_bytes=burst)
        self._burst = burst
        self.loaded = 0
        self.distinct: set[tuple[int, int]] = set()

    def __call__(self, work: Any) -> None:
        """Count an array of WORK."""
        for entry in work[(work["is_grant"] == 1) & (work["unit"] == Unit.LOAD)]:
            cursor, layer = entry["cursor"].tolist(), int(entry["layer"])
            for _ in range(int(entry["bytes"]) // self._burst):
                address = get_next_address(cursor) - DRAM_BASE
                self.loaded += 1
                self.distinct.add((layer, address // self._burst))
                advance_past_grant(cursor, self._one_burst)


def cycles_with(bundle: nmpsim.Bundle, inputs: dict[str, Any], config: DeviceConfig) -> int:
    """Cycles of the same program on another device."""
    return nmpsim.Device(config).run(bundle, inputs).device_cycles


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--input", type=Path)
    given = parser.parse_args()
    bundle = nmpsim.load(given.bundle)
    inputs = {
        tensor.name: np.zeros(tensor.shape, np.int16 if tensor.elem == "i16" else np.int8)
        for tensor in bundle.metadata.inputs
    }
    if given.input:
        inputs = dict.fromkeys(inputs, np.load(given.input))
    config = nmpsim.get_device(bundle)
    loads = LoadedBursts(config)
    report = nmpsim.Device(config).run(bundle, inputs, work=loads)
    moved = sum(layer.bytes_read + layer.bytes_written for layer in report.layers)
    rate = config.dram_bytes_per_cycle
    program = program_bytes(bundle)
    again = (loads.loaded - len(loads.distinct)) * config.dram_burst_bytes
    stolen = moved / PORT_BYTES / config.cores_count
    late = attrs.evolve(config, control_descriptor_fetch=1)
    show("cycles", f"{report.device_cycles:,}")
    show("code and descriptors", f"{program:,} bytes, {program / moved:.1%} of the bytes moved")
    show("... fetched once, DRAM never idle", f"{program / rate / report.device_cycles:+.1%}")
    show(
        "... descriptors waited for",
        change(cycles_with(bundle, inputs, late), report.device_cycles),
    )
    show("multicast, at most", f"{-again / rate / report.device_cycles:+.1%}")
    show("scratchpad port, at most", f"{stolen / report.device_cycles:+.1%}")
    for name, settings in {
        "refresh (144 of 3124 cycles)": {
            "dram_refresh_interval_cycles": 3124,
            "dram_refresh_cycles": 144,
        },
        "turnaround (16 and 11 cycles)": {
            "dram_write_read_cycles": 16,
            "dram_read_write_cycles": 11,
        },
        "eight banks": {"dram_banks": 8},
        "look-ahead (128 cycles)": {"dram_lookahead_cycles": 128},
        "multicast": {"dram_multicast": 1},
    }.items():
        other = attrs.evolve(config, **settings)
        show(name, change(cycles_with(bundle, inputs, other), report.device_cycles))


def program_bytes(bundle: nmpsim.Bundle) -> int:
    """Bytes of code and descriptors."""
    parts = nmpsim.memory_map(bundle)
    return sum(part.nbytes for part in parts if part.name in ("text", "descriptors"))


def change(cycles: int, before: int) -> str:
    """In percent."""
    return f"{cycles / before - 1:+.1%}"


def show(name: str, value: str) -> None:
    """Print a line."""
    print(f"{name:36}{value}")


if __name__ == "__main__":
    main()
