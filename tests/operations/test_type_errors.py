"""Test the errors for host operations with mismatched types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from one_instruction import OneInstruction, quantized_type

from nmpsim.diagnostics import UserError
from nmpsim.lir.nodes import TensorType


def real(*shape: int) -> TensorType:
    return TensorType("float", shape)


def index(*shape: int) -> TensorType:
    return TensorType("index64", shape)


def int8(*shape: int, scale: float = 0.5) -> TensorType:
    return quantized_type("i8", shape, scale, 0)


SCRATCH = quantized_type("i8", (8,), 0.0, 0)
WRONG: list[tuple[str, tuple[TensorType, ...], dict[str, Any], str]] = [
    ("topk", (real(5), index(5), real(4), SCRATCH), {"K": 5}, "K is larger than"),
    ("topk", (real(2), real(2), real(4), SCRATCH), {"K": 2}, "Indices has the wrong element kind"),
    ("topk", (int8(2, scale=1.0), index(2), int8(4), SCRATCH), {"K": 2}, "differ in scale"),
    ("argmax", (real(3), real(3, 2)), {"Axis": 1, "KeepDims": 0}, "Dest has the wrong element"),
    ("argmax", (index(3), real(3, 2)), {"Axis": 2, "KeepDims": 0}, "not a dimension of Src"),
    ("argmin", (index(3), real(3, 2)), {"Axis": 1, "KeepDims": 1}, "Dest has the wrong shape"),
    ("gather", (real(2), real(4, 3), index(2)), {"BatchDims": 0}, "Dest has the wrong shape"),
    ("gathernd", (real(2), real(4), index(2, 2)), {"BatchDims": 0}, "wrong shape for Data"),
    ("gatherelements", (real(2, 2), real(1, 4), index(2, 2)), {"Dim": 1}, "wrong shape for Data"),
    ("cumsum", (real(4), real(4)), {"Dim": -2, "Exclusive": 0, "Reverse": 0}, "-1 to 0"),
    ("flip", (real(4), real(4)), {"Axis": 1}, "Axis is not a dimension of Src"),
    ("flip", (int8(4, scale=1.0), int8(4)), {"Axis": 0}, "differ in scale or offset"),
    ("batchedreducemax", (real(2), real(2, 3)), {"Axes": (1, 1)}, "not distinct dimensions"),
    ("spacetodepth", (real(1, 1, 1, 4), real(1, 2, 3, 1)), {"BlockSize": 2}, "does not divide Src"),
    ("elementexp", (int8(4), int8(4)), {}, "Src has the wrong element kind"),
    ("elementand", (real(4), real(4), real(4)), {}, "LHS has the wrong element kind"),
    ("elementpow", (real(4), real(4), real(3)), {}, "RHS has the wrong shape"),
    ("modulo", (index(4), index(4)), {"Divisor": 0, "SignFollowDivisor": 0}, "Divisor is"),
    ("modulo", (index(4), index(4)), {"Divisor": 1 << 31, "SignFollowDivisor": 0},
     "an integer of at least 1, at most 2147483647"),
    ("convertto", (real(4), int8(4)), {}, "Input has the wrong element kind"),
    ("resizebilinear", (real(1, 2, 2, 2), real(1, 2, 2, 1)), {"Scale": (1.0, 1.0, 1.0, 2.0)},
     "Scale changes more than height and width"),
    ("bucketize", (index(4), real(4)), {"Boundaries": (2.0, 1.0)}, "not in ascending order"),
    ("batchmatmul", (real(2, 3, 3), real(2, 3, 4), real(2, 3, 3)), {}, "RHS has the wrong shape"),
    ("layernormalization", (real(2, 4), real(2, 4), real(3), real(3)), {"Epsilon": 0.1},
     "Scale has the wrong shape for Src"),
    ("adaptiveavgpool", (real(1, 5, 4, 2), real(1, 4, 4, 2)), {}, "Dest has the wrong shape"),
    ("avgpool", (real(1, 2, 2, 2, 1), real(1, 4, 4, 4, 1)),
     {"Kernels": (2, 2), "Strides": (2, 2), "Pads": (0, 0, 0, 0), "Layout": 2,
      "CountIncludePads": 0}, "Kernels does not match Layout 2"),
    ("avgpool", (real(1, 2, 2, 2, 1), real(1, 4, 4, 4, 1)),
     {"Kernels": (2, 2, 2), "Strides": (2, 2, 2), "Pads": (0,) * 6, "Layout": 0,
      "CountIncludePads": 0}, "wrong number of dimensions"),
    ("convolution3d", (real(1, 1, 1, 1, 2), real(1, 2, 2, 2, 3), real(2, 2, 2, 2, 1), real(2)),
     {"Kernels": (2, 2, 2), "Strides": (1, 1, 1), "Pads": (0,) * 6, "Group": 2},
     "Group does not divide the channels"),
    ("convtranspose", (real(1, 2, 2, 1), real(1, 2, 2, 1), real(1, 2, 2, 1), real(1)),
     {"Kernels": (2, 2), "Strides": (2, 2), "Pads": (0,) * 4, "Group": 1, "Dilation": (1, 1)},
     "H >= 4 and W >= 4"),
    ("batchnormalization", (real(1, 2, 3), real(1, 2, 3), *(real(3) for _ in range(4))),
     {"ChannelIdx": 1, "Epsilon": 0.1, "Momentum": 0.1}, "Scale has the wrong shape"),
]  # fmt: skip


@pytest.mark.parametrize(("opcode", "types", "attributes", "message"), WRONG)
def test_type_errors_are_reported(
    opcode: str, types: tuple[TensorType, ...], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        OneInstruction(opcode, types, {}, attributes).module()
    assert {one.code for one in caught.value.diagnostics} <= {"LIR008", "LIR009"}
    assert message in str(caught.value)


def test_largest_integers_of_a_bundle_are_accepted() -> None:
    values = {"Src": np.array([(1 << 31) - 1, 1 << 31, -(1 << 40)])}
    attributes = {"Divisor": (1 << 31) - 1, "SignFollowDivisor": 0}
    rest = OneInstruction("modulo", (index(3), index(3)), values, attributes).run()["Dest"]
    assert rest.tolist() == [0, 1, -(1 << 40) % -((1 << 31) - 1)]


@pytest.mark.parametrize("number", [1 << 31, -(1 << 33), 1 << 50])
def test_large_integers_are_accepted_as_real_numbers(number: int) -> None:
    values = {"RHS": np.array([0.5, -2.0], np.float32)}
    types = (real(2), real(2))
    found = OneInstruction("elementmulconst", types, values, {"LHS": number}).run()
    same = OneInstruction("elementmulconst", types, values, {"LHS": float(number)}).run()
    assert found["Dest"].tolist() == same["Dest"].tolist() == [0.5 * number, -2.0 * number]
    found = OneInstruction("splat", (index(2),), {}, {"Value": number}).run()
    assert found["Dest"].tolist() == [number, number]


def test_only_workspaces_may_have_a_zero_scale() -> None:
    values = {"Input": np.zeros(4, np.float32)}
    types = (real(2), index(2), real(4), SCRATCH)
    assert OneInstruction("topk", types, values, {"K": 2}).module()
    with pytest.raises(UserError, match="the scale is invalid"):
        OneInstruction("flip", (SCRATCH, SCRATCH), {}, {"Axis": 0}).module()
