"""A preset of the DRAM against DRAMsim3: the bursts of a network, replayed there.

    python benchmarks/dramsim3.py FOLDER PRESET BUNDLE [--input X.npy] [--change tCCD_L=4 ...]

FOLDER is DRAMsim3 (https://github.com/umd-memsys/DRAMsim3), built there with CMake; `g++` compiles
the replay next to this file. PRESET is `lpddr4-3200`, `lpddr5-6400` or `ddr4-3200`. The bundle is
compiled again for a device with this preset, from its LIR. Inputs are zero if none is given; cycles
rarely depend on them. `--change` changes a setting of DRAMsim3, to see what it is worth.

All bursts are requested at the beginning, in the same order, in DRAMsim3 and in nmpsim's model
without look-ahead. So the comparison shows the bandwidth of each DRAM, in cycles of the device.
``dramsim3_queues.py`` compares latency and queueing, too.

DRAMsim3 serves two queued requests for the same burst as one. Its cycles are counted as if it had
not: by the bursts that it moved.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import nmpsim
from nmpsim.analysis.trace.dram import DramTrace
from nmpsim.analysis.trace.selection import Selection
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.config import DeviceConfig, load_device
from nmpsim.isa.table import Unit
from nmpsim.memory.dram import advance_past_grant, get_next_address
from nmpsim.timing import Costs, get_costs
from nmpsim.timing.compute import convert_to_cycles, count_grant_ticks
from nmpsim.timing.dram import (
    CHANNEL_WORDS,
    FREE,
    find_channel,
    reset_dram,
    serve_request,
)

REPLAY = Path(__file__).with_name("dramsim3_replay.cc")
CLOCK_MHZ = {"lpddr4-3200": 1600, "lpddr5-6400": 3200, "ddr4-3200": 1600}
"""Of the DRAM; times below are in its clocks."""
SETTINGS = {
    "lpddr4-3200": """
[dram_structure]
protocol = LPDDR4
bankgroups = 1
banks_per_group = 8
rows = 32768
columns = 1024
device_width = 16
BL = 16
[timing]
tCK = 0.625
CL = 28
CWL = 14
tRCD = 29
tRP = 29
tRAS = 68
tRFC = 288
tREFI = 6247
tRRD_S = 16
tRRD_L = 16
tWTR_S = 16
tWTR_L = 16
tFAW = 64
tWR = 29
tRTP = 12
tCCD_S = 8
tCCD_L = 8
tRTRS = 6
[system]
channel_size = 512
channels = 2
bus_width = 16
address_mapping = rorababgchco
""",
    # DRAMsim3 does not know LPDDR5; this is its LPDDR4 with the times of the other.
    "lpddr5-6400": """
[dram_structure]
protocol = LPDDR4
bankgroups = 2
banks_per_group = 8
rows = 32768
columns = 1024
device_width = 16
BL = 16
[timing]
tCK = 0.3125
CL = 68
CWL = 36
tRCD = 60
tRP = 60
tRAS = 135
tRFC = 672
tREFI = 12499
tRRD_S = 16
tRRD_L = 16
tWTR_S = 20
tWTR_L = 40
tFAW = 64
tWR = 112
tRTP = 24
tCCD_S = 8
tCCD_L = 16
tRTRS = 8
[system]
channel_size = 1024
channels = 2
bus_width = 16
address_mapping = rorabachcobg
""",
    "ddr4-3200": """
[dram_structure]
protocol = DDR4
bankgroups = 2
banks_per_group = 4
rows = 65536
columns = 1024
device_width = 16
BL = 8
[timing]
tCK = 0.625
CL = 22
CWL = 16
tRCD = 22
tRP = 22
tRAS = 52
tRFC = 560
tREFI = 12480
tRRD_S = 9
tRRD_L = 11
tWTR_S = 4
tWTR_L = 12
tFAW = 48
tWR = 24
tRTP = 12
tCCD_S = 4
tCCD_L = 8
tRTRS = 2
[system]
channel_size = 4096
channels = 1
bus_width = 64
address_mapping = rorachbacobg
""",
}
CONTROLLER = """queue_structure = PER_BANK
refresh_policy = RANK_LEVEL_STAGGERED
row_buf_policy = OPEN_PAGE
cmd_queue_size = 8
trans_queue_size = 32
[other]
epoch_period = 1000000000
output_level = 0
"""


def build_program(source: Path, library: Path, folder: Path) -> Path:
    """Compile a C++ source with DRAMsim3, built in the folder ``library``; return the program."""
    program, library = folder / source.stem, library.resolve()
    options = [f"-I{library / 'src'}", f"-L{library}", "-ldramsim3", f"-Wl,-rpath,{library}"]
    compiler = ["g++", "-O2", "-std=c++17", str(source), *options, "-o", str(program)]
    subprocess.run(compiler, check=True)
    return program


class Grants:
    """Listens to a run's work and keeps its grants in the order of service."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def __call__(self, work: Any) -> None:
        """Keep an array of WORK."""
        self.all += list(work[work["is_grant"] == 1].copy())


