"""Test NaN, infinities, ties, out-of-range values and empty tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.helper
import onnx.reference
import pytest
from one_instruction import OneInstruction, plain_type, quantized_type

from nmpsim.diagnostics import UserError
from nmpsim.interpreter import execute_exact, execute_real
from nmpsim.kernels.hostops import HostTensor
from nmpsim.lir.host_execution import execute_operation
from nmpsim.lir.nodes import TensorType

F, I8 = np.float32, np.int8
NAN, INF = np.nan, np.inf


def run(opcode: str, out: Any, *sources: Any, dtype: Any = F, **attributes: Any) -> list[Any]:
    """Return the first result of an operation on sources that are not quantized."""
    arrays = [np.asarray(s, F) if not isinstance(s, np.ndarray) else s for s in sources]
    dest = HostTensor(np.zeros(out, dtype))
    result = execute_operation(opcode, [dest, *map(HostTensor, arrays)], attributes)
    return result.outputs[0].tolist()


def ints(*values: Any, dtype: Any = np.int64) -> Any:
    return np.array(values, dtype)


def test_maxima_handle_ties_and_nan() -> None:
    x = np.array([1, NAN, 3, 3, -INF, INF, -0.0, 0.0], F)
    operands = [HostTensor(np.zeros(8, F)), HostTensor(np.zeros(8, np.int64)), HostTensor(x)]
    scratch = HostTensor(np.zeros(1, I8))
    result = execute_operation("topk", [*operands, scratch], {"K": 8})
    assert result.outputs[1].tolist() == [5, 2, 3, 0, 6, 7, 4, 1]


@pytest.mark.parametrize(
    ("x", "largest", "smallest"),
    [
        ([1, 3, 3, 0, 0], 1, 3),
        ([NAN, 2, NAN, 1], 1, 3),
        ([NAN, NAN], 0, 0),
        ([-INF, -INF], 0, 0),
        ([INF, INF, 1], 0, 2),
        ([-INF, -3, INF], 2, 0),
    ],
)
def test_indices_of_extremes_are_the_first(x: Any, largest: int, smallest: int) -> None:
    """A first candidate must be above the lowest finite value (below the highest)."""
    assert run("argmax", (), x, dtype=np.int64, Axis=0, KeepDims=0) == largest
    assert run("argmin", (), x, dtype=np.int64, Axis=0, KeepDims=0) == smallest


def test_extremes_ignore_nan() -> None:
    x = [[NAN, 1.0, -5e9], [NAN, NAN, NAN]]
    assert run("batchedreducemin", (2,), x, Axes=(1,)) == [-5e9, INF]
    assert run("batchedreducemax", (2,), x, Axes=(1,)) == [1, -INF]


@pytest.mark.parametrize(
    ("opcode", "x", "y"),
    [
        ("elementsign", [-2, -0.0, NAN, INF], [-1, 0, 0, 1]),
        ("elementround", [0.5, 1.5, -2.5], [0, 2, -2]),
        ("elementrsqrt", [0, 4, INF], [INF, 0.5, 0]),
        ("elementreciprocal", [0.0, -0.0, 8], [INF, -INF, 0.125]),
        ("elementlog", [0, 1, INF], [-INF, 0, INF]),
        ("elementexp", [-INF, 0, 1000], [0, 1, INF]),
        ("softplus", [-200, 1000], [0, INF]),
        ("hardswish", [-4, -3, 0, 4], [0, 0, 0, F(F(24) * F(0.166666667))]),
        ("elementerf", [-INF, 0, INF], [-1, 0, 1]),
    ],
)
def test_functions_are_exact_at_their_limits(opcode: str, x: Any, y: Any) -> None:
    assert run(opcode, len(x), x) == [float(v) for v in y]


def test_functions_handle_nan_and_infinities() -> None:
    for opcode in ("elementlog", "elementsqrt", "elementrsqrt"):
        assert np.isnan(run(opcode, 2, [-1.0, NAN])).all()
    assert run("elementisnan", 3, [NAN, 1, INF], dtype=bool) == [True, False, False]
    replaced = run("nantonum", 3, [NAN, INF, -INF], Nan=1.0, PosInf=2.0, NegInf=3.0)
    assert replaced == [1, 2, 3]


def test_powers_equal_c() -> None:
    cases = [
        (0, 0, 1), (NAN, 0, 1), (1, NAN, 1), (1, INF, 1), (2, INF, INF), (0.5, INF, 0),
        (-2, 3, -8), (-2, 2, 4), (0, -1, INF), (4, 0.5, 2), (4097, 2, F(4097) * F(4097)),
    ]  # fmt: skip
    base, exponent, expected = zip(*cases, strict=True)
    assert run("elementpow", len(cases), base, exponent) == [float(v) for v in expected]
    assert np.isnan(run("elementpow", 1, [-2.0], [0.5])[0])


def test_conversions_beyond_the_range_saturate() -> None:
    x = [2.9, -2.9, NAN, 1e20, -1e20, INF, 2147483648.0]
    low, high = -(2**31), 2**31 - 1
    assert run("convertto", 7, x, dtype=np.int32) == [2, -2, 0, high, low, high, high]
    high = 2**63 - 1
    wide = [2, -2, 0, high, -high - 1, high, 2147483648]
    assert run("convertto", 7, x, dtype=np.int64) == wide
    assert run("convertto", 7, x, dtype=np.bool_) == [True] * 7
    assert run("convertto", 2, ints(2**32 + 5, -1), dtype=np.int32) == [5, -1]


def test_nan_falls_into_the_first_bucket() -> None:
    assert run("bucketize", 3, [NAN, 2, 9], dtype=np.int32, Boundaries=(1.0, 2.0, 3.0)) == [0, 1, 3]


def test_large_integers_stay_exact() -> None:
    big = 2**24 + 1
    assert run("elementneg", 1, ints(big), dtype=np.int64) == [-big]
    assert run("elementfmod", 1, ints(big), ints(2**23), dtype=np.int64) == [1]
    assert run("cumsum", 2, ints(big, 1), dtype=np.int64, Dim=0, Exclusive=0, Reverse=0) == [
        big,
        big + 1,
    ]


def index_type(*shape: int) -> TensorType:
    return TensorType("index64", shape)


OUT_OF_RANGE = [
    ("gather", {"BatchDims": 0}, (2,), (4,), [0, 4], "index 4 is not within 0 to 3"),
    ("gather", {"BatchDims": 0}, (2,), (4,), [0, -1], "index -1 is not within 0 to 3"),
    ("gathernd", {"BatchDims": 0}, (1,), (4, 2), [[0, 2]], "index 2 is not within 0 to 1"),
    ("gatherelements", {"Dim": 0}, (2,), (4,), [0, -5], "index -1 is not within 0 to 3"),
]


@pytest.mark.parametrize(("opcode", "attributes", "out", "data", "indices", "found"), OUT_OF_RANGE)
def test_an_index_out_of_range_is_an_error(
    opcode: str, attributes: Any, out: Any, data: Any, indices: Any, found: str
) -> None:
    values = {"Data": np.zeros(data, F), "Indices": np.array(indices)}
    types = (TensorType("float", out), *(plain_type(v) for v in values.values()))
    it = OneInstruction(opcode, types, values, attributes)
    for attempt in (
        it.run,
        lambda: list(execute_exact(it.module(), it.inputs())),
        lambda: list(execute_real(it.module(), it.inputs())),
    ):
        with pytest.raises(UserError, match=r"HOST001") as caught:
            attempt()
        assert found in str(caught.value)


@pytest.mark.parametrize(
    ("opcode", "types", "values", "found"),
    [
        (
            "gatherranges",
            (TensorType("float", (2,)), index_type(1)),
            {"Data": np.zeros(4, F), "Ranges": ints([[3, 2]])},
            "2 elements from index 3 exceed the 4 elements of Data",
        ),
        (
            "gatherranges",
            (TensorType("float", (2,)), index_type(1)),
            {"Data": np.zeros(4, F), "Ranges": ints([[0, 3]])},
            "the ranges have 3 elements, but Output has 2",
        ),
        (
            "batchonehot",
            (TensorType("float", (1, 2)),),
            {"Data": np.zeros((1, 1), F), "Lengths": ints(3), "Values": np.zeros(2, F)},
            "index 3 is not within 0 to 2",
        ),
        (
            "batchonehot",
            (TensorType("float", (1, 2)),),
            {"Data": np.zeros((1, 1), F), "Lengths": ints(1), "Values": np.zeros(2, F)},
            "Lengths add up to 1, but there are 2 Values",
        ),
    ],
)
def test_unsuitable_lengths_are_errors(opcode: str, types: Any, values: Any, found: str) -> None:
    it = OneInstruction(opcode, (*types, *(plain_type(v) for v in values.values())), values)
    with pytest.raises(UserError, match="HOST001") as caught:
        it.run()
    assert found in str(caught.value)


@pytest.mark.parametrize("seed", range(20))
def test_suppression_equals_the_onnx_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batches, classes, count, most = (int(i) for i in rng.integers(1, (3, 4, 9, 5)))
    boxes = rng.uniform(0, 4, (batches, count, 4)).astype(F)
    scores = rng.permutation(batches * classes * count).reshape(batches, classes, count) / F(9)
    center, iou, least = int(rng.integers(2)), 0.3, float(scores.mean())
    rows = batches * classes * most
    attributes = {
        "CenterPointBox": center, "MaxOutputBoxesPerClass": most, "IouThreshold": iou,
        "ScoreThreshold": least, "IsTFVersion4": 0,
    }  # fmt: skip
    values = {"Boxes": boxes, "Scores": scores.astype(F)}
    types = (
        index_type(rows, 3),
        index_type(batches * most),
        *(plain_type(v) for v in values.values()),
    )
    found = OneInstruction("nonmaxsuppression", types, values, attributes).run()
    node = onnx.helper.make_node("NonMaxSuppression", list("bsmit"), ["y"], center_point_box=center)
    given = {
        "b": boxes, "s": values["Scores"], "m": ints(most), "i": np.array([iou], F),
        "t": np.array([least], F),
    }  # fmt: skip
    (expected,) = onnx.reference.ReferenceEvaluator(node).run(None, given)
    for batch in range(batches):
        wanted = [row for row in expected.tolist() if row[0] == batch]
        got = found["Indices"][batch * rows // batches :][: rows // batches].tolist()
        assert got[: len(wanted)] == wanted
        assert len({tuple(row) for row in got[len(wanted) :]}) <= 1
        numbers = found["NumberOfSelectedIndices"][batch * most :][:most]
        assert set(numbers.tolist()) == {len(wanted)}


def test_suppression_repeats_the_worst_box() -> None:
    boxes = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [5, 5, 6, 6]], F)
    values = {"Boxes": boxes, "Scores": np.array([0.5, 0.9, 0.9], F)}
    attributes = {
        "CenterPointBox": 0, "MaxOutputBoxesPerClass": 4, "IouThreshold": 0.5,
        "ScoreThreshold": 0.1, "IsTFVersion4": 1,
    }  # fmt: skip
    types = (index_type(4), index_type(4), *(plain_type(v) for v in values.values()))
    found = OneInstruction("nonmaxsuppression", types, values, attributes).run()
    assert found["Indices"].tolist() == [1, 2, 0, 0]  # box 0 of class 0 is worse than both
    assert found["NumberOfSelectedIndices"].tolist() == [2] * 4


def test_other_numerics_refuse_unsupported_operations() -> None:
    grid = quantized_type("i8", (2,), 0.5, 0)
    x = {"Src": np.zeros(2, I8)}
    it = OneInstruction("elementsqrt", (grid, grid), x)
    assert it.run("nmp")["Dest"].tolist() == [0, 0]
    with pytest.raises(UserError, match="the host does not support elementsqrt with numerics q31"):
        it.run("q31")
    moved = OneInstruction("flip", (grid, grid), x, {"Axis": 0})
    assert moved.run("q31")["Dest"].tolist() == [0, 0]


@pytest.mark.parametrize("elem", ["i8", "i16"])
def test_a_quotient_is_rounded_away_from_zero(elem: str) -> None:
    rng = np.random.default_rng(3)
    dtype = TensorType(elem, ()).dtype
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    grids = [(0.25, 3), (0.5, -2), (0.125, 1)]
    dest, left, right = (quantized_type(elem, (500,), *at) for at in grids)
    values = {r: rng.integers(low, high, 500, endpoint=True).astype(dtype) for r in ("LHS", "RHS")}
    values["RHS"][:4] = 1  # real zero
    values["LHS"][:4] = [-2, 5, -9, 1]
    expected = []
    for q, p in zip(values["LHS"].tolist(), values["RHS"].tolist(), strict=True):
        over, under = F(0.5) * F(q + 2), F(F(0.125) * F(0.25)) * F(p - 1)
        with np.errstate(all="ignore"):
            ratio = F(over / under)
        ratio = F(0) if np.isnan(ratio) else ratio
        placed = float(F(max(-1e9, min(1e9, ratio)) + F(3)))
        rounded = np.floor(abs(placed) + 0.5) * np.sign(placed)
        expected.append(int(max(low, min(high, rounded))))
    assert expected[:4] == [3, high, low, high]
    it = OneInstruction("elementdiv", (dest, left, right), values)
    for numerics in ("glow-int", "glow-float"):
        assert it.run(numerics)["Dest"].tolist() == expected


@pytest.mark.parametrize(("elem", "numerics"), [("i8", "glow-float"), ("i16", "glow-int")])
def test_a_quantized_sum_is_scaled_once_and_rounded_before_the_offset(
    elem: str, numerics: str
) -> None:
    rng = np.random.default_rng(4)
    dtype = TensorType(elem, ()).dtype
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    batch = rng.integers(low // 4, high // 4, (7, 400)).astype(dtype)
    batch[:, :2] = 3  # the offset: real zero
    batch[0, :2] = [6, 0]  # sums of 3 and -3, half a step each
    types = quantized_type(elem, (400,), 2.0, 5), quantized_type(elem, (7, 400), 1.0, 3)
    expected = []
    for column in batch.T.tolist():
        ratio = float(F(F(sum(q - 3 for q in column)) * F(1)) / F(2))
        rounded = int(np.floor(abs(ratio) + 0.5)) * (1 if ratio >= 0 else -1)
        expected.append(max(low, min(high, rounded + 5)))
    assert expected[:2] == [7, 3]
    it = OneInstruction("batchedreduceadd", types, {"Batch": batch}, {"Axis": 0})
    assert it.run(numerics)["Dest"].tolist() == expected
