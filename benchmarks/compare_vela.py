"""Compare MAC utilization and off-chip bytes of networks with estimates of Arm's compiler Vela.

    python benchmarks/compare_vela.py [--shared ../shared] [--vela PROGRAM] [--accelerator NAME]

PROGRAM is ``vela`` of the package ``ethos-u-vela``, which takes the same TFLite files. nmpsim
runs each network on the default device, with and without chains of layers. Prints a Markdown
table. Utilization is multiplications / (cycles x multipliers). Off-chip bytes are those of all
DRAM bursts in nmpsim, and those that Vela estimates for its DRAM.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import tempfile
from pathlib import Path

from chains import random_inputs
from tilings import shared_option

import nmpsim

MEMORY = ("--system-config", "Ethos_U65_High_End", "--memory-mode", "Dedicated_Sram")
TILINGS = ("layer", "chain")


def measure_nmpsim(model: Path, tiling: str) -> tuple[float, int]:
    """Return MAC utilization and off-chip bytes of a model in nmpsim."""
    bundle = nmpsim.compile(model, tiling=tiling).bundle
    device = nmpsim.default_device()
    report = nmpsim.Device(device).run(bundle, random_inputs(bundle), strict=False)
    macs = sum(layer.macs for layer in report.layers)
    bursts = sum(layer.bursts for layer in report.layers)
    used = macs / (report.device_cycles * device.macs_per_cycle)
    return used, bursts * device.dram_burst_bytes


def measure_vela(model: Path, program: str, accelerator: str) -> tuple[float, int]:
    """Return MAC utilization and off-chip bytes of a model in Vela's estimate."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--accelerator-config", accelerator, *MEMORY, "--output-dir", folder]
        subprocess.run([program, str(model), *options], check=True, capture_output=True)
        (summary,) = Path(folder).glob("*_summary_*.csv")
        with summary.open(encoding="utf-8", newline="") as file:
            row = next(csv.DictReader(file))
    multipliers = int(accelerator.rpartition("-")[2])
    used = float(row["nn_macs"]) / (float(row["cycles_total"]) * multipliers)
    return used, int(float(row["dram_total_bytes"]))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    shared_option(parser)
    parser.add_argument("--vela", default="vela", metavar="PROGRAM")
    parser.add_argument("--accelerator", default="ethos-u65-512", metavar="NAME")
    given = parser.parse_args()
    titles = [*(f"nmpsim {tiling}" for tiling in TILINGS), given.accelerator]
    print(f"| network | {' | '.join(f'{title}: MACs | off-chip KB' for title in titles)} |")
    print(f"| --- |{' ---: | ---: |' * len(titles)}")
    for model in sorted(given.shared.glob("models/*/model.tflite")):
        found = [measure_nmpsim(model, tiling) for tiling in TILINGS]
        found.append(measure_vela(model, given.vela, given.accelerator))
        cells = " | ".join(f"{used:.1%} | {nbytes / 1000:,.0f}" for used, nbytes in found)
        print(f"| {model.parent.name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
