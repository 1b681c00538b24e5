"""TFLite's recorded Int16 operations as LIR programs under q31."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import tflite
from numerics.vectors import Case, TfliteModel, csv_numbers
from written_programs import Array, Program, make_kind, run


@attrs.frozen
class RecordedModel:
    """Recorded one-operation model with its inputs and its golden output."""

    name: str
    options: Any
    inputs: list[Case]
    output: Case
    golden: Array


def recorded(shared: Path, operation: str) -> Iterator[RecordedModel]:
    for path in sorted((shared / "golden" / "tflite_int16" / operation).glob("*.tflite")):
        model = TfliteModel(path)
        ((_, options, inputs, output),) = model.operators()
        tensors, result = [model.tensor(number) for number in inputs], model.tensor(output)
        given = iter(sorted(path.parent.glob(f"{path.stem}_input*.csv")))
        for tensor in tensors:
            if tensor["data"] is None:
                values = csv_numbers(next(given)).reshape(tensor["shape"])
                tensor["data"] = values.astype(tensor["dtype"])
        (golden,) = path.parent.glob(f"{path.stem}_golden_*.csv")
        values = csv_numbers(golden).reshape(result["shape"]).astype(result["dtype"])
        yield RecordedModel(path.name, options, tensors, result, values)


def convolution(p: Program, case: RecordedModel) -> str:
    """Add a convolution with one weight scale per channel and an Int64 bias that fits Int32."""
    assert case.options.Padding() == tflite.Padding.VALID
    x, w, b = case.inputs
    count = len(w["scale"])
    bias = b["data"].astype(np.int32)
    np.testing.assert_array_equal(bias, b["data"])
    zeros = np.zeros(count, np.int32)
    tables = [
        p.constant(w["scale"]),
        p.constant(zeros, elem="index32"),
        p.constant(b["scale"]),
        p.constant(zeros, elem="index32"),
    ]
    return p.emit(
        "channelwisequantizedconvolution",
        p.output(make_kind(case.golden, case.output["scale"], case.output["zero"])),
        p.input(x["data"], x["scale"], x["zero"]),
        p.constant(w["data"], 1),
        p.constant(bias, 1),
        *tables,
        Kernels=w["shape"][1:3],
        Strides=(case.options.StrideH(), case.options.StrideW()),
        Pads=(0, 0, 0, 0),
        Group=1,
        Dilation=(1, 1),
        FusedActivation="NONE",
        FusedActivationArgs=[],
    )


def pair(opcode: str) -> Any:
    def build(p: Program, case: RecordedModel) -> str:
        """Add an operation on inputs that are broadcast beforehand, as Glow does."""
        shape, sides = case.output["shape"], case.inputs
        inputs = [
            p.input(np.array(np.broadcast_to(s["data"], shape)), s["scale"], s["zero"])
            for s in sides
        ]
        y = p.output(make_kind(case.golden, case.output["scale"], case.output["zero"]))
        return p.emit(opcode, y, *inputs)

    return build


def unary(opcode: str) -> Any:
    def build(p: Program, case: RecordedModel) -> str:
        (x,) = case.inputs
        y = p.output(make_kind(case.golden, case.output["scale"], case.output["zero"]))
        given = p.input(x["data"], x["scale"], x["zero"])
        attributes = {"Alpha": case.options.Alpha()} if opcode == "leakyrelu" else {}
        return p.emit(opcode, y, given, **attributes)

    return build


OPERATIONS = {
    "conv": (convolution, 15),
    "add": (pair("elementadd"), 12),
    "sub": (pair("elementsub"), 4),
    "leaky_relu": (unary("leakyrelu"), 16),
    "quantize": (unary("rescalequantized"), 2),
}
ON_HOST = {"quantize"}
"""Between Int16 and Int32, which the device's units do not take."""


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_int16_operations_equal_tflite(
    shared: Path, tmp_path: Path, operation: str, engine: str
) -> None:
    build, count = OPERATIONS[operation]
    cases = list(recorded(shared, operation))
    assert len(cases) == count
    for case in cases if engine == "compiled" else cases[::8]:
        program = Program()
        y = build(program, case)
        report = run(program, tmp_path, engine, numerics="q31")
        np.testing.assert_array_equal(report.outputs[y], case.golden, err_msg=case.name)
        assert report.layers[-1].placement == ("host" if operation in ON_HOST else "device")
