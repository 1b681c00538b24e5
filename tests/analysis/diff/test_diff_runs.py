"""Two runs, matched by names, turned where their layouts differ."""

import numpy as np
import pytest

from nmpsim.analysis.diff import Parameters, compare_runs, run_document, saved_tensors
from nmpsim.diagnostics import UserError

RNG = np.random.default_rng(5)
A = RNG.integers(-128, 128, (1, 5, 6, 4), np.int8)


def run(**arrays):
    return list(saved_tensors(arrays, arrays.__getitem__))


def keyed(arrays):
    return list(saved_tensors(arrays, arrays.__getitem__))


def test_equal_runs():
    found = compare_runs(run(a=A.copy()), run(a=A))
    assert not found.differing
    assert found.worst is None


def test_first_in_program_order_and_worst():
    first = keyed({"0001:a": A, "0002:b": A, "0003:c": A})
    b, c = A.copy(), A.copy()
    b[0, 1, 2, 3] ^= 1
    c[0, 4, 0, 0] ^= 64
    found = compare_runs(keyed({"0003:c": c, "0002:b": b, "0001:a": A}), first)
    assert [one.name for one in found.differing] == ["b", "c"]
    assert found.worst.name == "c"
    assert found.worst.difference.worst.at == (0, 4, 0, 0)
    assert (found.differing[0].number, found.differing[0].worst_ulp) == (2, 1)
    document = run_document(found)
    assert (document["first"], document["worst"], document["equal"]) == ("b", "c", False)


def test_recorded_keys_and_what_only_one_has():
    recorded = keyed(
        {
            "const/w": A,
            "input/data": A,
            "act/0004:conv__2:conv__2_res": A,
            "act/0005:hidden:hidden_res": A,
            "output/prob": A,
        }
    )
    found = compare_runs(recorded, keyed({"0004:conv__2": A, "0009:other": A}))
    assert [(one.name, one.operand) for one in found.tensors] == [("conv__2", None)]
    assert (found.only_first, found.only_second) == (("hidden", "prob"), ("other",))
    assert not compare_runs(recorded, run(prob=A)).differing


@pytest.mark.parametrize(
    ("layout", "axes", "told"), [("nchw", (0, 3, 1, 2), "NCHW"), ("nhwc", (0, 2, 3, 1), "NHWC")]
)
def test_layouts(layout, axes, told):
    other = np.ascontiguousarray(A.transpose(axes))
    for asked in ("auto", layout):
        (one,) = compare_runs(run(a=other), run(a=A), layout=asked).tensors
        assert (one.turned, one.worst_ulp, one.problem) == (told, 0, "")
    (one,) = compare_runs(run(a=other), run(a=A), layout="same").differing
    shape = "x".join(map(str, other.shape))
    assert one.problem == f"shapes differ: {shape} in the first, 1x5x6x4 in the second"


def test_a_cube_is_turned_only_on_request():
    cube = RNG.integers(-128, 128, (1, 4, 4, 4), np.int8)
    other = np.ascontiguousarray(cube.transpose(0, 3, 1, 2))
    assert compare_runs(run(a=other), run(a=cube)).differing
    assert not compare_runs(run(a=other), run(a=cube), layout="nchw").differing


def test_dimensions_of_one_do_not_count():
    assert not compare_runs(run(a=A.reshape(5, 6, 1, 4)), run(a=A)).differing


def test_types_that_differ_are_told():
    (one,) = compare_runs(run(a=A.astype(np.float32)), run(a=A)).differing
    assert one.problem == "types differ: float32 in the first, int8 in the second"


def test_within():
    other = A.copy()
    other[0, 0, 0, 0] ^= 1
    assert compare_runs(run(a=other), run(a=A)).differing
    assert not compare_runs(run(a=other), run(a=A), within=1).differing


def test_sqnr_needs_scale_and_offset():
    other = A.copy()
    other[0, 0, 0, 0] ^= 1
    (one,) = run_document(compare_runs(run(a=other), run(a=A)))["tensors"]
    assert one["sqnr_db"] is None
    found = compare_runs(run(a=other), run(a=A), parameters={"a": Parameters(0.5, 3)})
    (one,) = run_document(found)["tensors"]
    assert (one["first"]["first"], one["first"]["second"]) == (other[0, 0, 0, 0], A[0, 0, 0, 0])
    signal = ((other.astype(float) - 3) ** 2).sum()
    assert one["sqnr_db"] == pytest.approx(10 * np.log10(signal))


def test_nothing_in_common():
    with pytest.raises(UserError, match="DIFF001"):
        compare_runs(run(b=A), run(a=A))


def test_a_renamed_tensor_is_compared_by_its_number():
    b = A.copy()
    b[0, 1, 2, 3] ^= 1
    first = keyed({"0001:a": A, "0002:old": A, "0003:gone": A, "0004:short": A[:, :1]})
    found = compare_runs(first, keyed({"0001:a": A, "0002:new": b, "0004:long": A}))
    assert [(one.name, one.renamed) for one in found.tensors] == [("a", ""), ("new", "old")]
    assert [one.name for one in found.differing] == ["new"]
    assert (found.only_first, found.only_second) == (("gone", "short"), ("long",))
    assert run_document(found)["tensors"][1]["name_in_first"] == "old"
