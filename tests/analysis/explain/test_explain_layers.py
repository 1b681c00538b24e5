"""Layers of programs: which one is meant, what is said about it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lir_draft import Draft, int8, tensor_type
from recorded_programs import programs
from small_programs import SMALL, compile_draft, convolve, image, out_kind
from tiers import each_value, program_parts

from nmpsim.analysis.explain import explain_layers, make_layers_document
from nmpsim.analysis.explain.layers import ARITHMETIC
from nmpsim.analysis.program import load_program, make_bundle_program
from nmpsim.lir.nodes import Module
from nmpsim.lir.opcodes import OPCODES
from nmpsim.report.json import format_json


def list_explained_layers(draft: Draft):
    return explain_layers(draft.module())


def test_an_index_means_a_layer_of_the_bundle() -> None:
    draft = Draft()
    source = image(draft)
    result = convolve(draft, source, draft.buffer(out_kind(source)))
    draft.emit("relu", draft.output(result.type), result)
    program = make_bundle_program(compile_draft(draft, SMALL))
    convolution, relu = explain_layers(program.module, program.layer_indices)
    assert (convolution.index, relu.index) == (0, 0)
    assert program.numerics == "glow-int"


def test_float_layers_are_reported() -> None:
    draft = Draft()
    source = draft.input(tensor_type("float", (4,)))
    draft.emit("relu", draft.output(tensor_type("float", (4,))), source)
    (layer,) = list_explained_layers(draft)
    assert (layer.stages, layer.arithmetic, layer.profiles) == ((), "", ())
    assert "not quantized" in layer.notes[0]


def test_a_float_bias_has_no_integers() -> None:
    draft = Draft()
    source = draft.input(int8((1, 4)))
    weights = draft.constant(np.ones((4, 2), np.int8), "i8", 0.25)
    bias = draft.constant(np.ones(2, np.float32), "float")
    draft.emit("fullyconnected", draft.output(int8((1, 2))), source, weights, bias)
    module = Module("m", tuple(draft.weights), tuple(draft.instructions), draft.constants)
    (layer,) = explain_layers(module)
    assert [stage.name for stage in layer.stages] == ["out"]
    assert "bias is float" in layer.notes[0]


def test_a_real_bias_is_shown_in_each_profile() -> None:
    draft = Draft()
    source = draft.input(int8((1, 4), 0.5))
    weights = draft.constant(np.ones((4, 2), np.int8), "i8", 0.25)
    bias = draft.constant(np.float32([0.1, -0.7]), "float")
    draft.emit("fullyconnected", draft.output(int8((1, 2))), source, weights, bias)
    (layer,) = list_explained_layers(draft)
    assert layer.notes[1] == "the bias is largest in channel 1, -0.699999988; at run time it is"
    real, steps = float(np.float32(-0.7)), float(np.float32(-0.7)) * 8
    assert layer.notes[2] == (
        f"-6 (float), {steps:.17g} (float-fbgemm, real), -6 (float-qnnpack),"
        f" {real:.17g} (float-onednn, real)"
    )


def test_scales_that_are_not_positive_have_no_form() -> None:
    draft = Draft()
    source = draft.input(int8((4,), 1e-30))
    draft.emit("rescalequantized", draft.output(int8((4,), 3e38)), source)
    (layer,) = list_explained_layers(draft)
    (stage,) = layer.stages
    assert stage.factors == (None,)
    assert format_json(make_layers_document("x", [layer]))


def test_every_arithmetic_belongs_to_an_opcode() -> None:
    assert set(ARITHMETIC) <= set(OPCODES)


@pytest.mark.parametrize("name", each_value(programs("lir(_real)?/"), program_parts))
def test_every_recorded_program_can_be_explained(name: str, shared: Path) -> None:
    """With scales that need a constant, and without; every quantized sum has its two stages."""
    text = shared / name
    weights = text.with_name(text.name.replace(".lir.txt", ".npz"))
    large = "resnet50" in name
    program = load_program(text, None if large else weights)
    layers = explain_layers(program.module)
    assert format_json(make_layers_document("main", layers))
    for layer in layers:
        if "convolution" in layer.opcode or "fullyconnected" in layer.opcode:
            assert [stage.name for stage in layer.stages[:2]] in (["bias", "out"], [])
            assert bool(layer.stages) == (layer.operands[0].scale is not None)
        for stage in layer.stages:
            errors = [abs(f.relative_error) for f in stage.factors if f]
            assert len(errors) == len(stage.factors) and max(errors) < 2**-8
            if "pow2" in name and layer.opcode != "avgpool" and stage.name != "leaky":
                assert errors == [0.0] * len(errors)
            if "out" in stage.name:
                assert np.isfinite(stage.reals).all()


def test_channels_need_weights(shared: Path) -> None:
    text = shared / "lir/lenet/i8_asym_b32_channelwise/interp.lir.txt"
    layers = explain_layers(load_program(text).module)
    (layer, *_) = (one for one in layers if one.opcode == "channelwisequantizedconvolution")
    assert layer.stages == ()
    assert "pass --weights" in layer.notes[0]
