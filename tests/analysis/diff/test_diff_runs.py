"""Two runs, matched by names, transposed where their layouts differ."""

from functools import partial

import attrs
import numpy as np
import pytest

from nmpsim.analysis.diff import (
    QuantizationParameters,
    compare_runs,
    list_saved_tensors,
    make_run_document,
)
from nmpsim.analysis.difference import Tolerance
from nmpsim.diagnostics import UserError
from nmpsim.views.console import render_text
from nmpsim.views.diff_text import print_run_difference

RNG = np.random.default_rng(5)
A = RNG.integers(-128, 128, (1, 5, 6, 4), np.int8)


def run(**arrays):
    return list(list_saved_tensors(arrays, arrays.__getitem__))


def make_keys(arrays):
    return list(list_saved_tensors(arrays, arrays.__getitem__))


def test_equal_runs_have_no_difference():
    found = compare_runs(run(a=A.copy()), run(a=A))
    assert not found.differing
    assert found.worst_tensor is None


def test_the_first_and_the_largest_difference_are_found():
    first = make_keys({"0001:a": A, "0002:b": A, "0003:c": A})
    b, c = A.copy(), A.copy()
    b[0, 1, 2, 3] ^= 1
    c[0, 4, 0, 0] ^= 64
    found = compare_runs(make_keys({"0003:c": c, "0002:b": b, "0001:a": A}), first)
    assert [one.name for one in found.differing] == ["b", "c"]
    assert found.worst_tensor.name == "c"
    assert found.worst_tensor.difference.worst.at == (0, 4, 0, 0)
    assert (found.differing[0].number, found.differing[0].worst_ulp) == (2, 1)
    document = make_run_document(found)
    assert (document["first"], document["worst"], document["equal"]) == ("b", "c", False)


def test_keys_of_only_one_run_are_listed():
    recorded = make_keys(
        {
            "const/w": A,
            "input/data": A,
            "act/0004:conv__2:conv__2_res": A,
            "act/0005:hidden:hidden_res": A,
            "output/prob": A,
        }
    )
    found = compare_runs(recorded, make_keys({"0004:conv__2": A, "0009:other": A}))
    assert [(one.name, one.operand) for one in found.tensors] == [("conv__2", None)]
    assert (found.only_first, found.only_second) == (("hidden", "prob"), ("other",))
    assert not compare_runs(recorded, run(prob=A)).differing


@pytest.mark.parametrize(
    ("layout", "axes", "told"), [("nchw", (0, 3, 1, 2), "NCHW"), ("nhwc", (0, 2, 3, 1), "NHWC")]
)
def test_layouts_are_converted(layout, axes, told):
    other = np.ascontiguousarray(A.transpose(axes))
    for asked in ("auto", layout):
        (one,) = compare_runs(run(a=other), run(a=A), layout=asked).tensors
        assert (one.layout_of_first, one.worst_ulp, one.problem) == (told, 0, "")
    (one,) = compare_runs(run(a=other), run(a=A), layout="same").differing
    shape = "x".join(map(str, other.shape))
    assert one.problem == f"shapes differ: {shape} in the first, 1x5x6x4 in the second"


def test_a_cube_is_transposed_only_on_request():
    cube = RNG.integers(-128, 128, (1, 4, 4, 4), np.int8)
    other = np.ascontiguousarray(cube.transpose(0, 3, 1, 2))
    assert compare_runs(run(a=other), run(a=cube)).differing
    assert not compare_runs(run(a=other), run(a=cube), layout="nchw").differing


def test_dimensions_of_one_are_ignored():
    assert not compare_runs(run(a=A.reshape(5, 6, 1, 4)), run(a=A)).differing


def test_different_types_are_reported():
    (one,) = compare_runs(run(a=A.astype(np.float32)), run(a=A)).differing
    told = "types differ: float32 in the first, int8 in the second"
    assert one.problem == f"{told}; pass --bundle to compare real values"
    (one,) = compare_runs(run(a=A.astype(np.int16)), run(a=A)).differing
    assert one.problem == "types differ: int16 in the first, int8 in the second"


def test_within_accepts_small_differences():
    other = A.copy()
    other[0, 0, 0, 0] ^= 1
    assert compare_runs(run(a=other), run(a=A)).differing
    assert not compare_runs(run(a=other), run(a=A), tolerance=Tolerance(ulp=1)).differing


SCALED = {"a": QuantizationParameters(0.5, 3)}
REAL = 0.5 * (A.astype(np.float32) - 3)


@pytest.mark.parametrize("float_is_first", [True, False])
def test_a_float_run_is_compared_with_real_values(float_is_first):
    wrong = REAL.copy()
    wrong[0, 1, 2, 3] += 10
    for real, differ in (
        (REAL, 0),
        (REAL + np.float32(0.2), 0 if float_is_first else 120),
        (wrong, 1),
    ):
        runs = (run(a=real), run(a=A)) if float_is_first else (run(a=A), run(a=real))
        (one,) = compare_runs(*runs, parameters=SCALED).tensors
        assert (one.compared_as_real, one.problem, one.difference.beyond) == (True, "", differ)
    assert one.difference.max_error == 10
    assert one.difference.first.at == one.difference.worst.at == (0, 1, 2, 3)
    signal, noise = (
        float((x**2).sum()) for x in (wrong if float_is_first else REAL, np.array([10.0]))
    )
    assert one.difference.sqnr_db == pytest.approx(10 * np.log10(signal / noise))
    tolerance = Tolerance(absolute=10)
    assert not compare_runs(*runs, parameters=SCALED, tolerance=tolerance).differing


