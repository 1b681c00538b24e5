"""Big networks: 75 to 300 MB of weights, and images of up to 1024 x 1024 pixels.

    python benchmarks/big_networks.py

Each network is written as text and weights, compiled by ``nmpsim compile`` and run by ``nmpsim
run``, each in a process of its own. Prints a Markdown table. Seconds are the processor's, of all
threads; memory is the most that the process had. It needs Linux or macOS.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
from networks import Network, vgg_like

from nmpsim.lir.nodes import Module
from nmpsim.lir.printer import format_module

WIDE = 4096
"""Values between two fully connected layers, each of 17 MB of weights."""
LAYERS = (1, 4, 9, 18)
SIZES = (256, 512, 1024)
LAUNCHER = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(code)
"""
"""A new process begins with the memory of who started it, so somebody small must."""
RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def connected(layers: int) -> Module:
    """Fully connected layers, one after the other."""
    network = Network(f"connected-{layers}")
    x = network.input(1, 1, 1, WIDE)
    for _ in range(layers):
        x = network.dense(x, WIDE)
    return network.module(x)


def measured(*arguments: str) -> tuple[float, int]:
    """Seconds of the processor and the most bytes of memory of one ``nmpsim`` command."""
    command = [sys.executable, "-c", LAUNCHER, sys.executable, "-m", "nmpsim", *arguments]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if answer.returncode:
        raise SystemExit(f"nmpsim {arguments[0]} failed with {answer.returncode}")
    seconds, most = answer.stdout.split()
    return float(seconds), int(most) * RSS_UNIT


def row(module: Module, folder: Path) -> str:
    """Return a line of the table."""
    text, weights, image, bundle = (
        str(folder / name) for name in ("n.lir.txt", "n.npz", "n.npy", "n.bin")
    )
    Path(text).write_text(format_module(module), encoding="utf-8")
    np.savez(weights, **module.constants)
    (source,) = (one for one in module.weights if one.name.startswith("data"))
    np.save(image, np.zeros(source.type.shape, np.int8))
    compiled = measured("compile", text, "--weights", weights, "-o", bundle)
    run = measured("run", bundle, "--input", image, "--engine", "compiled", "-o", os.devnull)
    held = sum(values.nbytes for values in module.constants.values())
    size = Path(bundle).stat().st_size
    times = "".join(
        f" {seconds:.1f} s | {most / 1e6:,.0f} MB |" for seconds, most in (compiled, run)
    )
    return f"| {module.name} | {held / 1e6:,.1f} MB | {size / 1e6:,.1f} MB |{times}"


def networks() -> Iterator[Module]:
    """All that are measured, the small ones of each kind first."""
    yield from map(connected, LAYERS)
    for size in SIZES:
        yield attrs.evolve(vgg_like(size), name=f"vgg-like-{size}")


def main() -> None:
    """Print the table line by line."""
    print("| network | weights | bundle | compile | memory | run | memory |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for module in networks():
            print(row(module, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
