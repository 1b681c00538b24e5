"""Factors in every profile, against the words that the compiler puts into descriptors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from instruction_streams import core_events
from lir_draft import Draft, Ref, int8, tensor_type
from small_programs import SMALL, WINDOW

from nmpsim.analysis.explain import OperationFacts, explain_layers
from nmpsim.bundle import parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.compiler.numerics import PROFILES
from nmpsim.diagnostics import UserError

S_IN, S_WEIGHTS, S_OUT = (float(np.float32(s)) for s in (0.05, 0.02, 0.11))
S_PRODUCTS = float(np.float32(S_IN) * np.float32(S_WEIGHTS))


def convolution(draft: Draft, bias_scale: float = S_PRODUCTS) -> Ref:
    source = draft.input(int8((1, 4, 4, 8), S_IN, 3))
    filter_ = draft.constant(np.ones((8, 3, 3, 8), np.int8), "i8", S_WEIGHTS, 1)
    bias = draft.constant(np.arange(8, dtype=np.int32), "i32", bias_scale)
    out = draft.output(int8((1, 4, 4, 8), S_OUT, -4))
    return draft.emit("convolution", out, source, filter_, bias, **WINDOW, Group=1)


def convolution_with_its_bias_on_the_result(draft: Draft) -> Ref:
    return convolution(draft, S_OUT)


def addition(draft: Draft) -> Ref:
    lhs, rhs = draft.input(int8((64,), S_IN, 3)), draft.input(int8((64,), S_WEIGHTS, 0))
    return draft.emit("elementadd", draft.output(int8((64,), S_OUT, -4)), lhs, rhs)


def multiplication(draft: Draft) -> Ref:
    lhs, rhs = draft.input(int8((64,), S_IN, 3)), draft.input(int8((64,), S_WEIGHTS, 0))
    return draft.emit("elementmul", draft.output(int8((64,), S_OUT, -4)), lhs, rhs)


def leaky(draft: Draft) -> Ref:
    source = draft.input(int8((64,), S_IN, 3))
    return draft.emit("leakyrelu", draft.output(int8((64,), S_OUT, -4)), source, Alpha=0.1)


def average(draft: Draft) -> Ref:
    source = draft.input(int8((1, 4, 4, 8), S_IN, 3))
    window = {"Kernels": (2, 2), "Strides": (2, 2), "Pads": (0, 0, 0, 0)}
    out = draft.output(int8((1, 2, 2, 8), S_OUT, -4))
    return draft.emit("avgpool", out, source, **window, CountIncludePads=1)


def matmul(draft: Draft) -> Ref:
    lhs, rhs = draft.input(int8((4, 8), S_IN, 3)), draft.input(int8((8, 4), S_WEIGHTS, 0))
    return draft.emit("matmul", draft.output(int8((4, 4), S_OUT, -4)), lhs, rhs)


def constant_matmul(draft: Draft) -> Ref:
    lhs = draft.input(int8((4, 8), S_IN, 3))
    rhs = draft.constant(np.ones((8, 4), np.int8), "i8", S_WEIGHTS)
    return draft.emit("matmul", draft.output(int8((4, 4), S_OUT, -4)), lhs, rhs)


OPERATIONS = [
    convolution,
    convolution_with_its_bias_on_the_result,
    addition,
    multiplication,
    leaky,
    average,
    matmul,
    constant_matmul,
]


@pytest.mark.parametrize("numerics", PROFILES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_explained_words_equal_compiled_words(
    numerics: str, operation: Callable[[Draft], Ref]
) -> None:
    draft = Draft()
    operation(draft)
    module = draft.module()
    (layer,) = explain_layers(module)
    (facts,) = (one for one in layer.profiles if one.name == numerics)
    try:
        image = bytes(compile_module(module, SMALL, numerics=numerics))
    except UserError as error:
        assert facts.refused.startswith(error.diagnostics[0].message)
        return
    assert facts.refused == ""
    words = tensor_words(image)
    for form in facts.forms:
        (scale,) = form.forms
        if form.stage == "result":
            assert words["result_scale"] == scale.mul
            continue
        signed = scale.mul - (1 << 32) if scale.mul >= 1 << 31 else scale.mul
        assert (words[f"{form.stage}_pre"], words[f"{form.stage}_mul"]) == (scale.pre, signed)
        shift = 0 if words.get("out_mul") else words.get("out_post", 0)
        own = words[f"{form.stage}_post"]
        assert scale.post == (own if form.stage == "out" else own + shift)
    told = {form.stage for form in facts.forms}
    stages = {name.removesuffix("_mul") for name in words if name.endswith("_mul")}
    assert {stage for stage in stages if words[f"{stage}_mul"]} <= told


def tensor_words(image: bytes) -> dict[str, int]:
    """Return the descriptor words of the first computing instruction."""
    bundle = parse_bundle(image)
    (step,) = (step for step in bundle.metadata.steps if step.kind == "device")
    for event in core_events(bundle, step.entry, 0):
        if not isinstance(event, tuple) and event.mnemonic not in ("nmp.load", "nmp.store"):
            return dict(event.words)
    raise AssertionError("nothing computes")


def only_layer(draft: Draft) -> OperationFacts:
    return explain_layers(draft.module())[-1]


def test_values_of_all_forms_equal_the_factor() -> None:
    draft = Draft()
    convolution(draft)
    layer = only_layer(draft)
    for facts in layer.profiles:
        for form in facts.forms:
            if form.stage == "out" and facts.name not in ("float-onednn",):
                (value,) = form.list_values()
                assert value == pytest.approx(S_PRODUCTS / S_OUT, rel=2e-3)


def test_each_channel_has_its_factor() -> None:
    draft = Draft()
    source = draft.input(int8((1, 4, 4, 8), S_IN, 3))
    filter_ = draft.constant(np.ones((4, 3, 3, 8), np.int8), "i8", 0.0)
    bias = draft.constant(np.arange(4, dtype=np.int32), "i32", 0.0)
    scales = np.array([0.01, 0.02, 0.03, 0.04], np.float32)
    tables = [
        draft.constant(scales, "float"),
        draft.constant(np.zeros(4, np.int32), "index32"),
        draft.constant(scales * np.float32(S_IN), "float"),
        draft.constant(np.zeros(4, np.int32), "index32"),
    ]
    out = draft.output(int8((1, 4, 4, 4), S_OUT, -4))
    draft.emit(
        "channelwisequantizedconvolution", out, source, filter_, bias, *tables, **WINDOW, Group=1
    )
    layer = only_layer(draft)
    forms = {facts.name: facts.forms for facts in layer.profiles}
    (out_form,) = (form for form in forms["q31"] if form.stage == "out")
    assert out_form.list_values() == pytest.approx(S_IN * scales.astype(float) / S_OUT, rel=1e-7)


def test_int16_of_glow_int_follows_the_interpreter() -> None:
    draft = Draft()
    source = draft.input(tensor_type("i16", (8,), 0.5))
    draft.emit("relu", draft.output(tensor_type("i16", (8,), 0.25)), source)
    glow = {facts.name: facts.forms for facts in only_layer(draft).profiles}
    assert glow["glow-int"] == glow["glow-float"]


def test_int16_rescaling_uses_libjits_integers() -> None:
    draft = Draft()
    source = draft.input(tensor_type("i16", (8,), 0.5))
    draft.emit("rescalequantized", draft.output(tensor_type("i16", (8,), 0.3)), source)
    glow = {facts.name: facts.forms for facts in only_layer(draft).profiles}
    assert glow["glow-int"] == glow["nmp"] != glow["glow-float"]
