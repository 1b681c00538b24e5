"""Biases moved to the scale of the result: payload and type, each layer its own constant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from compiled_runs import check_program
from hypothesis import given
from hypothesis import strategies as st
from lir_draft import Draft, int8, tensor_type
from program_writer import Program
from small_programs import SMALL, WINDOW
from tiers import examples

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.compiler.passes.rescale_bias import rescale_bias
from nmpsim.core.device import Device
from nmpsim.lir.nodes import Module
from nmpsim.lir.parser import parse
from nmpsim.lir.printer import format_module
from nmpsim.lir.verify import verify

Array = np.ndarray[Any, Any]
ATTRIBUTES = {**WINDOW, "Group": 1, "FusedActivation": "NONE", "FusedActivationArgs": ()}


def two_layers(bias: Array, elem: str, targets: Sequence[Any], source: Any = None) -> Draft:
    """Build convolutions of one input that share one bias."""
    draft = Draft()
    image = draft.input(source or int8((1, 4, 4, 3), 0.05, 3))
    shared = draft.constant(bias, elem, 0.001, 2)
    rng = np.random.default_rng(3)
    for kind in targets:
        weights = rng.integers(-90, 90, (len(bias), 3, 3, 3)).astype(np.int8)
        filter_ = draft.constant(weights.astype(image.type.dtype), image.type.elem, 0.02, 0)
        target = draft.output(attrs.evolve(kind, shape=(1, 4, 4, len(bias))))
        draft.emit("convolution", target, image, filter_, shared, Layout="NHWC", **ATTRIBUTES)
    return draft


def get_bias(module: Module, layer: str) -> tuple[Array, Any]:
    """Return values and type of a layer's bias."""
    (instruction,) = (i for i in module.instructions if i.name == layer)
    name = instruction.operands[3].name
    (weight,) = (w for w in module.weights if w.name == name)
    return module.constants[name], weight.type


def expected(values: Array, old: Any, target: Any) -> tuple[Array, Array]:
    """Return values requantized exactly to the nearest step, and their real values."""
    real = old.quant.scale * (values.astype(np.float64) - old.quant.offset)
    placed = np.float32(np.float32(real) / np.float32(target.quant.scale))
    exact = np.rint(placed + np.float32(target.quant.offset)).astype(np.int64)
    limits = np.iinfo(values.dtype)
    return np.clip(exact, limits.min, limits.max).astype(values.dtype), real


@pytest.mark.parametrize(("elem", "dtype"), [("i8", np.int8), ("i16", np.int16), ("i32", np.int32)])
def test_the_payload_is_requantized(elem: str, dtype: Any) -> None:
    bias = np.array([-100, 0, 7, 100, 127], dtype)
    kinds = [int8((), 0.002, 0), int8((), 0.0001, -128)]
    draft = two_layers(bias, elem, kinds)
    module = draft.module()
    changed, reports = rescale_bias(module)
    verify(changed)
    old = tensor_type(elem, (5,), 0.001, 2)
    for report, kind in zip(reports, kinds, strict=True):
        values, type_ = get_bias(changed, report.layer)
        wanted, real = expected(bias, old, kind)
        assert values.tolist() == wanted.tolist()
        assert (type_.elem, type_.quant.scale, type_.quant.offset) == (
            elem, kind.quant.scale, kind.quant.offset,
        )  # fmt: skip
        back = kind.quant.scale * (wanted.astype(np.float64) - kind.quant.offset)
        assert report.largest_error == pytest.approx(np.abs(back - real).max(), rel=1e-6)
        assert report.largest_error_steps == report.largest_error / kind.quant.scale
        assert report.elements == 5
    assert [report.saturated for report in reports] == [0, {"i8": 4, "i16": 0, "i32": 0}[elem]]


def test_a_shared_constant_is_split_and_the_old_one_goes() -> None:
    bias = np.array([1, 20, -30], np.int32)
    module = two_layers(bias, "i32", [int8((), 0.002), int8((), 0.01)]).module()
    changed, (first, second) = rescale_bias(module)
    assert first.bias == second.bias
    assert first.renamed != second.renamed == second.bias
    assert get_bias(changed, first.layer)[0].tolist() != get_bias(changed, second.layer)[0].tolist()
    assert set(changed.constants) == {w.name for w in changed.weights if w.constant}
    used = {o.name for i in changed.instructions for o in i.operands}
    assert set(changed.constants) <= used
    assert module.constants[first.bias].tolist() == bias.tolist()
    assert [i.number for i in changed.instructions] == [i.number for i in module.instructions]


def test_a_constant_with_another_use_stays() -> None:
    draft = Draft()
    source = draft.input(int8((2, 6), 0.05))
    weights = draft.constant(np.ones((6, 4), np.int8), "i8", 0.02)
    bias = draft.constant(np.array([1, 2, 3, 4], np.int8), "i8", 0.001)
    middle = draft.buffer(int8((2, 4), 0.3))
    draft.emit("fullyconnected", middle, source, weights, bias)
    draft.emit("batchedadd", draft.output(int8((2, 4), 0.3)), middle, bias)
    changed, (report,) = rescale_bias(draft.module())
    verify(changed)
    assert report.renamed != report.bias
    assert changed.constants[report.bias].tolist() == [1, 2, 3, 4]
    assert changed.instructions[-1].operands[2].name == report.bias


def test_a_view_of_a_constant_is_requantized() -> None:
    draft = Draft()
    source = draft.input(int8((2, 6), 0.05))
    weights = draft.constant(np.ones((6, 4), np.int8), "i8", 0.02)
    both = draft.constant(np.arange(8, dtype=np.int8) * 10, "i8", 0.01)
    view = draft.view(both, attrs.evolve(both.type, shape=(4,)), (4,))
    draft.emit("fullyconnected", draft.output(int8((2, 4), 0.05)), source, weights, view)
    changed, (report,) = rescale_bias(draft.module())
    verify(changed)
    assert changed.constants[report.renamed].tolist() == [8, 10, 12, 14]
    assert changed.constants[both.name].tolist() == (np.arange(8) * 10).tolist()


