"""PyTorch and ONNX Runtime on near-ties (near_ties/record_near_ties.py): formulas part there."""

from collections.abc import Callable
from typing import Any

import numpy as np
from oracles import page
from tally import Tally
from test_torch import add, compute_sum, product
from vectors import Array, Case, near_ties

LAYER = {"stride": (1, 1), "pad": (0, 0), "dil": (1, 1), "groups": 1}


def layer(case: Case) -> Array:
    """Return the result of a layer, channels last."""
    zero, scales = int(case["y_zp"]), tuple(case[f"{n}_scale"] for n in "xwy")
    acc = compute_sum(case["x"], int(case["x_zp"]), case["w"], LAYER)
    if case["engine"] == "onnx":
        return page.float_product(acc + case["bias"], page.float_factor(*scales), zero)
    return product(case["engine"], acc, case["bias"], scales, zero)


def one_scale(case: Case) -> Array:
    acc = compute_sum(case["x"], int(case["x_zp"]), case["w"], LAYER)
    step = page.f32(case["x_scale"] * case["w_scale"])
    return page.fbgemm_one_scale(acc, case["bias"], step, case["y_scale"], int(case["y_zp"]))


def get_scales(case: Case) -> tuple[Any, ...]:
    """Return scale and zero point of a, b and y."""
    return tuple(v for n in "aby" for v in (case[f"{n}_scale"], int(case[f"{n}_zp"])))


def torch_add(case: Case) -> Array:
    return add(case["engine"], case["a"], case["b"], get_scales(case))


def apply_to_differences(function: Callable[..., Array]) -> Callable[[Case], Array]:
    """Apply a function to both sides minus their zero points."""

    def run(case: Case) -> Array:
        a_scale, a_zero, b_scale, b_zero, *to = get_scales(case)
        left, right = case["a"].astype(np.int64) - a_zero, case["b"].astype(np.int64) - b_zero
        return function(left, right, a_scale, b_scale, *to)

    return run


def onnx_add(case: Case) -> Array:
    return page.onnx_add(case["a"].astype(np.int64), case["b"].astype(np.int64), *get_scales(case))


def quantize(case: Case) -> Array:
    return page.quantize_torch(case["x"], case["y_scale"], int(case["y_zp"]))


def average(case: Case) -> Array:
    """Return averages of unpadded windows that tile the input, channels last."""
    x, zero = np.moveaxis(case["x"], 1, -1), int(case["x_zp"])
    size = x.shape[1] // case["y"].shape[2]
    window = ((size, size), (size, size), (0, 0, 0, 0))
    s, n = page.average_pool_sum(x, zero, *window, True)
    types = (case["x_scale"], case.get("y_scale", case["x_scale"]), int(case.get("y_zp", zero)))
    if case["kind"] == "QLinearAveragePool":
        return page.onnx_average(page.window_taps(x, *window, 0), types[0], zero, *types[1:])
    late = case["kind"] != "adaptive" or case["engine"] == "qnnpack"
    return (page.average_late if late else page.average_early)(s, n, *types)


FORMULAS: dict[str, Callable[[Case], Array]] = {
    "layer": layer,
    "one_scale": one_scale,
    "add": torch_add,
    "mul": apply_to_differences(page.torch_mul),
    "QLinearAdd": onnx_add,
    "QLinearMul": apply_to_differences(page.onnx_mul),
    "quantize": quantize,
    "adaptive": average,
    "blocks": average,
    "QLinearAveragePool": average,
    "QLinearGlobalAveragePool": average,
}


def test_near_ties_equal_recorded_results() -> None:
    tally = Tally()
    for number, case in enumerate(near_ties()):
        y = np.clip(FORMULAS[case["kind"]](case), 0, 255)
        expected = np.moveaxis(case["y"], 1, -1) if case["y"].ndim == 4 else case["y"]
        runtime = "ONNX Runtime" if case["engine"] == "onnx" else "PyTorch"
        tally.assert_equal(
            f"near ties, {runtime}", y, expected, (number, case["kind"], case["engine"])
        )
    tally.assert_matches_page()
