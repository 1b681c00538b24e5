"""PyTorch and ONNX Runtime on near-ties, through the device: formulas that look alike part here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numerics.vectors import Case, near_ties
from test_torch_vectors import TorchProgram, int8, kind, move_channels_last
from tiers import get_share
from written_programs import run

LAYER = {"stride": (1, 1), "pad": (0, 0), "dil": (1, 1), "groups": 1, "relu": False}
Build = Callable[[TorchProgram, Case], str]
"""Writes the instruction of a case; the name of its result."""


def result(program: TorchProgram, case: Case) -> str:
    y = move_channels_last(case["y"]) if case["y"].ndim == 4 else case["y"]
    types = [case.get(f"y_{part}", case.get(f"x_{part}")) for part in ("scale", "zp")]
    return program.output(kind(y, *types))


def layer(program: TorchProgram, case: Case) -> str:
    x = move_channels_last(case["x"]) if case["x"].ndim == 4 else case["x"]
    given = program.tensor(x, case["x_scale"], case["x_zp"])
    y, types = result(program, case), {**LAYER, **case}
    return (program.linear if case["w"].ndim == 2 else program.convolution)(y, given, types)


def unsigned_attribute(case: Case) -> dict[str, int]:
    """Return ``Unsigned`` for ONNX Runtime, which rounds the zero point of uint8 as it is."""
    return {"Unsigned": 1} if case["engine"] == "onnx" else {}


def both_sides(opcode: str) -> Build:
    def build(program: TorchProgram, case: Case) -> str:
        sides = [program.tensor(case[n], case[f"{n}_scale"], case[f"{n}_zp"]) for n in "ab"]
        return program.emit(opcode, result(program, case), *sides, **unsigned_attribute(case))

    return build


def quantize(program: TorchProgram, case: Case) -> str:
    return program.emit("quantize", result(program, case), program.input(case["x"]))


def average(program: TorchProgram, case: Case) -> str:
    x = move_channels_last(case["x"])
    size = x.shape[1] // case["y"].shape[2]
    given = program.tensor(x, case["x_scale"], case["x_zp"])
    sizes = {"Kernels": [size, size], "Strides": [size, size], "Pads": [0, 0, 0, 0]}
    y = result(program, case)
    is_global = {"Global": 1} if case["kind"] == "QLinearGlobalAveragePool" else {}
    more = is_global or unsigned_attribute(case)
    return program.emit("avgpool", y, given, **sizes, Layout=0, CountIncludePads=0, **more)


BUILD: dict[str, Build] = {
    "layer": layer,
    "one_scale": layer,
    "add": both_sides("elementadd"),
    "mul": both_sides("elementmul"),
    "quantize": quantize,
    "adaptive": average,
    "QLinearAdd": both_sides("elementadd"),
    "QLinearMul": both_sides("elementmul"),
    "QLinearAveragePool": average,
    "QLinearGlobalAveragePool": average,
}
ELSEWHERE = {"blocks"}
"""Exception: torch-average-blocks."""


def choose_numerics(case: Case) -> str:
    if case["engine"] == "onnx":
        return "float"
    return f"float-{case['engine'] or 'fbgemm'}"


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("kind_of_case", BUILD)
def test_near_ties_equal_pytorch(tmp_path: Path, kind_of_case: str, engine: str) -> None:
    cases = list(near_ties())
    assert {case["kind"] for case in cases} == set(BUILD) | ELSEWHERE
    chosen = [case for case in cases if case["kind"] == kind_of_case]
    for case in chosen[:: get_share(2)] if engine == "compiled" else chosen[::3]:
        program, numerics = TorchProgram(), choose_numerics(case)
        y = BUILD[kind_of_case](program, case)
        found = run(program, tmp_path, engine, numerics=numerics).outputs[y]
        expected = int8(move_channels_last(case["y"]) if case["y"].ndim == 4 else case["y"])
        if kind_of_case == "add" and numerics != "float-qnnpack":
            # torch-add-tail: the last elements take another path in PyTorch.
            whole = expected.size // 64 * 64
            found, expected = found[:whole], expected[:whole]
        np.testing.assert_array_equal(found, expected, err_msg=numerics)
