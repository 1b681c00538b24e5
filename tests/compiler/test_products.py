"""A product of two matrices has one formula a profile, whichever way the device takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import pytest
from lir_draft import Draft, Ref, tensor_type
from numerics.oracles import page
from profile_formulas import NO_INT8_MATMUL
from tiers import get_share, tiling

from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.compiler.numerics import PROFILES
from nmpsim.config import DeviceConfig, default_device
from nmpsim.core.device import Device
from nmpsim.diagnostics import UserError
from nmpsim.report.data import RunReport

Array = np.ndarray[Any, Any]
DTYPES = {"i8": np.dtype(np.int8), "i16": np.dtype(np.int16)}
ROOMY = default_device()
TIGHT = attrs.evolve(default_device(), cores_count=3, scratchpad_bytes=6144)
"""Several tiles, of which some are partial sums."""
ANSWERED = [
    (numerics, elem)
    for numerics in PROFILES
    for elem in DTYPES
    if elem == "i16" or numerics not in NO_INT8_MATMUL
]


@attrs.frozen(eq=False)
class Case:
    """Matrix product: two matrices, and the types of both and of the result; scales are float32."""

    elem: str
    lhs: Array
    rhs: Array
    scales: tuple[Any, Any, Any]
    zeros: tuple[int, int, int]

    @property
    def sums(self) -> Array:
        """Return the exact sums."""
        left = self.lhs.astype(np.int64) - self.zeros[0]
        return left @ (self.rhs.astype(np.int64) - self.zeros[1])

    def expected(self, numerics: str) -> Array:
        """Return the result by the formula of the documentation page."""
        values = page.matrix_product(numerics, self.elem, self.sums, *self.scales, self.zeros[2])
        clipped: Array = page.clip(values, self.elem).astype(DTYPES[self.elem])
        return clipped

    def draft(self, constant: bool) -> Draft:
        draft = Draft()
        types = [
            tensor_type(self.elem, shape, scale, zero)
            for shape, scale, zero in zip(
                (self.lhs.shape, self.rhs.shape, self.sums.shape),
                self.scales,
                self.zeros,
                strict=True,
            )
        ]
        left = draft.input(types[0])
        right: Ref
        if constant:
            right = draft.constant(self.rhs, self.elem, self.scales[1], self.zeros[1])
        else:
            right = draft.input(types[1])
        draft.emit("matmul", draft.output(types[2]), left, right)
        return draft


def compiled(case: Case, numerics: str, constant: bool, config: DeviceConfig) -> Bundle:
    module = case.draft(constant).module()
    return parse_bundle(compile_module(module, config, numerics=numerics, **tiling()))


def run(
    case: Case, numerics: str, constant: bool, config: DeviceConfig, engine: str = "compiled"
) -> RunReport:
    bundle = compiled(case, numerics, constant, config)
    names = [tensor.name for tensor in bundle.metadata.inputs]
    inputs = dict(zip(names, (case.lhs, case.rhs), strict=False))
    report = Device(config, engine).run(bundle, inputs)
    assert [layer.placement for layer in report.layers] == ["device"]
    return report


def only(report: RunReport) -> Array:
    (values,) = report.outputs.values()
    return values


def random_case(seed: int, elem: str, shape: tuple[int, int, int], ties: bool) -> Case:
    """Draw a random case; with ``ties``, many sums lie at or next to half a step of the result."""
    rng = np.random.default_rng(seed)
    rows, inner, columns = shape
    limits = np.iinfo(DTYPES[elem])

    def values(*of: int) -> Array:
        return rng.integers(limits.min, limits.max, of, DTYPES[elem], endpoint=True)

    zeros = tuple(int(z) for z in rng.integers(limits.min, limits.max, 3, endpoint=True))
    left, right = np.exp(rng.uniform(-9, -3, 2)).astype(np.float32)
    case = Case(elem, values(rows, inner), values(inner, columns), (left, right, 1), zeros)
    out = np.float32(np.abs(case.sums).max() / limits.max)
    if ties:
        out = np.float32(2.0 ** np.ceil(np.log2(out)) * (1 + rng.integers(-1, 2) * 2.0**-23))
    return attrs.evolve(case, scales=(left, right, np.float32(left * right) * out))


def cases(elem: str) -> Iterator[Case]:
    for seed, shape in enumerate([(3, 40, 21), (40, 70, 30), (1, 300, 17), (17, 1, 16), (1, 1, 1)]):
        yield random_case(seed, elem, shape, ties=False)
        yield random_case(seed, elem, shape, ties=True)
    ends = np.iinfo(DTYPES[elem])
    for zero in (ends.min, ends.max, 0):
        lhs = np.full((2, 64), ends.min, DTYPES[elem])
        lhs[1] = ends.max
        rhs = lhs.T.copy()
        scales = np.float32([0.1, 0.2, 0.3 * 64 * float(ends.max)])
        yield Case(elem, lhs, rhs, tuple(scales), (int(zero), int(zero), -int(zero) // 3))


@pytest.mark.parametrize(("numerics", "elem"), ANSWERED)
def test_every_path_equals_the_formula(numerics: str, elem: str) -> None:
    paths = [(False, ROOMY), (False, TIGHT), (True, TIGHT), (True, ROOMY)]
    for number, case in enumerate(cases(elem)):
        expected = case.expected(numerics)
        for constant, config in paths[number % get_share(2) :: get_share(2)]:
            found = only(run(case, numerics, constant, config))
            np.testing.assert_array_equal(found, expected, f"{constant} {config is TIGHT}")


@pytest.mark.parametrize(("numerics", "elem"), ANSWERED)
def test_the_reference_engine_equals_the_formula(numerics: str, elem: str) -> None:
    case = random_case(9, elem, (4, 90, 19), ties=True)
    for constant in (False, True):
        found = only(run(case, numerics, constant, TIGHT, "reference"))
        np.testing.assert_array_equal(found, case.expected(numerics))


@pytest.mark.parametrize("numerics", [n for n in PROFILES if n.startswith("float")])
def test_a_large_constant_int16_product_is_exact(numerics: str) -> None:
    """Sums of 33 bits, zero points at the ends: PyTorch's layers would differ in some elements."""
    case = random_case(4, "i16", (40, 70, 200), ties=False)
    case = attrs.evolve(case, zeros=(32767, -12222, 32767))
    expected = case.expected(numerics)
    for constant in (False, True):
        np.testing.assert_array_equal(only(run(case, numerics, constant, ROOMY)), expected)
    left, right, out = case.scales
    arguments = case.sums, np.float32(0), left, right, out, case.zeros[2]
    for formula in (page.onednn_connected, page.onednn):
        assert (page.clip(formula(*arguments), "i16") != expected).any()


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("numerics", NO_INT8_MATMUL)
def test_pytorch_has_no_product_of_int8_integers(numerics: str, constant: bool) -> None:
    case = random_case(0, "i8", (3, 4, 5), ties=False)
    with pytest.raises(UserError) as caught:
        compiled(case, numerics, constant, ROOMY)
    (finding,) = caught.value.diagnostics
    assert finding.code == "COMP001"
    assert finding.message == f"numerics {numerics} has no matmul of Int8"
    assert finding.place is not None
    assert finding.place.line
    assert "LAYER=float" in str(finding.hint)


