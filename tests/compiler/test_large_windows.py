"""Pools and depthwise convolutions whose window no scratchpad holds: the host does them."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from compiled_runs import check_program
from hypothesis import given
from lir_draft import Draft, Ref, int8, tensor_type
from numerics.oracles import page
from program_writer import Program, Step
from random_arithmetic import avg_pool, max_pool
from random_programs import single_operations
from small_programs import program
from tiers import examples, tiling

from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.compiler.numerics import PROFILES
from nmpsim.config import DeviceConfig, default_device
from nmpsim.core.device import Device
from nmpsim.diagnostics import Diagnostic, UserError

Array = np.ndarray[Any, Any]
USUAL = default_device()
LARGE = attrs.evolve(USUAL, scratchpad_bytes=1 << 22)
TINY = attrs.evolve(USUAL, cores_count=3, scratchpad_bytes=256)
ELEMS = ("i8", "i16")


def pool(opcode: str, source: Any, kernels: tuple[int, int], result: Any, **at: Any) -> Draft:
    draft = Draft()
    attributes = {"Kernels": kernels, "Strides": (3, 2), "Pads": (2, 0, 1, 3), "Layout": 0, **at}
    draft.emit(opcode, draft.output(result), draft.input(source), **attributes)
    return draft


def compiled(case: Program, config: DeviceConfig) -> Bundle:
    return parse_bundle(compile_module(case.module, config, numerics=case.numerics, **tiling()))


def run_program(case: Program, config: DeviceConfig) -> tuple[Array, str, str]:
    """Return the result, where it was computed, and the reason."""
    bundle = compiled(case, config)
    report = Device(config).run(bundle, case.inputs)
    (values,) = report.outputs.values()
    (layer,) = bundle.metadata.layers
    return values, layer.placement, layer.reason


@pytest.mark.parametrize("counts_padding", [0, 1])
@pytest.mark.parametrize("elem", ELEMS)
@pytest.mark.parametrize("numerics", PROFILES)
def test_a_large_average_equals_the_device(numerics: str, elem: str, counts_padding: int) -> None:
    source = tensor_type(elem, (1, 301, 299, 3), 0.05, -1)
    keeps = numerics == "q31"
    to = (0.05, -1) if keeps else (0.0003, 11)
    result = tensor_type(elem, (1, 2, 2, 3), *to)
    at = {"CountIncludePads": 0 if keeps else counts_padding}
    draft = pool("avgpool", source, (300, 300), result, **at)
    plain = program(draft, seed=counts_padding)
    (x,) = plain.inputs.values()
    x[..., 1:] //= 2
    x[..., 1] += 3
    x[..., 2] -= 9
    case = Program(plain.module, plain.inputs, numerics)
    found, placement, reason = run_program(case, USUAL)
    expected, device, _ = run_program(case, LARGE)
    assert (placement, device) == ("host", "device")
    assert reason.startswith("the smallest tile needs ")
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(found)) >= 3


@pytest.mark.parametrize("elem", ELEMS)
@pytest.mark.parametrize("numerics", PROFILES)
def test_a_large_maximum_equals_the_device(numerics: str, elem: str) -> None:
    kind = tensor_type(elem, (1, 301, 299, 3), 0.05, -7)
    plain = program(pool("maxpool", kind, (300, 300), attrs.evolve(kind, shape=(1, 2, 2, 3))))
    (x,) = plain.inputs.values()
    x //= 3  # so that not all maxima are the largest integer
    x[0, 1, 298] += 7
    found, placement, _ = run_program(Program(plain.module, plain.inputs, numerics), USUAL)
    assert placement == "host"
    window = ((300, 300), (3, 2), (2, 0, 1, 3))
    np.testing.assert_array_equal(found, page.max_pool(x, -7, *window))


@pytest.mark.parametrize("elem", ELEMS)
@pytest.mark.parametrize(
    ("numerics", "step"), [("glow-int", max_pool), *((n, avg_pool) for n in PROFILES)]
)
def test_random_pools_on_tiny_scratchpads_are_exact(numerics: str, elem: str, step: Step) -> None:
    """Against the oracle of the profile; some of them are the host's."""

    @examples(4)
    @given(single_operations((step,), elem, numerics))
    def check(case: Program) -> None:
        check_program(case, TINY)

    check()


def depthwise(draft: Draft) -> Ref:
    source = draft.input(int8((1, 301, 300, 2), 0.05, 3))
    rng = np.random.default_rng(3)
    weights = rng.integers(-128, 128, (2, 300, 300, 1)).astype(np.int8)
    filter_ = draft.constant(weights, "i8", 0.02, 1)
    bias = draft.constant(np.int32([500, -90000]), "i32", 0.001)
    return draft.emit(
        "convolution",
        draft.output(int8((1, 2, 1, 2), 3.0, -4)),
        source,
        filter_,
        bias,
        Kernels=(300, 300),
        Strides=(1, 1),
        Pads=(0, 0, 0, 0),
        Dilation=(1, 1),
        Group=2,
        FusedActivation="NONE",
        FusedActivationArgs=(),
    )


@pytest.mark.parametrize("numerics", ["glow-int", "glow-float"])
def test_a_large_depthwise_convolution_equals_the_device(numerics: str) -> None:
    draft = Draft()
    depthwise(draft)
    plain = program(draft)
    case = Program(plain.module, plain.inputs, numerics)
    found, placement, _ = run_program(case, USUAL)
    expected, device, _ = run_program(case, LARGE)
    assert (placement, device) == ("host", "device")
    np.testing.assert_array_equal(found, expected)


def refusal(draft: Draft, numerics: str) -> Diagnostic:
    with pytest.raises(UserError) as caught:
        compiled(Program(draft.module(), {}, numerics), USUAL)
    (finding,) = caught.value.diagnostics
    return finding


def test_unsupported_profiles_of_the_host_are_refused() -> None:
    draft = Draft()
    depthwise(draft)
    found = refusal(draft, "q31")
    assert found.code == "COMP002"
    assert found.place is not None
    assert found.place.line


@pytest.mark.parametrize(
    ("scale", "counts_padding", "what"),
    [
        (0.04, 0, "avgpool from scale 0.05 and offset 0 to scale 0.04 and offset 0"),
        (0.05, 1, "avgpool with CountIncludePads 1 and padding"),
    ],
)
def test_averages_unknown_to_tflite_are_refused(
    scale: float, counts_padding: int, what: str
) -> None:
    source, result = int8((1, 301, 299, 3), 0.05), int8((1, 2, 2, 3), scale)
    draft = pool("avgpool", source, (300, 300), result, CountIncludePads=counts_padding)
    found = refusal(draft, "q31")
    assert (found.code, found.message) == ("COMP001", f"numerics q31 does not support {what}")


def test_the_following_activation_runs_on_the_device() -> None:
    """It can be no part of a layer that the host does."""
    draft = Draft()
    source, kind = int8((1, 301, 299, 3), 0.05, -7), int8((1, 2, 2, 3), 0.0003, 11)
    attributes = {"Kernels": (300, 300), "Strides": (3, 2), "Pads": (2, 0, 1, 3), "Layout": 0}
    mean = draft.emit(
        "avgpool", draft.buffer(kind), draft.input(source), **attributes, CountIncludePads=1
    )
    draft.emit("relu", draft.output(kind), mean)
    case = program(draft)
    check_program(case, USUAL)
    assert [layer.placement for layer in compiled(case, USUAL).metadata.layers] == [
        "host",
        "device",
    ]
