"""Integer scales against Glow's own (transform32to8.npz and the parameters in every file)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmpsim.kernels.scale import (
    IntegerScale,
    InvalidScaleError,
    apply_integer_scale,
    apply_integer_scales,
    make_integer_scale,
    make_integer_scales,
)

F32 = np.float32
Archive = np.lib.npyio.NpzFile
Array = npt.NDArray[Any]


@pytest.fixture
def recorded(shared: Path) -> Archive:
    return np.load(shared / "golden" / "glow" / "transform32to8.npz")


def test_every_recorded_factor_gives_glows_integers(recorded: Archive) -> None:
    pre, post, mul = make_integer_scales(recorded["scale"])
    np.testing.assert_array_equal(pre, recorded["pre"])
    np.testing.assert_array_equal(post, recorded["post"])
    np.testing.assert_array_equal(mul, recorded["mul"])
    assert len(pre) == 2000


def test_one_factor_at_a_time_gives_the_same(recorded: Archive) -> None:
    for scale, *expected in zip(
        recorded["scale"], recorded["pre"], recorded["post"], recorded["mul"], strict=True
    ):
        assert make_integer_scale(float(scale)) == IntegerScale(*(int(e) for e in expected))


def test_every_recorded_transform(recorded: Archive) -> None:
    columns = [recorded[name][:, None] for name in ("pre", "post", "mul")]
    rescaled = apply_integer_scales(recorded["x"].astype(np.int64), *columns)
    np.testing.assert_array_equal(rescaled + recorded["offset"][:, None], recorded["y"])


def _compute_ratios(name: str, case: dict[str, Array]) -> dict[str, Array]:
    """Return the factor of each prefix of recorded integers, as LIR_FORMAT defines."""
    f = {key: np.asarray(value, F32) for key, value in case.items() if "scale" in key}
    if name == "rescale_quantize_dequantize.npz":
        return {"": f["src_scale"] / f["dst_scale"]}
    if name == "pool_relu_i8.npz":
        ratio = f["in_scale"] / f["avg_out_scale"]
        taps = F32(int(np.prod(case["kernels"])))
        return {"avg_cip0_": ratio, "avg_cip1_": ratio / taps, "relu_": ratio}
    if name == "elementwise_i8.npz":
        if str(case["op"]) == "mul":
            return {"": f["lhs_scale"] * f["rhs_scale"] / f["out_scale"]}
        return {
            "lhs_": f["lhs_scale"] / f["out_scale"],
            "rhs_": f["rhs_scale"] / f["out_scale"],
        }
    weights = next(
        f[k] for k in ("filter_scale", "filter_scales", "weights_scale", "weights_scales") if k in f
    )
    bias = f["bias_scales"] if "bias_scales" in f else f["bias_scale"]
    product = f["in_scale"] * weights
    found = {"bias_": bias / product, "out_": product / f["out_scale"]}
    if "matmul_mul" in case:
        found["matmul_"] = product / f["out_scale"]
    return found


@pytest.mark.parametrize(
    "name",
    [
        "conv_i8.npz",
        "conv_channelwise_i8.npz",
        "fc_i8.npz",
        "fc_rowwise_i8.npz",
        "elementwise_i8.npz",
        "pool_relu_i8.npz",
        "rescale_quantize_dequantize.npz",
    ],
)
def test_integers_recorded_beside_operations(shared: Path, name: str) -> None:
    z = np.load(shared / "golden" / "glow" / name)
    for number in range(int(z["ncases"])):
        head = f"{number:04d}."
        case = {key[5:]: z[key] for key in z.files if key.startswith(head)}
        for prefix, factors in _compute_ratios(name, case).items():
            for part, values in zip(
                ("pre", "post", "mul"), make_integer_scales(factors), strict=True
            ):
                np.testing.assert_array_equal(values, case[prefix + part], err_msg=head + prefix)


@given(st.floats(2.0**-140, 2.0**31, allow_nan=False, allow_subnormal=False))
def test_array_form_equals_the_scalar_form(scale: float) -> None:
    one = make_integer_scale(scale)
    pre, post, mul = make_integer_scales(np.array([scale]))
    assert (one.pre, one.post, one.mul) == (pre[0], post[0], mul[0])


def test_smallest_and_largest_float32_scales() -> None:
    extremes = np.array([2.0**-149, 3 * 2.0**-149, 2.0**-126, 2.0**30, 2.0**31, 2.0**100], F32)
    pre, post, mul = make_integer_scales(extremes)
    for place, scale in enumerate(extremes):
        assert make_integer_scale(float(scale)) == IntegerScale(pre[place], post[place], mul[place])
    assert mul.max() == 2**31 - 1


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_factor_must_be_positive_and_finite(scale: float) -> None:
    with pytest.raises(InvalidScaleError, match="positive and finite"):
        make_integer_scale(scale)
    with pytest.raises(InvalidScaleError, match="positive and finite"):
        make_integer_scales(np.array([1.0, scale]))


def test_halves_round_up() -> None:
    x = np.array([-3, -2, -1, 0, 1, 2, 3], dtype=np.int64)
    halved = apply_integer_scale(x, make_integer_scale(0.5), offset=10)
    assert halved.tolist() == [9, 9, 10, 10, 11, 11, 12]
    assert halved.dtype == np.int64


@given(st.integers(-(2**40), 2**40), st.floats(1e-9, 1e6))
def test_the_sum_before_the_last_shift_saturates(x: int, scale: float) -> None:
    s = make_integer_scale(scale)
    total = (x >> s.pre) * s.mul + ((1 << s.post) >> 1)
    expected = min(max(total, -(2**31)), 2**31 - 1) >> s.post
    assert apply_integer_scale(np.array([x], dtype=np.int64), s)[0] == expected


def test_long_shifts_give_zero() -> None:
    x = np.array([-(2**31), -1, 0, 2**31 - 1], dtype=np.int64)
    assert apply_integer_scale(x, make_integer_scale(2.0**-100)).tolist() == [0, 0, 0, 0]