@pytest.mark.parametrize("inner", [32768, 32769])
def test_saturated_sums_are_exact(inner: int) -> None:
    """With as many products as fit, and one more than that."""
    lhs = np.full((2, inner), -128, np.int8)
    lhs[1, ::2] = 127
    rhs = np.full((inner, 3), -128, np.int8)
    rhs[inner // 3 :, 1] = 127
    scales = np.float32([1, 1, 2.0**24])
    case = Case("i8", lhs, rhs, tuple(scales), (127, 127, 0))
    reports = [run(case, "float", constant, TIGHT) for constant in (False, True)]
    np.testing.assert_array_equal(only(reports[0]), only(reports[1]))
    assert reports[0].layers[0].saturation == reports[1].layers[0].saturation
    np.testing.assert_array_equal(only(reports[0]), case.expected("float"))


def test_a_constant_product_with_saturation_uses_gemm() -> None:
    """The order of products is seen, and is the same for a constant."""
    inner = 140000
    lhs = np.full((2, inner), -128, np.int8)
    rhs = np.full((inner, 2), -128, np.int8)
    rhs[inner // 2 :] = 127
    rhs[:, 1] = rhs[::-1, 1]
    scales = np.float32([1, 1, 2.0**24])
    case = Case("i8", lhs, rhs, tuple(scales), (127, 0, 0))
    reports = [run(case, "float", constant, TIGHT) for constant in (False, True)]
    np.testing.assert_array_equal(only(reports[0]), only(reports[1]))
    stages = [{s.stage for s in report.layers[0].saturation} for report in reports]
    assert stages == [{"accumulator"}] * 2
    assert reports[0].layers[0].saturation == reports[1].layers[0].saturation
