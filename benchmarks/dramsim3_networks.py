"""The DRAM presets against DRAMsim3 in a closed loop: networks.

    python benchmarks/dramsim3_networks.py FOLDER BUNDLE... [--preset PRESET]

FOLDER is DRAMsim3, built there (see ``dramsim3.py``). Each bundle is compiled again for a device
with the preset, from its LIR. nmpsim records the instructions of all cores, and a C++ program
executes them with DRAMsim3 as memory: a core waits for its transfers and barriers, so that
a late transfer in DRAMsim3 delays all later instructions of the core. Prints the cycles of both.

The latency of reads (CL) is added outside DRAMsim3, because a queue of nmpsim begins its next
transfer before the data of the last one have arrived.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dramsim3

import nmpsim
from nmpsim.bundle import Bundle
from nmpsim.config import DeviceConfig, load_device
from nmpsim.core.compiled.engine import CompiledEngine
from nmpsim.core.compiled.units import count_padding_bytes
from nmpsim.core.contract_events import ContractEvent
from nmpsim.core.instruction_tables import FOOTPRINT_KIND, INSTRUCTION_UNIT
from nmpsim.core.load import make_bundle_machine
from nmpsim.core.state import end_segment, start_cores
from nmpsim.isa.table import INSTRUCTIONS, Unit
from nmpsim.isa.words import LOAD
from nmpsim.timing import Costs, get_costs
from nmpsim.timing.compute import ceil_div
from nmpsim.timing.work import count_busy_cycles

SOURCE = Path(__file__).with_name("dramsim3_networks.cc")
UNITS = "LSMV"
"""Letters of the units in the file of the program."""
BOX = ("dram", "run_bytes", "count_x", "count_y", "dram_stride_x", "dram_stride_y")
SYNCHRONIZATION = {"nmp.wait": "W", "nmp.barrier": "B"}
"""Instructions that name two numbers."""


class ProgramWriter:
    """Consumer of the events of a recording that lists the instructions of each core as lines."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._pc: dict[int, int] = {}
        self.lines: list[str] = []

    def __call__(self, events: Any, words: Any, first_word: int) -> bool:
        """Append the lines of some events, in order; return True, to go on."""
        for event in events.tolist():
            number, core = event[ContractEvent.NUMBER], event[ContractEvent.CORE]
            if number < 0:
                continue
            pc = event[ContractEvent.PC]
            before = (pc - self._pc.get(core, pc - 4)) // 4 - 1
            if not 0 <= before < 64:
                raise SystemExit(
                    f"core {core}: jump to {pc:#x}, which this comparison cannot count"
                )
            self._pc[core] = pc
            unit = INSTRUCTION_UNIT[number]
            if unit >= 0:
                row = words[event[ContractEvent.ITEM], first_word:]
                text = self._format_tensor_instruction(number, unit, row)
            elif (mnemonic := INSTRUCTIONS[number].mnemonic) == "nmp.halt":
                text = "H"
            else:
                numbers = event[ContractEvent.FIRST], event[ContractEvent.SECOND]
                text = f"{SYNCHRONIZATION[mnemonic]} {numbers[0]} {numbers[1]}"
            self.lines.append(f"{core} {before} {text}\n")
        return True

    def _format_tensor_instruction(self, number: int, unit: int, words: Any) -> str:
        if unit > Unit.STORE:
            cycles = count_busy_cycles(FOOTPRINT_KIND[number], words, self._costs)
            return f"{UNITS[unit]} {cycles}"
        padding = count_padding_bytes(words) if unit == Unit.LOAD else 0
        setup = ceil_div(padding, self._costs.dma_fill_bytes_per_cycle)
        box = " ".join(str(words[getattr(LOAD, name)]) for name in BOX)
        return f"{UNITS[unit]} {setup} {box}"


def record_steps(bundle: Bundle, config: DeviceConfig) -> Iterator[tuple[list[str], int]]:
    """Yield the program of each device step as lines, and its cycles in nmpsim."""
    engine, costs = CompiledEngine(), get_costs(config)
    machine = make_bundle_machine(bundle, config)
    for step in bundle.metadata.steps:
        if step.kind != "device":
            continue
        start_cores(machine, step.entry or 0)
        begin, writer = int(machine.cores.clock.max()), ProgramWriter(costs)
        found = engine.record(machine, costs, writer)
        if found is None:
            raise SystemExit(f"{bundle.path}: the cycles of the program depend on data")
        found.set_timing(machine)
        yield writer.lines, int(machine.cores.clock.max()) - begin
        end_segment(machine)


def format_device(config: DeviceConfig, preset: str) -> str:
    """Return the first line of a program: the device."""
    clocks = dramsim3.CLOCK_MHZ[preset] // config.cores_clock_mhz
    values = (
        config.cores_count,
        clocks,
        config.dram_burst_bytes,
        config.queues_depth,
        config.control_descriptor_cycles,
        config.dma_startup_cycles,
        config.dram_latency_cycles,
        config.dram_write_latency_cycles,
        config.sync_barrier_cycles,
    )
    return " ".join(map(str, values)) + "\n"


def make_settings(preset: str) -> str:
    """Return the settings of DRAMsim3 with a latency of reads of one clock."""
    text = dramsim3.SETTINGS[preset].lstrip()
    lines = dict(line.partition(" = ")[::2] for line in text.splitlines())
    turn = int(lines["tRTRS"]) + int(lines["CL"]) - 1
    return dramsim3.changed(text, ["CL=1", f"tRTRS={turn}"]) + dramsim3.CONTROLLER


def compare(preset: str, path: Path, program: Path, folder: Path) -> None:
    """Print the cycles of a network in nmpsim and in DRAMsim3."""
    device = folder / "device.toml"
    device.write_text(f'[dram]\npreset = "{preset}"\n', encoding="utf-8")
    config = load_device(device)
    (folder / "dram.ini").write_text(make_settings(preset), encoding="utf-8")
    own = theirs = 0
    for lines, cycles in record_steps(dramsim3.compiled_for(nmpsim.load(path), config), config):
        text = "".join([format_device(config, preset), *lines])
        (folder / "program").write_text(text, encoding="utf-8")
        words = [str(program), "dram.ini", "program"]
        done = subprocess.run(words, check=True, capture_output=True, text=True, cwd=folder)
        own, theirs = own + cycles, theirs + int(done.stdout.split()[-1])
    print(
        f"| {preset} | {path.stem} | {own:,} | {theirs:,} | {own / theirs - 1:+.1%} |", flush=True
    )


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--preset", choices=sorted(dramsim3.SETTINGS), action="append")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = dramsim3.build_program(SOURCE, given.folder, folder)
        for preset in given.preset or dramsim3.SETTINGS:
            for path in given.bundles:
                compare(preset, path, program, folder)


if __name__ == "__main__":
    main()