def test_a_bias_on_the_right_scale_stays_unchanged() -> None:
    """Even where float32 could not hold it."""
    bias = np.array([(1 << 30) + 1, -(1 << 30) - 3], np.int32)
    draft = two_layers(bias, "i32", [int8((), 0.001, 2)])
    module = draft.module()
    changed, (report,) = rescale_bias(module)
    assert changed == module
    assert changed.constants[report.bias].tolist() == bias.tolist()
    assert (report.saturated, report.renamed) == (0, report.bias)


def channelwise(bias: Array, source_scale: float = 0.05) -> Draft:
    draft = Draft()
    source = draft.input(int8((1, 4, 4, 3), source_scale))
    outs = len(bias)
    scales = draft.constant(np.linspace(0.01, 0.03, outs).astype(np.float32), "float")
    offsets = draft.constant(np.zeros(outs, np.int32), "index32")
    operands = [
        draft.constant(np.ones((outs, 3, 3, 3), np.int8), "i8", 1.0),
        draft.constant(bias, "i32", 1.0),
        *(scales, offsets, scales, offsets),
    ]
    target = draft.output(int8((1, 4, 4, outs), 0.2, -9))
    draft.emit("channelwisequantizedconvolution", target, source, *operands, **ATTRIBUTES)
    return draft


def test_shared_tables_of_filters_stay() -> None:
    """Where the input's scale is one Glow lets the bias have the filters' tables."""
    bias = np.array([100, -200, 3000], np.int32)
    module = channelwise(bias).module()
    changed, (report,) = rescale_bias(module)
    verify(changed)
    names = [o.name for o in changed.instructions[0].operands]
    assert names[4:6] == [o.name for o in module.instructions[0].operands[4:6]]
    assert changed.constants[names[6]].tolist() == [np.float32(0.2)] * 3
    assert changed.constants[names[7]].tolist() == [-9] * 3
    scales = module.constants[names[4]]
    wanted = np.rint(bias * scales / np.float32(0.2) - 9)
    assert changed.constants[names[3]].tolist() == wanted.tolist()
    assert report.saturated == 0
    parse_bundle(compile_module(changed, SMALL, numerics="nmp"))


@examples(25)
@given(st.integers(0, 2**32), st.sampled_from(["i8", "i16"]), st.integers(-9, -3))
def test_power_of_two_results_equal_glow(seed: int, elem: str, exponent: int) -> None:
    """Power-of-two scales: the bias may be added before or behind the shift."""
    rng = np.random.default_rng(seed)
    draft = Draft()
    source = draft.input(tensor_type(elem, (3, 20), 2.0**exponent))
    high = np.iinfo(source.type.dtype).max
    values = rng.integers(-high, high, (20, 9)).astype(source.type.dtype)
    weights = draft.constant(values, elem, 2.0**-7)
    bias = draft.constant(rng.integers(-90, 90, 9).astype(np.int32), "i32", 2.0 ** (exponent - 6))
    out = tensor_type(elem, (3, 9), 2.0 ** (exponent - 7 + (8 if elem == "i8" else 16)))
    draft.emit("fullyconnected", draft.output(out), source, weights, bias)
    module, _ = rescale_bias(draft.module())
    x = rng.integers(-high, high, (3, 20)).astype(source.type.dtype)
    program = Program(module, {source.name: x}, "nmp")
    check_program(program, SMALL)
    if elem == "i8":
        answers = []
        for numerics in ("nmp", "glow-int"):
            bundle = parse_bundle(compile_module(module, SMALL, numerics=numerics))
            answers.append(Device(SMALL).run(bundle, program.inputs).outputs[draft.outputs[0]])
        assert answers[0].tobytes() == answers[1].tobytes()


def test_float_and_computed_biases_stay() -> None:
    draft = Draft()
    source = draft.input(int8((2, 6), 0.05))
    weights = draft.constant(np.ones((6, 4), np.int8), "i8", 0.02)
    real = draft.constant(np.ones(4, np.float32), "float")
    draft.emit("fullyconnected", draft.output(int8((2, 4), 0.05)), source, weights, real)
    computed = draft.input(int8((4,), 0.05))
    draft.emit("fullyconnected", draft.output(int8((2, 4), 0.05)), source, weights, computed)
    module = draft.module()
    changed, reports = rescale_bias(module)
    assert changed == module
    assert reports == ()


def test_the_text_survives_a_round_trip() -> None:
    """A pass's module prints and reads back, as bundles need it."""
    bias = np.array([1, 20, -30], np.int32)
    changed, _ = nmpsim.rescale_bias(
        two_layers(bias, "i32", [int8((), 0.002), int8((), 0.01)]).module()
    )
    again = parse(format_module(changed))
    assert [w.name for w in again.weights] == [w.name for w in changed.weights]
    module = parse_bundle(compile_module(changed, SMALL, numerics="nmp")).module()
    assert module.instructions == changed.instructions
    for ours, theirs in zip(module.weights, changed.weights, strict=True):
        assert (ours.name, ours.type.elem, ours.constant) == (
            theirs.name, theirs.type.elem, theirs.constant,
        )  # fmt: skip
        quants = [q and (q.scale, q.offset) for q in (ours.type.quant, theirs.type.quant)]
        assert quants[0] == quants[1]
    for name, values in changed.constants.items():
        assert module.constants[name].tobytes() == values.tobytes()
