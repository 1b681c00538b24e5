"""Compare every recorded one-operation model with TFLite, or test that it is refused."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from frontend_cases import Operations

import nmpsim

CASES = {
    "ADD": ("int16", "int8", "uint8"),
    "AVERAGE_POOL_2D": ("int16", "int8", "uint8"),
    "BATCH_MATMUL": ("int8",),
    "CONCATENATION": ("uint8",),
    "CONV_2D": ("int16-int8", "int8", "uint8"),
    "DEPTHWISE_CONV_2D": ("int16-int8", "int8", "uint8"),
    "FULLY_CONNECTED": ("int16-int8", "int8", "uint8"),
    "HARD_SWISH": ("int8", "uint8"),
    "LEAKY_RELU": ("int8", "uint8"),
    "LOGISTIC": ("int16", "int8", "uint8"),
    "MAXIMUM": ("int8", "uint8"),
    "MEAN": ("int16", "int8", "uint8"),
    "MUL": ("int16", "int8", "uint8"),
    "PRELU": ("int8", "uint8"),
    "QUANTIZE": (
        *("float32-int16", "float32-int8", "float32-uint8", "int16-int8", "int16", "int8-int16"),
        *("int8-uint8", "int8", "uint8-int8", "uint8"),
    ),
    "RELU6": ("int16", "int8", "uint8"),
    "RELU": ("int16", "int8", "uint8"),
    "RESIZE_BILINEAR": ("int16", "int8", "uint8"),
    "RESIZE_NEAREST_NEIGHBOR": ("int16", "int8", "uint8"),
    "SOFTMAX": ("int16", "int8", "uint8"),
    "SUB": ("int16", "int8", "uint8"),
    "TANH": ("int16", "int8", "uint8"),
    "TRANSPOSE_CONV": ("int8", "int8-int16", "uint8"),
    "ties_CONV_2D": ("int16-int8", "int8", "uint8"),
    "ties_FULLY_CONNECTED": ("int16-int8", "int8", "uint8"),
    "ties_MUL": ("int16", "int8", "uint8"),
    "ties_PRELU": ("int8",),
}
REFUSED = {"SUM_int8": 6}
"""Operations whose formula is not known."""


@pytest.fixture(scope="module")
def device() -> nmpsim.Device:
    return nmpsim.Device(threads=1)


@pytest.mark.parametrize("operation", CASES)
def test_operations_equal_recorded_results(
    operation: str, operations: Operations, device: nmpsim.Device
) -> None:
    wrong: Counter[str] = Counter()
    cases = [case for types in CASES[operation] for case in operations(f"{operation}_{types}")]
    assert cases
    for case in cases:
        bundle = nmpsim.compile(case.model, tiling="simple").bundle
        report = device.run(bundle, case.inputs)
        for got, expected in zip(report.outputs.values(), case.outputs, strict=True):
            assert got.dtype == expected.dtype, case.name
            wrong[case.name] += int(np.count_nonzero(got.reshape(expected.shape) != expected))
    assert +wrong == {}


@pytest.mark.parametrize("kind", REFUSED)
def test_unsupported_operations_are_refused(kind: str, operations: Operations) -> None:
    cases = operations(kind)
    assert len(cases) == REFUSED[kind]
    for case in cases:
        with pytest.raises(nmpsim.UserError) as error:
            nmpsim.compile(case.model)
        (finding,) = error.value.diagnostics
        assert finding.code == "MODEL002"
        assert kind.rpartition("_")[0] in finding.message
