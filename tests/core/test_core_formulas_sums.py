"""Sums of random scales and shapes: both engines give what the formulas of the page give."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from core_layers import Weights, Window, convolution, depthwise, matrix_product
from core_quantities import ELEMENTS, SEEDS, Random, clip_values
from core_tensors import Array, scale_records
from core_words import (
    F32,
    UNSIGNED,
    Columns,
    bits,
    doubles,
    fixed_columns,
    fixed_words,
    float_columns,
    float_words,
    integer_columns,
    integer_words,
    reciprocal,
)
from oracles import page
from tiers import pairwise


class Layer:
    """Layer with weights whose result scale fits the size of its sums."""

    def __init__(self, r: Random, window: Window, channels: int, depth: int) -> None:
        self.r = r
        self.window = window
        self.x = r.values(2, 7, 6, depth * window.group)
        self.w = r.values(channels, *window.kernels, depth)
        self.in_zero, self.out_zero = r.zero_point(), r.zero_point()
        self.weight_zeros = r.integers(channels, 3)
        self.in_scale, self.weight_scales = r.scale(), r.scales(channels)
        self.products = F32(self.in_scale) * self.weight_scales
        largest = np.abs(self.sums()).max() * self.products.max()
        self.out_scale = F32(largest * r.scale(0.5, 4.0) / np.iinfo(r.element).max / 2)

    def sums(self) -> Array:
        return page.convolution_sum(
            self.x,
            self.w,
            self.in_zero,
            self.weight_zeros,
            self.window.strides,
            self.window.pads,
            self.window.dilation,
            self.window.group,
        )

    def run(self, profile: str, bias: Array, columns: tuple[Columns, Columns], **words: int) -> Any:
        """Run the layer as a depthwise convolution if it is one, or else as a convolution."""
        weights = Weights(
            values=self.w,
            bias=bias,
            offsets=self.weight_zeros,
            scales=scale_records(self.weight_zeros, *columns),
        )
        words = {"profile": profile, "out_offset": self.out_zero, **words}
        do = depthwise if self.window.group == self.w.shape[0] > 1 else convolution
        return do(self.x, weights, self.window, words, self.in_zero)


WINDOWS = {
    "plain": (Window(kernels=(3, 2), pads=(1, 0, 2, 1), strides=(2, 1)), 5, 4),
    "grouped": (Window(kernels=(2, 2), group=3, dilation=(2, 1)), 6, 3),
    "depthwise": (Window(kernels=(3, 3), pads=(1, 1, 1, 1), group=7), 7, 1),
    "pointwise": (Window(kernels=(1, 1)), 18, 19),
}


def layer_with_glow_int(layer: Layer) -> tuple[Array, Array]:
    r, channels = layer.r, layer.w.shape[0]
    bias, scales = r.integers(channels, 2000), layer.products * F32(3.5)
    columns = (
        integer_columns(scales / layer.products),
        integer_columns(layer.products / layer.out_scale),
    )
    types = scales, layer.products, layer.out_scale, layer.out_zero
    return layer.run("glow_int", bias, columns), page.glow_int(layer.sums(), bias, 0, *types)


def layer_with_glow_float(layer: Layer, late: bool = False) -> tuple[Array, Array]:
    r, channels = layer.r, layer.w.shape[0]
    bias, scales = r.integers(channels, 2000), layer.products * F32(3.5)
    columns = (
        float_columns(scales / layer.products),
        float_columns(layer.products / layer.out_scale),
    )
    formula = page.glow_float_connected if late else page.glow_float
    types = scales, layer.products, layer.out_scale, layer.out_zero
    profile = "glow_float_late" if late else "glow_float"
    return layer.run(profile, bias, columns), formula(layer.sums(), bias, 0, *types)


def layer_with_glow_float_late(layer: Layer) -> tuple[Array, Array]:
    return layer_with_glow_float(layer, late=True)


def layer_with_nmp(layer: Layer) -> tuple[Array, Array]:
    bias = layer.r.integers(layer.w.shape[0], 100)
    out = integer_columns(layer.products / layer.out_scale)
    expected = page.nmp(layer.sums(), bias, 0, layer.products, layer.out_scale, layer.out_zero)
    return layer.run("nmp", bias, (out, out)), expected


def layer_with_q31(layer: Layer) -> tuple[Array, Array]:
    bias = layer.r.integers(layer.w.shape[0], 2000)
    factors = page.q31_factor(layer.in_scale, layer.weight_scales, layer.out_scale)
    multiply = page.q31 if layer.r.element == "int8" else page.q31_wide
    expected = multiply(layer.sums() + bias, *page.quantized_multiplier(factors))
    out = fixed_columns(factors)
    return layer.run("q31", bias, (out, out)), expected + layer.out_zero


def layer_with_q31_once(layer: Layer) -> tuple[Array, Array]:
    bias = layer.r.integers(layer.w.shape[0], 2000)
    factors = page.q31_factor(layer.in_scale, layer.weight_scales, layer.out_scale)
    expected = page.q31_connected(layer.sums() + bias, factors)
    pre, mul, post = out = fixed_columns(factors)
    low = (np.ldexp(factors, 53 - pre + post) - np.ldexp(mul, 22)).astype(np.int64)
    columns = (np.zeros_like(pre), low, np.zeros_like(pre)), out
    return layer.run("q31_once", bias, columns), expected + layer.out_zero


def layer_with_float(layer: Layer) -> tuple[Array, Array]:
    bias = layer.r.integers(layer.w.shape[0], 2000)
    factors = page.float_factor(layer.in_scale, layer.weight_scales, layer.out_scale)
    out = float_columns(factors)
    expected = page.float_product(layer.sums() + bias, factors, layer.out_zero)
    return layer.run("float", bias, (out, out)), expected


def layer_with_fbgemm(layer: Layer) -> tuple[Array, Array]:
    bias = layer.r.reals(layer.w.shape[0], 2.0)
    out = float_columns(layer.products / layer.out_scale)
    types = layer.products, layer.out_scale, layer.out_zero
    expected = page.fbgemm(layer.sums(), bias, *types)
    return layer.run("fbgemm", doubles(bias / layer.products), (out, out)), expected


def layer_with_onednn(layer: Layer) -> tuple[Array, Array]:
    bias = layer.r.reals(layer.w.shape[0], 2.0)
    source = np.full(bias.size, reciprocal(reciprocal(layer.in_scale)))
    columns = float_columns(source), float_columns(layer.weight_scales)
    scale = bits(reciprocal(layer.out_scale))
    moved = UNSIGNED if layer.r.element == "int8" else 0
    types = layer.in_scale, layer.weight_scales, layer.out_scale, layer.out_zero + moved
    expected = page.onednn(layer.sums(), bias, *types) - moved
    return layer.run("onednn", doubles(bias), columns, result_scale=scale), expected


LAYERS = [
    layer_with_glow_int,
    layer_with_glow_float,
    layer_with_glow_float_late,
    layer_with_nmp,
    layer_with_q31,
    layer_with_q31_once,
    layer_with_float,
    layer_with_fbgemm,
    layer_with_onednn,
]


@pytest.mark.parametrize(
    ("element", "calculate", "window"), pairwise(product(ELEMENTS, LAYERS, WINDOWS))
)
def test_layers_with_weights_equal_their_formula(
    element: str, calculate: Callable[[Layer], tuple[Array, Array]], window: str
) -> None:
    for seed in SEEDS:
        r = Random(seed, element)
        result, expected = calculate(Layer(r, *WINDOWS[window]))
        np.testing.assert_array_equal(result, clip_values(expected, r), err_msg=f"seed {seed}")
        assert len(np.unique(result)) > 20


@pytest.mark.parametrize("element", ELEMENTS)
def test_fused_leaky_relu_equals_its_formula(element: str) -> None:
    for seed in SEEDS:
        r = Random(seed, element)
        layer, alpha = Layer(r, *WINDOWS["plain"]), r.scale(0.01, 0.5)
        bias = np.zeros(layer.w.shape[0], np.int64)
        out = integer_columns(layer.products / layer.out_scale)
        words = {"activation": 1, **integer_words("leaky", alpha)}
        result = layer.run("glow_int", bias, (out, out), **words)
        types = layer.products, layer.out_scale, layer.out_zero
        y = page.glow_int_matmul(layer.sums(), *types)
        expected = page.glow_int_fused_leaky(y, layer.out_zero, alpha)
        np.testing.assert_array_equal(result, clip_values(expected, r), err_msg=f"seed {seed}")


def product_by(profile: str, wide: bool, sums: Array, product: Any, out: Any, zero: int) -> Array:
    """Evaluate the documented formula for the result of a matrix product."""
    if profile == "q31":
        multiply = page.q31_wide if wide else page.q31
        values: Array = multiply(sums, *page.quantized_multiplier(product / out)) + zero
    elif profile == "float":
        values = page.float_product(sums, product / out, zero)
    else:
        formula = page.glow_float_matmul if profile == "glow_float" else page.glow_int_matmul
        values = formula(sums, product, out, zero)
    return values


FORMS = {
    "glow_int": integer_words,
    "nmp": integer_words,
    "glow_float": float_words,
    "q31": fixed_words,
    "float": float_words,
}


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("profile", FORMS)
def test_matrix_products_equal_their_formula(element: str, profile: str) -> None:
    for seed in SEEDS:
        r = Random(seed, element)
        lhs, rhs = r.values(5, 21), r.values(21, 18)
        zeros = [r.zero_point() for _ in range(3)]
        product = r.scale() * r.scale()
        sums = (lhs.astype(np.int64) - zeros[0]) @ (rhs.astype(np.int64) - zeros[1])
        out = F32(np.abs(sums).max() * product / np.iinfo(element).max)
        words = {
            "profile": profile,
            **dict(zip(("lhs_offset", "rhs_offset", "out_offset"), zeros, strict=True)),
            **FORMS[profile]("out", product / out),
        }
        expected = product_by(profile, element == "int16", sums, product, out, zeros[2])
        result = matrix_product(lhs, rhs, words)
        np.testing.assert_array_equal(result, clip_values(expected, r), err_msg=f"seed {seed}")
