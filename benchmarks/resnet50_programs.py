"""Our side of the comparison: the ResNet-50 programs among the reference files."""

from __future__ import annotations

import os
import re
import runpy
import time
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

import nmpsim

DECLARED = re.compile(r"^  %(\w+) = WeightVar .* const", re.MULTILINE)


@attrs.frozen
class Program:
    """A ResNet-50 by the path of its text in the folder ``resnet50``."""

    title: str
    text: str
    bits: int


PROGRAMS = (
    Program("Int8, asymmetric", "i8_asym_b32/cpu.lir.txt", 8),
    Program("Int8, scales that are powers of two", "i8_pow2_b8/cpu.lir.txt", 8),
    Program("Int16", "i16_pow2_b16/nmp.lir.txt", 16),
)


def resnet50_folder() -> Path:
    """Where the programs are: in ``shared`` beside the repository, or in ``NMPSIM_SHARED``."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    return Path(os.environ.get("NMPSIM_SHARED", beside)) / "lir/resnet50"


def image() -> dict[str, npt.NDArray[Any]]:
    """Return the input that was recorded with the programs."""
    with np.load(resnet50_folder() / "input.npz") as archive:
        return {"data": archive["data"]}


def compile_program(program: Program, folder: Path) -> tuple[Path, float]:
    """Compile a program: its bundle, and the seconds from text and weights to the file."""
    text = resnet50_folder() / program.text
    weights = folder / "weights.npz"
    np.savez(weights, **_constants(text, program.bits))
    bundle = folder / f"{text.parent.name}.bin"
    begin = time.perf_counter()
    nmpsim.save(nmpsim.compile(text, weights), bundle)
    return bundle, time.perf_counter() - begin


def _constants(text: Path, bits: int) -> dict[str, npt.NDArray[Any]]:
    """Biases as recorded; the weights are those that a recipe makes."""
    made = runpy.run_path(str(resnet50_folder() / "weights_recipe.py"))["weights"](bits)
    with np.load(text.with_name(text.name.replace(".lir.txt", ".npz"))) as archive:
        known = {key: archive[key] for key in archive.files if key.startswith("const/")}
    for name in DECLARED.findall(text.read_text()):
        stem = name.partition("__")[0]
        if f"const/{name}" not in known and stem in made:
            known[f"const/{name}"] = made[stem]
    return known
