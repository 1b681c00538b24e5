"""Is the critical path true? Each cause at half its cost, and how much shorter the run gets.

It may get shorter by no more than the cause's share of the critical path, and by nothing where the
share is zero, as long as the DRAM serves grants in the same order. A row marked with ``!`` saved
more: another order was better than the old one (docs/timing.md, "Effect of faster resources").

    python benchmarks/critical_path.py [NETWORK ...]

NETWORK is ``digits``, ``mobile``, ``vgg`` or ``resnet50`` (which needs ``shared`` beside the
repository); without any, the first two.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import networks
import numpy as np
import resnet50_programs

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle, read_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.report.data import RunReport

HALVED: Mapping[str, Mapping[str, float]] = {
    "mac": {"mac_startup_cycles": 0.5, "mac_in_lanes": 2},
    "vector": {"vector_startup_cycles": 0.5, "vector_lanes": 2},
    "dram_service": {"dram_bytes_per_cycle": 2},
    "row_miss": {"dram_row_miss_cycles": 0.5},
    "latency": {"dram_latency_cycles": 0.5},
    "dma_start": {"dma_startup_cycles": 0.5, "dma_fill_bytes_per_cycle": 2},
    "control": {"control_descriptor_cycles": 0.5, "control_divide_cycles": 0.5},
    "barrier": {"sync_barrier_cycles": 0.5},
    "semaphore": {"sync_semaphore_cycles": 0.5},
}
"""Cause -> settings that make up its cost, and by what they are multiplied to halve it."""


def network(name: str, folder: Path) -> tuple[Bundle, dict[str, Any]]:
    """Return a compiled network and its inputs."""
    if name == "digits":
        digits = Path(__file__).parents[1] / "programs/digits"
        compiled = nmpsim.compile(digits / "digits.lir.txt", digits / "digits.npz")
        return compiled.bundle, {"data": np.load(digits / "images/7.npy")}
    if name == "resnet50":
        path, _ = resnet50_programs.compile_program(resnet50_programs.PROGRAMS[0], folder)
        return read_bundle(path), resnet50_programs.image()
    made = networks.mobilenet_like() if name == "mobile" else networks.vgg_like()
    bundle = parse_bundle(compile_module(made, nmpsim.default_device()))
    return bundle, {t.name: np.zeros(t.shape, np.int8) for t in bundle.metadata.inputs}


def run(bundle: Bundle, inputs: Mapping[str, Any], cause: str = "") -> RunReport:
    """Run on the default device with half the cost of one cause of cycles."""
    config = nmpsim.default_device()
    changes = {
        setting: int(getattr(config, setting) * factor)
        for setting, factor in HALVED.get(cause, {}).items()
    }
    return nmpsim.Device(attrs.evolve(config, **changes)).run(bundle, inputs, strict=False)


def main() -> None:
    """Print a table for each network."""
    parser = argparse.ArgumentParser()
    parser.add_argument("networks", nargs="*", default=["digits", "mobile"])
    for name in parser.parse_args().networks:
        with tempfile.TemporaryDirectory() as folder:
            bundle, inputs = network(name, Path(folder))
        report = run(bundle, inputs)
        print(f"{name}: {report.device_cycles:,} cycles, {report.limited_by}\n")
        print("| cause | critical path | saved at half its cost | |\n| --- | ---: | ---: | --- |")
        for cause, cycles in report.critical_path.items():
            saved = report.device_cycles - run(bundle, inputs, cause).device_cycles
            mark = "!" if saved > cycles else ""
            shares = f"{cycles / report.device_cycles:.1%} | {saved / report.device_cycles:.1%}"
            print(f"| `{cause}` | {shares} | {mark} |".replace("%", " %"), flush=True)
        print()


if __name__ == "__main__":
    main()
