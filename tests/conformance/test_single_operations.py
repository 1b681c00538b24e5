"""Single operations as LiteRT's reference kernels and ONNX Runtime answer them, on the device.

Those of golden/frontends whose arithmetic a profile has and whose tensors are Int8, Int16 or float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import tflite
from numerics.vectors import Case, TfliteModel
from written_programs import Array, Program, make_kind, run

ACTIVATION = tflite.ActivationFunctionType


@attrs.frozen
class RecordedModel:
    """Recorded one-operation model: options, inputs with their data, output, expected values."""

    name: str
    options: Any
    inputs: list[Case]
    output: Case
    expected: Array


def recorded(shared: Path, folder: Path, kind: str) -> Iterator[RecordedModel]:
    z = np.load(shared / "golden" / "frontends" / "tflite_ops.npz")
    for key in (name for name in z.files if name.split("/")[0] == kind and "/model" in name):
        case = key.removesuffix("/model")
        path = folder / "model.tflite"
        path.write_bytes(z[key].tobytes())
        model = TfliteModel(path)
        ((_, options, inputs, output),) = model.operators()
        tensors = [model.tensor(number) for number in inputs]
        given = (z[name] for name in sorted(z.files) if name.startswith(f"{case}/in"))
        for tensor in tensors:
            if tensor["data"] is None:
                tensor["data"] = next(given)
        yield RecordedModel(case, options, tensors, model.tensor(output), z[f"{case}/out0"])


def quantization(tensor: Case) -> tuple[Any, ...]:
    """Return scale and zero point, or nothing for real numbers."""
    return () if tensor["dtype"] == np.float32 else (tensor["scale"], tensor["zero"])


def add_input(p: Program, tensor: Case, shape: tuple[int, ...]) -> str:
    """Add an input whose data are broadcast to the shape beforehand, as Glow does."""
    return p.input(np.array(np.broadcast_to(tensor["data"], shape)), *quantization(tensor))


def add_operation(p: Program, case: RecordedModel) -> str:
    return p.output(make_kind(case.expected, *quantization(case.output)))


Build = Callable[[Program, RecordedModel], str]


def elementwise(opcode: str) -> Build:
    def build(p: Program, case: RecordedModel) -> str:
        sides = [add_input(p, tensor, case.expected.shape) for tensor in case.inputs]
        alpha = {"Alpha": case.options.Alpha()} if opcode == "leakyrelu" else {}
        return p.emit(opcode, add_operation(p, case), *sides, **alpha)

    return build


def average(p: Program, case: RecordedModel) -> str:
    (x,), at = case.inputs, case.options
    kernels, strides = (at.FilterHeight(), at.FilterWidth()), (at.StrideH(), at.StrideW())
    sizes = zip(case.expected.shape[1:3], strides, kernels, x["data"].shape[1:3], strict=True)
    total = [max((y - 1) * s + k - n, 0) for y, s, k, n in sizes]
    if at.Padding() == tflite.Padding.VALID:
        total = [0, 0]
    before = [one // 2 for one in total]
    pads = (*before, total[0] - before[0], total[1] - before[1])
    sizes_ = {"Kernels": kernels, "Strides": strides, "Pads": pads}
    source = add_input(p, x, x["data"].shape)
    return p.emit("avgpool", add_operation(p, case), source, **sizes_, Layout=0, CountIncludePads=0)


OPERATIONS: dict[str, Build] = {
    **dict.fromkeys(("ADD_int8", "ADD_int16"), elementwise("elementadd")),
    **dict.fromkeys(("SUB_int8", "SUB_int16"), elementwise("elementsub")),
    **dict.fromkeys(
        ("MUL_int8", "MUL_int16", "ties_MUL_int8", "ties_MUL_int16"), elementwise("elementmul")
    ),
    **dict.fromkeys(("MAXIMUM_int8",), elementwise("elementmax")),
    **dict.fromkeys(("LEAKY_RELU_int8",), elementwise("leakyrelu")),
    **dict.fromkeys(("AVERAGE_POOL_2D_int8", "AVERAGE_POOL_2D_int16"), average),
    **dict.fromkeys(("QUANTIZE_float32-int8", "QUANTIZE_float32-int16"), elementwise("quantize")),
    **dict.fromkeys(
        ("QUANTIZE_int8", "QUANTIZE_int16", "QUANTIZE_int8-int16", "QUANTIZE_int16-int8"),
        elementwise("rescalequantized"),
    ),
}


def clip_by_activation(values: Array, case: RecordedModel) -> Array:
    """Return values clipped by the activation that the model fuses, on the grid of the result."""
    kind = getattr(case.options, "FusedActivationFunction", lambda: ACTIVATION.NONE)()
    scale, zero = float(case.output["scale"]), int(case.output["zero"])
    bounds = {ACTIVATION.RELU: (0, None), ACTIVATION.RELU6: (0, 6)}.get(kind, (None, None))
    low, high = (None if b is None else zero + round(b / scale) for b in bounds)
    return values if kind == ACTIVATION.NONE else np.clip(values, low, high)


@pytest.mark.parametrize("kind", OPERATIONS)
def test_operations_equal_litert(shared: Path, tmp_path: Path, kind: str) -> None:
    ran = 0
    for case in recorded(shared, tmp_path, kind):
        program = Program()
        y = OPERATIONS[kind](program, case)
        report = run(program, tmp_path, numerics="q31")
        found = clip_by_activation(report.outputs[y], case)
        np.testing.assert_array_equal(found, case.expected, err_msg=case.name)
        ran += 1
    assert ran >= 2


def test_batch_matmul_equals_litert(shared: Path, tmp_path: Path) -> None:
    ran = 0
    for case in recorded(shared, tmp_path, "BATCH_MATMUL_int8"):
        left, right = case.inputs
        for index in np.ndindex(case.expected.shape[:-2]):
            program = Program()
            sides = [program.input(t["data"][index], *quantization(t)) for t in (left, right)]
            kind = make_kind(case.expected[index], *quantization(case.output))
            y = program.emit("matmul", program.output(kind), *sides)
            found = run(program, tmp_path, numerics="q31").outputs[y]
            np.testing.assert_array_equal(found, case.expected[index], err_msg=case.name)
            ran += 1
    assert ran >= 12
