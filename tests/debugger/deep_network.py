"""Network with any number of small layers."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np

import nmpsim
from nmpsim.bundle import Bundle

TYPE = "i8[S:0.5 O:0][-64.000,63.500]<1 x 2 x 2 x 4>"
POOL = "{ Kernels: [1, 1], Strides: [1, 1], Pads: [0, 0, 0, 0], Layout: 0}"
IMAGE = np.arange(-8, 8, dtype=np.int8).reshape(1, 2, 2, 4)
DEVICE = attrs.evolve(nmpsim.default_device(), cores_count=1)


def deep_network(folder: Path, layers: int) -> Bundle:
    """Return a bundle of ``layers`` pools in sequence that pass on their input."""
    held = [f"value{n}" for n in range(layers - 1)]
    sources, results = ["x", *held], [*held, "y"]
    code: list[str] = []
    for n, (source, result) in enumerate(zip(sources, results, strict=True)):
        if result in held:
            code.append(f"%{result} = allocactivation {{ Ty: {TYPE}}}")
        code.append(f"%pool{n} = maxpool @out %{result}, @in %{source} {POOL}")
        if n:
            code.append(f"%free{n} = deallocactivation @out %{source}")
    weights = "".join(f"  %{name} = WeightVar {TYPE} mutable\n" for name in ("x", "y"))
    numbered = "".join(f"  {n} {line}\n" for n, line in enumerate(code))
    path = folder / "deep.lir.txt"
    path.write_text(f"function deep\ndeclare {{\n{weights}}}\n\ncode {{\n{numbered}}}\n")
    return nmpsim.compile(path, device=DEVICE).bundle
