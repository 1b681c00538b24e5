"""Host operations in the profile that is asked for; what has no such arithmetic is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmpsim.isa.profiles import NUMERICS_NAMES
from nmpsim.kernels.hostops import HostTensor, UnsupportedHostOp
from nmpsim.kernels.hostops.rounding import fused_multiply_add
from nmpsim.lir.host_execution import execute_operation, find_unsupported_reason

Array = np.ndarray[Any, Any]
Case = dict[str, Array]
Golden = Callable[[str], list[Case]]
Programs = Callable[[str], Iterator[Any]]
TORCH = ("float-fbgemm", "float-qnnpack", "float-onednn")
INT8, INT16, FLOAT = (np.dtype(t) for t in (np.int8, np.int16, np.float32))


def test_every_int8_instruction_of_the_interpreter(programs: Programs) -> None:
    right: Counter[str] = Counter()
    wrong = []
    for program in programs(r"/i8_\w+/interp\.lir\.txt$"):
        for step in program.steps():
            if not step.comparable:
                continue
            outputs = execute_operation(
                step.opcode, step.operands, step.attributes, "glow-float"
            ).outputs
            if step.matches(outputs):
                right[step.opcode] += 1
            else:
                wrong.append(step.where)
    assert not wrong
    assert right["convolution"] >= 60
    assert right["elementmax"] >= 60
    assert right["elementselect"] >= 4
    assert right["elementcmplte"] >= 4
    assert right["elementadd"] >= 10
    assert right["avgpool"] >= 5
    assert right["fullyconnected"] >= 10


def tensor(values: Array, case: Case, name: str) -> HostTensor:
    scale, offset = float(case[f"{name}_scale"]), int(case[f"{name}_offset"])
    return HostTensor(values, scale, offset, quantized=True)


def test_golden_pairs_and_rescales_of_the_interpreter(golden: Golden) -> None:
    for case in golden("elementwise_i8.npz"):
        expected = case["expected_interp"]
        operands = [
            tensor(np.zeros_like(expected), case, "out"),
            tensor(case["lhs"], case, "lhs"),
            tensor(case["rhs"], case, "rhs"),
        ]
        found = execute_operation(f"element{case['op']}", operands, {}, "glow-float").outputs[0]
        np.testing.assert_array_equal(found, expected)
    for case in golden("rescale_quantize_dequantize.npz"):
        if str(case["elem"]) == "i8":
            expected = case["rescale_interp"]
            operands = [
                tensor(np.zeros_like(expected), case, "dst"),
                tensor(case["src"], case, "src"),
            ]
            found = execute_operation("rescalequantized", operands, {}, "glow-float").outputs[0]
            np.testing.assert_array_equal(found, expected)


# Quantization


def quantized(x: Any, scale: float, offset: int, numerics: str, dtype: Any = np.int8) -> int:
    dest = HostTensor(np.zeros(1, dtype), scale, offset, quantized=True)
    source = HostTensor(np.array([x], np.float32))
    return int(execute_operation("quantize", [dest, source], {}, numerics).outputs[0][0])


@pytest.mark.parametrize(
    ("numerics", "expected"),
    [
        # at half a step: nearest even with the zero point in it (1.5 -> 2), away, even without it
        ("glow-int", 2), ("glow-float", 2), ("nmp", 2), ("q31", 2), ("float", 1),
        # unsigned, 129.5 -> 130
        ("float-fbgemm", 2), ("float-qnnpack", 2), ("float-onednn", 2),
    ],
)  # fmt: skip
def test_half_a_step(numerics: str, expected: int) -> None:
    assert quantized(0.25, 0.5, 1, numerics) == expected


@pytest.mark.parametrize("numerics", sorted(NUMERICS_NAMES))
def test_ends_and_what_is_no_number(numerics: str) -> None:
    for dtype in (np.int8, np.int16):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        assert quantized(np.inf, 0.1, 3, numerics, dtype) == high
        assert quantized(-np.inf, 0.1, 3, numerics, dtype) == low
        assert quantized(-3e38, 1e-30, 3, numerics, dtype) == low
        assert quantized(np.nan, 0.1, 3, numerics, dtype) == 3
        assert quantized(0.0, 0.1, 3, numerics, dtype) == 3


reals = st.floats(-1000, 1000, width=32).filter(lambda x: x == 0 or abs(x) > 1e-30)
scales = st.floats(2.0**-10, 8.0, width=32)


@given(reals, scales, st.integers(-200, 200))
def test_a_multiply_add_is_rounded_once(x: float, factor: float, addend: int) -> None:
    """Against exact fractions; near halves of float32 a double rounding would show."""
    found = fused_multiply_add(np.array([x], np.float32), np.float32(factor), addend)
    exact = Fraction(x) * Fraction(factor) + addend
    assert found[0] == nearest_float32(exact)


def nearest_float32(exact: Fraction) -> np.float32:
    near = np.float32(float(exact))
    around = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    by_distance = sorted(around, key=lambda v: abs(Fraction(float(v)) - exact))
    first, second = by_distance[:2]
    if abs(Fraction(float(first)) - exact) == abs(Fraction(float(second)) - exact):
        return first if int(first.view(np.int32)) % 2 == 0 else second
    return first


def test_a_multiply_add_next_to_a_half_of_float32() -> None:
    """1 + 2^-24 + 2^-60 lies above a half; the product alone and twice rounded it would not."""
    x = np.array([1 + 2.0**-12], np.float32)
    factor = np.float32(2.0**-12 * (1 - 2.0**-12))
    exact = Fraction(float(x[0])) * Fraction(float(factor)) + 4096
    assert fused_multiply_add(x, factor, 4096)[0] == nearest_float32(exact)


@pytest.mark.parametrize("numerics", sorted(TORCH))
def test_pytorch_multiplies_by_a_reciprocal(numerics: str) -> None:
    generator = np.random.default_rng(5)
    x = generator.uniform(-40, 40, 20000).astype(np.float32)
    scale, zero = np.float32(0.3), 17
    dest = HostTensor(np.zeros(x.size, np.int8), float(scale), zero, quantized=True)
    found = execute_operation("quantize", [dest, HostTensor(x)], {}, numerics).outputs[0]
    placed = x.astype(np.float64) * np.float64(np.float32(1) / scale) + (zero + 128)
    wanted = np.clip(np.rint(placed.astype(np.float32)) - 128, -128, 127)
    np.testing.assert_array_equal(found, wanted)


# What is refused


@pytest.mark.parametrize("numerics", sorted(NUMERICS_NAMES))
def test_moves_and_float_operations_are_everyones(numerics: str) -> None:
    for opcode, dtypes in {
        "copy": [INT8, INT8],
        "transpose": [INT16, INT16],
        "maxpool": [INT8, INT8],
        "dequantize": [FLOAT, INT16],
        "softmax": [FLOAT, FLOAT],
        "elementadd": [FLOAT, FLOAT, FLOAT],
    }.items():
        assert find_unsupported_reason(opcode, dtypes, numerics) is None


@pytest.mark.parametrize(
    ("opcode", "dtypes", "without"),
    [
        ("elementadd", [INT8] * 3, {"q31", "float", *TORCH}),
        ("elementadd", [INT16] * 3, {"nmp", "q31", "float", *TORCH}),
        ("elementselect", [INT16, np.dtype(np.bool_), INT16, INT16], {"q31", "float", *TORCH}),
        ("fullyconnected", [INT8] * 3 + [np.dtype(np.int32)], {"nmp", "q31", "float", *TORCH}),
        ("rescalequantized", [INT8, INT8], {"float", *TORCH}),
    ],
)
def test_what_the_host_has_not(opcode: str, dtypes: list[Any], without: set[str]) -> None:
    found = {
        numerics for numerics in NUMERICS_NAMES if find_unsupported_reason(opcode, dtypes, numerics)
    }
    assert found == without
    for numerics in without:
        assert find_unsupported_reason(opcode, dtypes, numerics) == (
            f"the host does not support {opcode} with numerics {numerics}"
        )


def test_unknown_numerics() -> None:
    values = HostTensor(np.zeros(3, np.float32))
    with pytest.raises(UnsupportedHostOp, match="unknown numerics"):
        execute_operation("copy", [values, values], {}, "glow")


def test_operands_keep_their_own_numerics() -> None:
    values = HostTensor(np.zeros(3, np.int8), 0.5)
    execute_operation("copy", [values, values], {}, "glow-float")
    assert values.numerics == "glow-int"