def test_floats_are_compared_by_distance():
    a = np.array([1.0, 1e-30, 200.0], np.float32)
    b = np.array([1.0, -1e-30, 201.0], np.float32)
    (one,) = compare_runs(run(a=a), run(a=b)).differing
    assert (one.difference.worst.at, one.difference.max_error) == ((2,), 1.0)
    for tolerance, beyond in (
        (Tolerance(ulp=1 << 60), 2),
        (Tolerance(absolute=1e-6), 1),
        (Tolerance(relative=0.0049), 2),
        (Tolerance(absolute=1e-6, relative=0.005), 0),
    ):
        (one,) = compare_runs(run(a=a), run(a=b), tolerance=tolerance).tensors
        assert one.difference.beyond == beyond
    nan = np.array([np.nan, np.inf, 1], np.float32)
    assert not compare_runs(run(a=nan), run(a=nan)).differing
    assert compare_runs(run(a=nan), run(a=a), tolerance=Tolerance(absolute=1e9)).differing


def test_unambiguous_names_of_a_model_are_matched():
    b, c = A[:, :3], A[:, :2]
    onnx = {"/conv1/Conv_output_0": A, "x:0": b, "other": c, "twice": A, "more": A}
    mine = make_keys({"0001:conv1_Conv__2": A, "0002:fc__1": b, "0003:pool": c, "0004:relu": A})
    mine[1] = attrs.evolve(mine[1], source_names=("x:0",))
    found = compare_runs(run(**onnx), mine)
    pairs = {one.name: one.name_in_first for one in found.tensors}
    assert pairs == {"conv1_Conv__2": "/conv1/Conv_output_0", "fc__1": "x:0", "pool": "other"}
    assert (found.only_first, found.only_second) == (("twice", "more"), ("relu",))


def test_a_map_takes_precedence():
    found = compare_runs(run(a=A, b=A), run(a=A, c=A), names={"b": "a", "a": "c"})
    assert {one.name: one.name_in_first for one in found.tensors} == {"a": "b", "c": "a"}
    with pytest.raises(UserError, match="--map names a tensor that the reference does not have"):
        compare_runs(run(a=A), run(a=A), names={"z": "a"})
    with pytest.raises(UserError, match="--map names a tensor that the run does not have"):
        compare_runs(run(a=A), run(a=A), names={"a": "z"})


def test_sqnr_needs_scale_and_offset():
    other = A.copy()
    other[0, 0, 0, 0] ^= 1
    (one,) = make_run_document(compare_runs(run(a=other), run(a=A)))["tensors"]
    assert one["sqnr_db"] is None
    found = compare_runs(run(a=other), run(a=A), parameters={"a": QuantizationParameters(0.5, 3)})
    (one,) = make_run_document(found)["tensors"]
    assert (one["first"]["first"], one["first"]["second"]) == (other[0, 0, 0, 0], A[0, 0, 0, 0])
    signal = ((other.astype(float) - 3) ** 2).sum()
    assert one["sqnr_db"] == pytest.approx(10 * np.log10(signal))


def test_runs_with_nothing_in_common_are_refused():
    with pytest.raises(UserError, match="DIFF001"):
        compare_runs(run(b=A[:, :1]), run(a=A))
    with pytest.raises(UserError, match=r"Pass the results of one input: the arrays .* have 3"):
        compare_runs(run(b=np.concatenate([A, A, A])), run(a=A))


def test_a_renamed_tensor_is_compared_by_its_number():
    b = A.copy()
    b[0, 1, 2, 3] ^= 1
    first = make_keys({"0001:a": A, "0002:old": A, "0003:gone": A, "0004:short": A[:, :1]})
    found = compare_runs(first, make_keys({"0001:a": A, "0002:new": b, "0004:long": A}))
    assert [(one.name, one.name_in_first) for one in found.tensors] == [("a", ""), ("new", "old")]
    assert [one.name for one in found.differing] == ["new"]
    assert (found.only_first, found.only_second) == (("gone", "short"), ("long",))
    assert make_run_document(found)["tensors"][1]["name_in_first"] == "old"


def test_an_earlier_float_difference_gives_a_note():
    real = A.astype(np.float32)
    first = make_keys({"0001:a": A, "0002:b": real, "0003:c": A})
    for tensors, expected in (
        ({"0001:a": A, "0002:b": real + 1e-6, "0003:c": A + 1}, "b"),
        ({"0001:a": A, "0002:b": real + 1e-6, "0003:c": A}, None),
        ({"0001:a": A + 1, "0002:b": real + 1e-6, "0003:c": A + 1}, None),
    ):
        found = compare_runs(first, make_keys(tensors))
        assert make_run_document(found)["float_before"] == expected


def test_a_missing_float_result_gives_a_note():
    real = A.astype(np.float32)
    for first, second, expected in (
        ({"0001:a": A, "0003:c": A}, {"0001:a": A, "0002:b": real, "0003:c": A + 1}, "b"),
        ({"0001:a": A, "0003:c": A}, {"0001:a": A, "0002:b": real, "0003:c": A}, None),
        ({"0001:a": A, "0003:c": A}, {"0001:a": A + 1, "0002:b": real, "0003:c": A + 1}, None),
        ({"2:b": real, "3:c": A}, {"1:a": real, "2:b": real, "3:c": A + 1}, None),
    ):
        found = compare_runs(make_keys(first), make_keys(second))
        assert make_run_document(found)["float_unknown"] == expected
        lines = render_text(partial(print_run_difference, found))
        assert ("the first run lacks the float32 result" in lines) == bool(expected)
