"""Recorded programs with their float models, and small programs for the shadow run."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import attrs
import corpus
import numpy as np
from shared_files import shared_folder, shared_names

from nmpsim.analysis.shadow import RecordedResults, RunLayer
from nmpsim.analysis.shadow.constants import read_floats, read_quantized_constants
from nmpsim.analysis.shadow.matching import Matches, match_constants
from nmpsim.lir.constants import attach_arrays
from nmpsim.lir.nodes import Module
from nmpsim.lir.parser import parse
from nmpsim.lir.verify import verify

Array = np.ndarray[Any, Any]
PROGRAMS = [
    name
    for name in shared_names("*.lir.txt")
    if name.startswith("lir_real/") and "before_opt" not in name
]


@attrs.frozen(eq=False)
class RecordedProgram:
    """Recorded program with its run and the float values that it was quantized from."""

    module: Module
    run: RecordedResults
    matches: Matches
    keys: dict[int, str]
    """Key of an instruction's output in the recording, by instruction number."""


@cache
def get_float_weights(net: str, sizes: frozenset[int]) -> dict[str, Array]:
    return read_floats(shared_folder() / "lir_real" / net / "model.onnx", sizes)


def load_recorded(name: str) -> RecordedProgram:
    text = shared_folder() / name
    module = corpus.load_module(text)
    with np.load(corpus.get_weights_path(text)) as archive:
        values = dict(archive)
    keys: dict[int, str] = {}
    for key in values:
        if key.startswith("act/"):
            keys.setdefault(int(key[4:8]), key)
    inputs = {k.removeprefix("input/"): v for k, v in values.items() if k.startswith("input/")}
    layers = [RunLayer((number,)) for number in sorted(keys)]
    run = RecordedResults(inputs, inputs, layers, {n: values[key] for n, key in keys.items()})
    constants = read_quantized_constants(module)
    sizes = frozenset(real.size for real in constants.values())
    net = Path(name).parts[1]
    return RecordedProgram(
        module, run, match_constants(constants, get_float_weights(net, sizes)), keys
    )


def parse_module(declare: str, code: str, **constants: Array) -> Module:
    """Parse a module from its declarations and code; instruction numbers are added."""
    numbered = "\n".join(
        f"  {number} {line.strip()}" for number, line in enumerate(code.strip().splitlines())
    )
    weights = "\n".join(f"  {line.strip()}" for line in declare.strip().splitlines())
    text = f"function small\ndeclare {{\n{weights}\n}}\n\ncode {{\n{numbered}\n}}\n"
    module, _ = attach_arrays(parse(text), constants)
    verify(module)
    return module
