"""Cycles of networks by how the compiler cuts their layers, on 1 to 32 cores.

    python benchmarks/tilings.py [--shared ../shared] [--cores 1,2,4,8,16,32] [--only NAME ...]

Two networks are made here; LeNet, minires, minimob and ResNet-50 come from the folder of reference
files, where there is one. Prints a Markdown table: cycles of each mode, what `layer` saves, and
seconds of the processor that compiling with it takes. Cycles do not depend on the machine.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from networks import mobilenet_like, vgg_like

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.compiler.tiling.search import LAYER_TILINGS
from nmpsim.lir.constants import attach_constants, find_tensors_file
from nmpsim.lir.nodes import Module
from nmpsim.lir.parser import parse_file
from nmpsim.lir.verify import verify

RECORDED = {
    "lenet": "lir/lenet/i8_asym_b32/cpu.lir.txt",
    "minires": "lir/minires/i8_asym_b32/cpu.lir.txt",
    "minimob": "lir/minimob/i8_asym_b32/cpu.lir.txt",
    "ResNet-50": "lir/resnet50/i8_asym_b32/cpu.lir.txt",
}
RECIPE = "lir/resnet50/weights_recipe.py"
"""Makes the weights that ResNet-50's recording leaves out."""


def recorded(shared: Path, text: Path) -> Module:
    """Return a program of the reference files with its constants."""
    module = parse_file(text)
    weights = text.with_name(text.name.replace(".lir.txt", ".npz"))
    with tempfile.TemporaryDirectory() as folder:
        if "resnet50" in text.parts:
            weights = _with_recipe(shared, module, weights, Path(folder) / "weights.npz")
        module, _ = attach_constants(module, [weights], find_tensors_file(text))
    verify(module)
    return module


def _with_recipe(shared: Path, module: Module, weights: Path, target: Path) -> Path:
    """Return a file with the recorded constants and those that the recipe makes."""
    with np.load(weights) as archive:
        constants = {k: archive[k] for k in archive.files if k.startswith("const/")}
    made = runpy.run_path(str(shared / RECIPE))["weights"](8)
    for weight in module.weights:
        stem = weight.name.split("__")[0]
        if weight.constant and stem in made:
            constants.setdefault(f"const/{weight.name}", made[stem])
    np.savez(target, **constants)
    return target


def networks(shared: Path) -> Iterator[tuple[str, Callable[[], Module]]]:
    """Name of each network, and what makes it."""
    for name, text in RECORDED.items():
        if (shared / text).is_file():
            yield name, lambda text=text: recorded(shared, shared / text)  # type: ignore[misc]
        else:
            print(f"{name}: no {shared / text}, left out", file=sys.stderr)
    yield "VGG-like", vgg_like
    yield "MobileNet-like", mobilenet_like


def inputs_of(bundle: nmpsim.Bundle) -> dict[str, np.ndarray[Any, Any]]:
    """Zeros; cycles do not depend on values."""
    return {t.name: np.zeros(t.shape, np.float32) for t in bundle.metadata.inputs}


def measure(module: Module, config: nmpsim.DeviceConfig, tiling: str) -> tuple[int, float]:
    """Cycles on the device, and seconds of the processor for compiling."""
    begin = time.process_time()
    image = compile_module(module, config, tiling=tiling)
    seconds = time.process_time() - begin
    bundle = parse_bundle(image)
    return nmpsim.Device(config).run(bundle, inputs_of(bundle)).device_cycles, seconds


def rows(name: str, module: Module, cores: list[int]) -> Iterator[str]:
    """Yield a network's lines of the table."""
    for count in cores:
        config = attrs.evolve(nmpsim.default_device(), cores_count=count)
        cycles = {}
        seconds = {}
        for tiling in LAYER_TILINGS:
            cycles[tiling], seconds[tiling] = measure(module, config, tiling)
        layer = cycles["layer"]
        more = [f"{cycles[s]:,} | {1 - layer / cycles[s]:.1%}" for s in ("bytes", "simple")]
        yield f"| {name} | {count} | {layer:,} | {' | '.join(more)} | {seconds['layer']:.1f} |"


def shared_option(parser: argparse.ArgumentParser) -> None:
    """``--shared``: the folder of reference files."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    default = Path(os.environ.get("NMPSIM_SHARED", beside))
    parser.add_argument("--shared", type=Path, default=default, help="folder of reference files")


def main() -> None:
    """Print the table line by line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    shared_option(parser)
    parser.add_argument("--cores", default="1,2,4,8,16,32")
    parser.add_argument("--only", nargs="*", help="names of networks")
    given = parser.parse_args()
    cores = [int(count) for count in given.cores.split(",")]
    print("| network | cores | layer | bytes | saved | simple | saved | compile, s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for name, make in networks(given.shared):
        if given.only and name not in given.only:
            continue
        module = make()
        for line in rows(name, module, cores):
            print(line, flush=True)


if __name__ == "__main__":
    main()
