"""Elementwise operations, pools and rescaling of random scales: as the formulas of the page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_layers import Window, pair, pool, unary
from core_quantities import ELEMENTS, SEEDS, SHORT, Random, clip_values
from core_tensors import Array
from core_words import (
    F32,
    UNSIGNED,
    bits,
    fixed_words,
    float_words,
    glow_float_pair,
    glow_int_pair,
    integer_words,
    q31_sum,
    qnnpack_sum,
    reciprocal,
    torch_sum,
)
from oracles import page

Words = dict[str, Any]
OPERATIONS = {"add": np.add, "sub": np.subtract, "max": np.maximum, "min": np.minimum}


class Sides:
    """Two random operands, with the scales and zero points of operands and result."""

    def __init__(self, r: Random, operation: str) -> None:
        self.r = r
        self.operation = operation
        self.lhs, self.rhs = r.values(3, 40), r.values(3, 40)
        self.zeros = [r.zero_point() for _ in range(3)]
        scales = r.scale(), r.scale()
        top = np.iinfo(r.element).max
        size = scales[0] * scales[1] * top * 2 if operation == "mul" else sum(scales)
        self.scales = (*scales, F32(size * r.scale(0.7, 2.0)))

    def formula(self, of_the_page: Any, *more: Any) -> Array:
        left = self.lhs.astype(np.int64) - self.zeros[0]
        right = self.rhs.astype(np.int64) - self.zeros[1]
        values: Array = of_the_page(*more, left, right, *self.scales, self.zeros[2])
        return values

    def run(self, profile: str, words: Words) -> Array:
        names = ("lhs_offset", "rhs_offset", "out_offset")
        offsets = dict(zip(names, self.zeros, strict=True))
        return pair(
            self.lhs,
            self.rhs,
            {"profile": profile, "operation": self.operation, **offsets, **words},
        )


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("operation", [*OPERATIONS, "mul"])
def test_elementwise_operations_equal_glows_formula(element: str, operation: str) -> None:
    for seed in SEEDS:
        sides = Sides(Random(seed, element), operation)
        plain = OPERATIONS.get(operation)
        if plain is None:
            integer, real = sides.formula(page.glow_int_mul), sides.formula(page.glow_float_mul)
        else:
            integer = sides.formula(page.glow_int_pair, plain)
            real = {
                "add": lambda s: s.formula(page.glow_float_add),
                "sub": lambda s: s.formula(page.glow_float_sub),
                "max": lambda s: s.formula(unclipped_select, np.maximum),
                "min": lambda s: s.formula(unclipped_select, np.minimum),
            }[operation](sides)
        words = glow_int_pair(operation, *sides.scales)
        for profile in ("glow_int", "nmp"):
            result = sides.run(profile, words)
            np.testing.assert_array_equal(result, clip_values(integer, sides.r), err_msg=f"{seed}")
        result = sides.run("glow_float", glow_float_pair(operation, *sides.scales))
        np.testing.assert_array_equal(result, clip_values(real, sides.r), err_msg=f"seed {seed}")


def unclipped_select(operation: Any, left: Array, right: Array, *types: Any) -> Array:
    """Evaluate the documented select formula without its Int8 clip."""
    *scales, out_scale, out_zero = types
    x, y = (
        page.quantize(page.f32(page.f32(side) * scale), out_scale, out_zero)
        for side, scale in zip((left, right), scales, strict=True)
    )
    values: Array = operation(x, y)
    return values


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("operation", ["add", "sub"])
def test_sums_equal_tflites_formula(element: str, operation: str) -> None:
    shift = 20 if element == "int8" else 15
    for seed in SEEDS:
        sides = Sides(Random(seed, element), operation)
        expected = page.clip(
            page.q31_pair(
                OPERATIONS[operation],
                sides.lhs.astype(np.int64) - sides.zeros[0],
                sides.rhs.astype(np.int64) - sides.zeros[1],
                *sides.scales,
                sides.zeros[2],
                left=shift,
            ),
            SHORT[element],
        )
        result = sides.run("q31", q31_sum(*sides.scales, shift))
        np.testing.assert_array_equal(result, expected, err_msg=f"seed {seed}")


def test_sums_equal_pytorchs_formula() -> None:
    """Its numbers are unsigned."""
    for seed in SEEDS:
        sides = Sides(Random(seed, "int8"), "add")
        a, b = (side.astype(np.int64) + UNSIGNED for side in (sides.lhs, sides.rhs))
        zeros = [zero + UNSIGNED for zero in sides.zeros]
        left, right = zip(sides.scales[:2], zeros[:2], strict=True)
        expected = page.torch_add(a, b, *left, *right, sides.scales[2], zeros[2]) - UNSIGNED
        result = sides.run("float", torch_sum(left, right, sides.scales[2]))
        np.testing.assert_array_equal(
            result, clip_values(expected, sides.r), err_msg=f"seed {seed}"
        )
        expected = clip_values(sides.formula(page.qnnpack_add), sides.r)
        result = sides.run("qnnpack", qnnpack_sum(left, right, sides.scales[2]))
        np.testing.assert_array_equal(result, expected, err_msg=f"seed {seed}")


@pytest.mark.parametrize("element", ELEMENTS)
def test_products_equal_pytorchs_formula(element: str) -> None:
    for seed in SEEDS:
        sides = Sides(Random(seed, element), "mul")
        factor = F32(sides.scales[0] * sides.scales[1]) * reciprocal(sides.scales[2])
        result = sides.run("float", float_words("out", factor))
        expected = clip_values(sides.formula(page.torch_mul), sides.r)
        np.testing.assert_array_equal(result, expected, err_msg=f"seed {seed}")


POOL = Window(kernels=(3, 2), strides=(2, 1), pads=(1, 1, 2, 0))
SHAPE = POOL.kernels, POOL.strides, POOL.pads


@pytest.mark.parametrize("element", ELEMENTS)
def test_maximum_pools_equal_their_formula(element: str) -> None:
    for seed in SEEDS:
        r = Random(seed, element)
        x, zero = r.values(2, 6, 5, 17), r.zero_point()
        result = pool("nmp.maxpool", x, POOL, {"empty_value": zero})
        np.testing.assert_array_equal(result, page.max_pool(x, zero, *SHAPE), err_msg=f"{seed}")


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("counted", [0, 1])
def test_average_pools_equal_their_formula(element: str, counted: int) -> None:
    """If padding counts, the factor holds the division."""
    for seed in SEEDS:
        r = Random(seed, element)
        x, zeros = r.values(2, 6, 5, 17), [r.zero_point() for _ in range(2)]
        scales = r.scale(), r.scale()
        ratio = F32(scales[0] / scales[1])
        factor = F32(ratio / F32(np.prod(POOL.kernels))) if counted else ratio
        words = {"in_offset": zeros[0], "out_offset": zeros[1], "divide": 1 - counted}
        real, integer = float_words("out", factor), integer_words("out", factor)
        s, n = page.average_pool_sum(x, zeros[0], *SHAPE, counted)
        types = s, n, *scales, zeros[1]
        moved = UNSIGNED if element == "int8" else 0
        for profile, form, expected in (
            ("glow_int", integer, page.glow_int_average(*types, counted)),
            ("nmp", integer, page.glow_int_average(*types, counted)),
            ("glow_float", real, page.glow_float_average(*types)),
            ("float", real, page.average_late(*types)),
            ("fbgemm", real, page.average_early(s, n, *scales, zeros[1] + moved) - moved),
        ):
            y = pool("nmp.avgpool", x, POOL, {"profile": profile, **words, **form})
            np.testing.assert_array_equal(y, clip_values(expected, r), err_msg=f"{profile} {seed}")


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("profile", ["glow_int", "q31"])
def test_average_pools_equal_tflites_formula(element: str, profile: str) -> None:
    """On one scale; a factor of one, and no zero points."""
    form = {"glow_int": integer_words, "q31": fixed_words}[profile]("out", F32(1))
    words = {"profile": profile, "divide": 1, **form}
    for seed in SEEDS:
        r = Random(seed, element)
        x = r.values(2, 6, 5, 17)
        raw, n = page.average_pool_sum(x, 0, *SHAPE, 0)
        y = pool("nmp.avgpool", x, POOL, words)
        np.testing.assert_array_equal(y, page.q31_average(raw, n), err_msg=f"seed {seed}")


@pytest.mark.parametrize("element", ELEMENTS)
def test_rescaling_equals_its_formula(element: str) -> None:
    for seed in SEEDS:
        r = Random(seed, element)
        x, zeros, scales = r.values(500), [r.zero_point() for _ in range(2)], (r.scale(), r.scale())
        types = scales[0], zeros[0], scales[1], zeros[1]
        ratio, alpha = scales[0] / scales[1], r.scale(0.01, 0.5)
        low, high = sorted((r.zero_point(), r.zero_point()))
        by_reciprocal = page.f32(page.f32(x.astype(np.int64) - zeros[0]) * scales[0])
        below = F32(F32(scales[0] * alpha) / scales[1])
        last = bits(reciprocal(scales[1]))
        bounds = {"in_low": low, "in_high": high}
        real = float_words("out", scales[0])
        for profile, words, expected in (
            ("glow_int", integer_words("out", ratio), page.glow_int_rescale(x, *types)),
            (
                "glow_int",
                integer_words("out", ratio) | bounds,
                page.glow_int_rescale(x, *types, low, high),
            ),
            (
                "glow_int",
                leaky(integer_words("out", ratio), integer_words("leaky", below)),
                page.glow_int_leaky(x, *types, alpha),
            ),
            (
                "glow_float",
                real | {"result_scale": bits(scales[1])},
                page.glow_float_rescale(x, *types),
            ),
            (
                "q31",
                fixed_words("out", float(scales[0]) / float(scales[1])),
                page.q31_rescale(x, *types),
            ),
            (
                "q31",
                leaky(fixed_words("out", ratio), fixed_words("leaky", below)),
                page.q31_leaky(x, *types, alpha),
            ),
            (
                "float",
                real | {"result_scale": last},
                page.half_even(page.f32(by_reciprocal * reciprocal(scales[1]))) + zeros[1],
            ),
        ):
            offsets = {"in_offset": zeros[0], "out_offset": zeros[1]}
            y = unary(x, {"profile": profile, **offsets, **words})
            np.testing.assert_array_equal(y, clip_values(expected, r), err_msg=f"{profile} {seed}")


def leaky(out: Words, below: Words) -> Words:
    return {**out, **below, "activation": 1}