def at_once(grants: list[Any], costs: Costs) -> int:
    """Cycles that nmpsim's DRAM takes for all grants if they are requested at once, in order."""
    dram = np.zeros((costs.dram_channels, CHANNEL_WORDS), np.int64)
    reset_dram(dram)
    known = [0] * costs.dram_channels
    for grant in grants:
        row = get_next_address(grant["cursor"]) // costs.dram_row_bytes
        bursts, shares = advance_past_grant(grant["cursor"].copy(), costs)
        number = find_channel(row, costs)
        begin = int(dram[number, FREE])
        ticks = count_grant_ticks(bursts * costs.dram_burst_bytes, costs)
        is_store = int(grant["unit"] == Unit.STORE)
        serve_request(dram[number], row, shares, is_store, known[number], 0, ticks, costs)
        known[number] = begin
    return convert_to_cycles(int(dram[:, FREE].max()), costs)


def compiled_for(bundle: Bundle, config: DeviceConfig) -> Bundle:
    """Return the bundle's program for this device."""
    return parse_bundle(compile_module(bundle.module(), config), bundle.path)


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("preset", choices=sorted(SETTINGS))
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--input", type=Path)
    parser.add_argument("--change", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(given, Path(folder))


def compare(given: argparse.Namespace, folder: Path) -> None:
    """Run, replay and print."""
    device, trace = folder / "device.toml", folder / "dram.trc"
    device.write_text(f'[dram]\npreset = "{given.preset}"\n', encoding="utf-8")
    config = load_device(device)
    bundle = compiled_for(nmpsim.load(given.bundle), config)
    inputs = {
        tensor.name: np.zeros(tensor.shape, np.int16 if tensor.elem == "i16" else np.int8)
        for tensor in bundle.metadata.inputs
    }
    if given.input:
        inputs = dict.fromkeys(inputs, np.load(given.input))
    grants = Grants()
    with trace.open("wb") as file:
        addresses = DramTrace(file, get_costs(config), Selection())

        def listen(work: Any) -> None:
            grants(work)
            addresses(work)

        report = nmpsim.Device(config).run(bundle, inputs, work=listen)
    clocks = CLOCK_MHZ[given.preset] / config.cores_clock_mhz
    saturated, moved = replayed(given, folder, trace, config)
    own = at_once(grants.all, get_costs(config))
    bursts = sum(int(grant["bytes"]) for grant in grants.all) // config.dram_burst_bytes
    cycles = f"{report.device_cycles:,} cycles"
    print(f"{given.preset}: {cycles}, {bursts:,} bursts in {len(grants.all):,} grants")
    theirs = saturated / clocks * bursts / moved
    print(f"at once: nmpsim {own:,}, DRAMsim3 {theirs:,.0f} cycles ({own / theirs - 1:+.1%})")


def changed(text: str, changes: list[str]) -> str:
    """DRAMsim3's settings with changes, each ``NAME=VALUE`` of a setting that is there."""
    lines = dict(line.partition(" = ")[::2] for line in text.splitlines())
    for change in changes:
        name, _, value = change.partition("=")
        if name not in lines:
            raise SystemExit(f"--change {change}: this preset has {', '.join(lines)}")
        lines[name] = value
    return "".join(f"{name} = {value}\n" if value else f"{name}\n" for name, value in lines.items())


def replayed(
    given: argparse.Namespace, folder: Path, trace: Path, config: DeviceConfig
) -> tuple[int, int]:
    """Clocks that DRAMsim3 takes, and bursts that it moves."""
    settings = folder / "dram.ini"
    settings.write_text(changed(SETTINGS[given.preset].lstrip(), given.change) + CONTROLLER)
    program = build_program(REPLAY, given.folder, folder)
    rows = [str(config.dram_channels), str(config.dram_row_bytes)]
    arguments = [str(program), str(settings), str(trace), *rows]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True, cwd=folder)
    channels = json.loads((folder / "dramsim3.json").read_text(encoding="utf-8")).values()
    moved = sum(one["num_read_cmds"] + one["num_write_cmds"] for one in channels)
    return int(done.stdout.split()[-1]), moved


if __name__ == "__main__":
    main()
