"""Compare every recorded one-operation model with ONNX Runtime."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from frontend_cases import Operations

import nmpsim

CASES = {
    "DynamicQuantizeLinear": ("float",),
    "QLinearConcat": ("int8", "uint8"),
    "QLinearConv": ("int8", "uint8"),
    "QLinearGlobalAveragePool": ("int8", "uint8"),
    "QLinearLeakyRelu": ("int8", "uint8"),
    "QLinearMatMul": ("int8", "uint8"),
    "QLinearSigmoid": ("int8", "uint8"),
    "QLinearSoftmax": ("int8", "uint8"),
    "QuantizeLinear": ("float-int16", "float-int8", "float-uint16", "float-uint8"),
}


@pytest.fixture(scope="module")
def device() -> nmpsim.Device:
    return nmpsim.Device(threads=1)


@pytest.mark.parametrize("operation", CASES)
def test_operations_equal_recorded_results(
    operation: str, onnx_operations: Operations, device: nmpsim.Device
) -> None:
    wrong: Counter[str] = Counter()
    for types in CASES[operation]:
        cases = onnx_operations(f"{operation}_{types}")
        assert len(cases) == 6
        for case in cases:
            names = [one.name for one in onnx.load(case.model).graph.input]
            shapes = {n: x.shape for n, x in zip(names, case.inputs, strict=True)}
            bundle = nmpsim.compile(case.model, input_shapes=shapes, tiling="simple").bundle
            report = device.run(bundle, case.inputs)
            for got, expected in zip(report.outputs.values(), case.outputs, strict=True):
                assert got.dtype == expected.dtype, case.name
                wrong[case.name] += int(np.count_nonzero(got != expected))
    assert +wrong == {}
