"""Small compiled programs on both engines: the same answers, cycles and accounts."""

from __future__ import annotations

from itertools import product

import attrs
import numpy as np
import pytest
from compiled_runs import check_program
from hypothesis import given
from hypothesis import strategies as st
from lir_draft import Draft, int8, tensor_type
from program_writer import Program, Step, Writer
from random_arithmetic import (
    avg_pool,
    batched_add,
    binary,
    convolution,
    fully_connected,
    look_up,
    max_pool,
    product_of_activations,
    splat,
    unary,
)
from random_moves import concatenate, transpose
from random_programs import write
from small_programs import SMALL, compile_draft, convolve, image, out_kind, program
from tiers import each_value, examples

from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.compiler.numerics import PROFILES
from nmpsim.config import DeviceConfig
from nmpsim.core.device import Device
from nmpsim.report.data import RunReport

TINY = attrs.evolve(SMALL, cores_count=3, scratchpad_bytes=4096)
STEPS: tuple[Step, ...] = (
    avg_pool,
    batched_add,
    binary,
    concatenate,
    convolution,
    fully_connected,
    look_up,
    max_pool,
    product_of_activations,
    splat,
    transpose,
    unary,
)


def run_on_both(bundle: Bundle, case: Program, config: DeviceConfig) -> RunReport:
    """Assert that both engines give the same report, and return it."""
    reports = [
        Device(config, engine).run(bundle, case.inputs, save_layers=True)
        for engine in ("compiled", "reference")
    ]
    first, second = reports
    assert (first.engine, second.engine) == ("compiled", "reference")
    assert first.cycles == second.cycles
    assert first.layers == second.layers
    assert first.trap == second.trap
    for kind in ("outputs", "layer_outputs"):
        ours, theirs = getattr(first, kind), getattr(second, kind)
        assert list(ours) == list(theirs)
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    return first


@st.composite
def tiny_operations(
    draw: st.DrawFn, step: Step, elem: str = "i8", numerics: str = "glow-int"
) -> Program:
    """Draw a program with one operation on a very small image."""
    w = Writer(draw, elem, numerics)
    shape = (w.pick(1, 2), w.number(1, 4), w.number(1, 4), w.pick(1, 3, 4, 6))
    return write(w, w.draft.input(w.narrow_type(shape)), (step,), 1)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_one_operation_agrees_on_both_engines(step: Step) -> None:
    @examples(8)
    @given(tiny_operations(step))
    def check(case: Program) -> None:
        bundle = parse_bundle(compile_module(case.module, TINY))
        run_on_both(bundle, case, TINY)

    check()


@pytest.mark.parametrize(("numerics", "elem"), each_value(product(PROFILES, ["i8", "i16"])))
def test_one_operation_of_each_profile_agrees_on_both_engines(numerics: str, elem: str) -> None:
    steps = (avg_pool, batched_add, binary, convolution, fully_connected, unary)

    config = attrs.evolve(TINY, scratchpad_bytes=8192)

    @examples(6)
    @given(st.sampled_from(steps).flatmap(lambda step: tiny_operations(step, elem, numerics)))
    def check(case: Program) -> None:
        image = compile_module(case.module, config, numerics=numerics)
        run_on_both(parse_bundle(image), case, config)

    check()


def test_a_small_network_agrees_on_both_engines() -> None:
    draft = Draft()
    source = draft.input(tensor_type("float", (1, 6, 5, 3)))
    quantized = draft.emit("quantize", draft.buffer(int8((1, 6, 5, 3), 0.05, 3)), source)
    first = convolve(draft, quantized, draft.buffer(out_kind(quantized, 5)))
    active = draft.emit("relu", draft.buffer(first.type), first)
    second = convolve(draft, active, draft.buffer(out_kind(active, 5)))
    total = draft.emit("elementadd", draft.buffer(first.type), active, second)
    draft.emit("dequantize", draft.output(tensor_type("float", total.shape)), total)
    case = program(draft)
    report = run_on_both(compile_draft(draft, TINY), case, TINY)
    assert [layer.placement for layer in report.layers].count("host") == 2
    assert report.cycles > 0
    check_program(case, TINY, engine="reference")


def test_saturation_counts_agree_on_both_engines() -> None:
    draft = Draft()
    source = image(draft, channels=4)
    convolve(draft, source, draft.output(out_kind(source, channels=3, scale=0.004)))
    report = run_on_both(compile_draft(draft, TINY), program(draft), TINY)
    assert {(s.stage, s.side) for s in report.layers[0].saturation} == {
        ("result", "low"),
        ("result", "high"),
    }
