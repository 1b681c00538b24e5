"""Products of two matrices on the device, as ONNX Runtime and TFLite answer them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numerics.vectors import products
from written_programs import Program, make_kind, run

PROFILES = {"ONNX Runtime": "float", "LiteRT": "q31"}


@pytest.mark.parametrize("runtime", PROFILES)
def test_products_equal_recorded_results(tmp_path: Path, runtime: str) -> None:
    cases = [case for case in products() if case["runtime"] == runtime]
    assert len(cases) == {"ONNX Runtime": 24, "LiteRT": 48}[runtime]
    for case in cases:
        program = Program()
        left = program.input(case["lhs"], case["l_scale"], case["l_zero"])
        add = program.constant if case["constant"] else program.input
        right = add(case["rhs"], case["r_scale"], case["r_zero"])
        target = program.output(make_kind(case["y"], case["y_scale"], case["y_zero"]))
        program.emit("matmul", target, left, right)
        report = run(program, tmp_path, numerics=PROFILES[runtime])
        np.testing.assert_array_equal(report.outputs[target], case["y"])
        assert report.layers[-1].placement == "device"
