"""The DRAM presets against DRAMsim3 in a closed loop: 108 patterns of queues.

    python benchmarks/dramsim3_queues.py FOLDER [--preset PRESET]

FOLDER is DRAMsim3, built there (see ``dramsim3.py``). Each queue asks for its next transfer when
the data of the one before have arrived, in nmpsim and in DRAMsim3. So a DRAM that is too slow or
too fast changes all later requests. Patterns: 1, 4 or 32 queues; transfers of 64, 256 or 2048
bytes; 0 or 30 % writes; sequential or random addresses.

For each pattern, the script prints the cycles of nmpsim and of DRAMsim3, and their difference. For
each preset, it prints how many patterns differ by at most 15 %, and the largest difference, for
patterns without writes and with writes.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import tempfile
from pathlib import Path

import attrs
import dramsim3
import numpy as np

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.config import DeviceConfig, load_device
from nmpsim.isa.table import DESCRIPTORS, DRAM_BASE

SOURCE = Path(__file__).with_name("dramsim3_queues.cc")
QUEUES, SIZES, WRITES, ORDERS = (1, 4, 32), (64, 256, 2048), (0, 30), ("sequential", "random")
TRANSFERS = 1280
"""Transfers of all queues together."""
STORES = (2, 5, 8)
"""Places in ten transfers that are writes."""
MAX_SECONDS = 60
"""Seconds after which DRAMsim3 is ended; with LPDDR5 times it does not end one pattern."""
CLOSE = 0.15
"""Difference up to which the cycles of a pattern are close."""
REGION = 1 << 24
"""Bytes of the addresses."""
CONTROLLER_NS = 32.5
"""Part of a preset's latency that DRAMsim3 does not have: controller and interconnect."""
INSTRUCTIONS = 2
"""Cycles from the arrival of data to the next request: a wait and an addition."""

Transfer = tuple[int, int, bool]
"""Queue, offset of the first byte, and whether it is a write."""


def list_transfers(queues: int, size: int, writes: int, order: str) -> list[Transfer]:
    """Return the transfers of a pattern, those of each queue in order."""
    count = TRANSFERS // queues
    offsets = np.arange(TRANSFERS)
    if order == "random":
        offsets = np.random.default_rng(size).integers(0, REGION // size, TRANSFERS)
    return [
        (number // count, int(offset) * size, bool(writes) and number % count % 10 in STORES)
        for number, offset in enumerate(offsets)
    ]


def make_program(transfers: list[Transfer], queues: int, size: int, config: DeviceConfig) -> bytes:
    """Return a bundle in which a core executes the transfers of each queue."""
    kinds = ["store" if is_write else "load" for _, _, is_write in transfers]
    lines = [f".input block, i8[S:1.0 O:0]<{REGION}>"]
    for number, (kind, (_, offset, _)) in enumerate(zip(kinds, transfers, strict=True)):
        box = f"spm=0x20000000, run_bytes={size}, count_x=1, count_y=1"
        label = "" if number else "table: "
        lines.append(f"{label}.descriptor {kind}, dram=block+{offset}, {box}")
    kinds = kinds[: len(transfers) // queues]
    nbytes = sum(DESCRIPTORS[kind].nbytes for kind in kinds)
    lines += ["_start:", "csrr a0, mhartid", f"li t1, {nbytes}", "mul a0, a0, t1"]
    lines += ["la t0, table", "add t0, t0, a0"]
    for kind in kinds:
        step = DESCRIPTORS[kind].nbytes
        lines += [f"nmp.{kind} t0", f"nmp.wait {kind}, 0", f"addi t0, t0, {step}"]
    text = "\n".join([*lines, "nmp.halt", ""])
    return bytes(assemble(text, "queues.s", config.settings()).build_bundle())


def load_preset(preset: str, queues: int, folder: Path) -> DeviceConfig:
    """Return a device with a preset and a core for each queue, which spends little time itself."""
    path = folder / "device.toml"
    path.write_text(f'[dram]\npreset = "{preset}"\n', encoding="utf-8")
    free = {"control_descriptor_cycles": 0, "dma_startup_cycles": 0}
    return attrs.evolve(load_device(path), cores_count=queues, **free)


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--preset", choices=sorted(dramsim3.SETTINGS), action="append")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = dramsim3.build_program(SOURCE, given.folder, folder)
        for preset in given.preset or dramsim3.SETTINGS:
            compare(preset, program, folder)


def compare(preset: str, program: Path, folder: Path) -> None:
    """Print a row for each pattern of a preset, then a summary of the differences."""
    settings = dramsim3.SETTINGS[preset].lstrip() + dramsim3.CONTROLLER
    (folder / "dram.ini").write_text(settings, encoding="utf-8")
    differences: dict[int, list[float]] = {writes: [] for writes in WRITES}
    for queues, size, writes, order in itertools.product(QUEUES, SIZES, WRITES, ORDERS):
        config = load_preset(preset, queues, folder)
        transfers = list_transfers(queues, size, writes, order)
        bundle = parse_bundle(make_program(transfers, queues, size, config))
        inputs = {"block": np.zeros(REGION, np.int8)}
        report = nmpsim.Device(config).run(bundle, inputs, strict=False)
        if report.trap is not None:
            raise SystemExit(report.trap.message)
        own = report.device_cycles
        base = bundle.rw_base - DRAM_BASE
        lines = [f"{queue} {base + at} {size} {int(write)}\n" for queue, at, write in transfers]
        (folder / "transfers").write_text("".join(lines), encoding="utf-8")
        clocks = dramsim3.CLOCK_MHZ[preset]
        per_cycle = clocks / config.cores_clock_mhz
        think = round(CONTROLLER_NS * clocks / 1000 + INSTRUCTIONS * per_cycle)
        words = ["dram.ini", "transfers", str(think), str(config.dram_burst_bytes)]
        pattern = f"{preset} | {queues} | {size} | {writes} % | {order}"
        try:
            done = subprocess.run(
                [str(program), *words],
                check=True,
                capture_output=True,
                text=True,
                cwd=folder,
                timeout=MAX_SECONDS,
            )
        except subprocess.TimeoutExpired:
            print(f"| {pattern} | {own:,} | no end in {MAX_SECONDS} s | |", flush=True)
            continue
        theirs = int(done.stdout.split()[-1]) / per_cycle
        difference = own / theirs - 1
        differences[writes].append(difference)
        print(f"| {pattern} | {own:,} | {theirs:,.0f} | {difference:+.1%} |", flush=True)
    for writes, found in differences.items():
        close = sum(abs(one) <= CLOSE for one in found)
        largest = max(found, key=abs)
        summary = f"{close} of {len(found)} within {CLOSE:.0%}, largest {largest:+.1%}"
        print(f"{preset}, {writes} % writes: {summary}", flush=True)


if __name__ == "__main__":
    main()
