"""Products of two matrices as ONNX Runtime and TFLite answer them (products/record_products.py)."""

import numpy as np
from oracles import page
from tally import Tally
from vectors import products

PROFILES = {"ONNX Runtime": "float", "LiteRT": "q31"}


def test_products_equal_recorded_results() -> None:
    tally = Tally()
    for case in products():
        element = {"int8": "i8", "int16": "i16"}[case["lhs"].dtype.name]
        acc = (case["lhs"].astype(np.int64) - case["l_zero"]) @ (
            case["rhs"].astype(np.int64) - case["r_zero"]
        )
        scales = (case[f"{name}_scale"] for name in "lry")
        profile = PROFILES[case["runtime"]]
        y = page.matrix_product(profile, element, acc, *scales, case["y_zero"])
        row = f"products, {case['runtime']}, {case['lhs'].dtype.name.title()}"
        tally.assert_equal(row, page.clip(y, element), case["y"])
    tally.assert_matches_page()
