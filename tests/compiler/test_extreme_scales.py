"""Scales at the ends of float32: refused with a place, or no fault of the device; no warnings."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from lir_draft import Draft, int8, tensor_type
from small_programs import SMALL, program
from tiers import each_value, pairwise, tiling

from nmpsim.bundle import parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.compiler.numerics import PROFILES
from nmpsim.core.device import Device
from nmpsim.diagnostics import UserError

SCALES = (1e-44, 1e-38, 1e-20, 1.0, 1e20, 3e38)


def layers(source: float, weights: float, target: float) -> Draft:
    draft = Draft()
    x = draft.input(int8((2, 6), source, 3))
    w = draft.constant(np.ones((6, 4), np.int8), "i8", weights)
    bias = draft.constant(np.array([1, -2, 3, 0], np.float32), "float")
    draft.emit("fullyconnected", draft.output(int8((2, 4), target)), x, w, bias)
    return draft


def pairs(left: float, right: float, target: float) -> Draft:
    draft = Draft()
    x, y = (draft.input(tensor_type("i16", (2, 6), s, 3)) for s in (left, right))
    total = draft.emit("elementadd", draft.buffer(tensor_type("i16", (2, 6), target)), x, y)
    product = draft.emit("elementmul", draft.buffer(total.type), x, y)
    larger = draft.emit("elementmax", draft.buffer(total.type), total, product)
    draft.emit("rescalequantized", draft.output(tensor_type("i16", (2, 6), left)), larger)
    return draft


FLOAT_PROFILES = [name for name in PROFILES if name.startswith("float")]


@pytest.mark.parametrize(
    ("numerics", "scale", "target"), pairwise(product(FLOAT_PROFILES, SCALES, SCALES))
)
def test_layers_with_extreme_scales_are_exact(numerics: str, scale: float, target: float) -> None:
    for weights in SCALES:
        check(layers(scale, weights, target), numerics)


@pytest.mark.parametrize(("numerics", "scale"), each_value(product(PROFILES, SCALES)))
def test_pairs_with_extreme_scales_are_exact(numerics: str, scale: float) -> None:
    for right in SCALES[1::2]:
        for target in SCALES:
            check(pairs(scale, right, target), numerics)


def check(draft: Draft, numerics: str) -> None:
    """Assert that a program is refused or runs without a trap."""
    case = program(draft)
    try:
        image = compile_module(case.module, SMALL, numerics=numerics, **tiling())
    except UserError as error:
        (finding,) = error.diagnostics
        assert finding.code == "COMP001"
        assert finding.place is not None
        assert finding.place.line
        return
    assert Device(SMALL).run(parse_bundle(image), case.inputs).trap is None
