"""Test inputs, outputs, layers, steps and symbols of compiled programs."""

from __future__ import annotations

import attrs
import numpy as np
from lir_draft import Draft, int8, tensor_type
from lir_oracle import run_module
from small_programs import SMALL, compile_draft, convolve, image, out_kind, program

from nmpsim.bundle import parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.core.device import Device


def two_layers() -> Draft:
    draft = Draft()
    source = image(draft)
    result = convolve(draft, source, draft.buffer(out_kind(source, scale=0.3, offset=-9)))
    draft.emit("leakyrelu", draft.output(result.type), result, Alpha=0.25)
    return draft


def test_inputs_and_outputs_are_listed() -> None:
    draft = two_layers()
    metadata = compile_draft(draft).metadata
    (given,), (answer,) = metadata.inputs, metadata.outputs
    assert (given.name, given.elem, given.shape) == ("input__1", "i8", (1, 6, 5, 8))
    assert (given.scale, given.offset) == (float(np.float32(0.05)), 3)
    assert (answer.name, answer.shape) == (draft.outputs[0], (1, 6, 5, 8))
    assert (answer.scale, answer.offset) == (float(np.float32(0.3)), -9)


def test_layers_are_listed() -> None:
    draft = two_layers()
    bundle = compile_draft(draft)
    first, second = bundle.metadata.layers
    instructions = draft.instructions
    assert [first.name, second.name] == [instructions[1].name, instructions[2].name]
    assert [first.number, second.number] == [1, 2]
    assert [first.line, second.line] == [101, 102]
    assert [first.op, second.op] == ["convolution", "leakyrelu"]
    assert [first.barrier, second.barrier] == [0, 1]
    assert first.operand == first.output.name == instructions[0].name
    assert second.output == bundle.metadata.outputs[0]
    assert (first.macs, second.macs) == (6 * 5 * 8 * 9 * 8, 0)


def test_a_fused_layer_bears_the_last_name() -> None:
    draft = Draft()
    source = image(draft)
    result = convolve(draft, source, draft.buffer(out_kind(source)))
    draft.emit("relu", draft.output(result.type), result)
    (layer,) = compile_draft(draft).metadata.layers
    names = [i.name for i in draft.instructions if i.opcode != "allocactivation"]
    assert layer.fused == tuple(names)
    assert (layer.name, layer.number, layer.line) == (names[1], 2, 102)
    assert layer.op == "convolution"
    assert layer.operand == draft.outputs[0]


def test_device_and_program_are_stored() -> None:
    metadata = compile_draft(two_layers()).metadata
    assert metadata.device == SMALL.settings()
    assert metadata.numerics == "glow-int"
    assert metadata.program == "drafted"
    module = attrs.evolve(two_layers().module(), file="net.lir")
    assert parse_bundle(compile_module(module, SMALL)).metadata.source == "net.lir"


def test_every_tensor_has_a_symbol() -> None:
    draft = two_layers()
    bundle = compile_draft(draft)
    for tensor in (*bundle.metadata.inputs, *bundle.metadata.outputs):
        assert bundle.symbols[tensor.name] == tensor.address
        assert bundle.rw_base <= tensor.address < bundle.rw_base + bundle.rw_bytes
    buffer = bundle.metadata.layers[0].output
    assert bundle.symbols[buffer.name] == buffer.address
    for core in range(SMALL.cores_count):
        assert f"segment_0.core_{core}" in bundle.symbols


def test_the_same_module_gives_the_same_bundle() -> None:
    images = {bytes(compile_module(two_layers().module(), SMALL)) for _ in range(2)}
    assert len(images) == 1


def test_views_and_touches_are_no_layers() -> None:
    draft = Draft()
    source = draft.input(int8((2, 6)))
    wide = draft.buffer(int8((2, 12)))
    draft.emit("touch", wide)
    for start in (0, 6):
        draft.emit("inserttensor", wide, source, Offsets=(0, start), Count=1, Axis=0)
    flat = draft.view(wide, int8((24,)))
    draft.emit("copy", draft.output(flat.type), flat)
    layers = compile_draft(draft).metadata.layers
    assert [layer.op for layer in layers] == ["inserttensor", "inserttensor", "copy"]


def test_an_unused_input_is_omitted() -> None:
    draft = two_layers()
    draft.input(int8((3,)))
    assert [t.name for t in compile_draft(draft).metadata.inputs] == ["input__1"]


def test_an_output_may_be_read_again() -> None:
    draft = Draft()
    source = image(draft)
    first = draft.emit("relu", draft.output(source.type), source)
    draft.emit("elementadd", draft.output(source.type), first, source)
    metadata = compile_draft(draft).metadata
    assert [t.name for t in metadata.outputs] == draft.outputs
    assert [t.name for t in metadata.inputs] == ["input__1"]


def test_a_state_is_input_and_output() -> None:
    draft = Draft()
    state, change = image(draft), image(draft)
    draft.emit("elementadd", state, state, change)
    metadata = compile_draft(draft).metadata
    assert [t.name for t in metadata.inputs] == [state.name, change.name]
    assert [t.name for t in metadata.outputs] == [state.name]
    case = program(draft)
    done, final = run_module(case.module, case.inputs)
    report = Device(SMALL).run(compile_draft(draft), case.inputs)
    assert report.outputs[state.name].tobytes() == final[state.name].tobytes()
    assert report.outputs[state.name].tobytes() != case.inputs[state.name].tobytes()
    assert len(done) == 1


def test_a_host_step_is_complete() -> None:
    draft = Draft()
    source = draft.input(tensor_type("float", (1, 2, 2, 3)))
    scale = draft.buffer(source.type)
    target = draft.output(source.type)
    draft.emit("splat", scale, Value=0.0)
    attributes = {"HalfWindowSize": 1, "Alpha": 0.5, "Beta": 0.75, "K": 1.0}
    instruction = "localresponsenormalization"
    operands = attrs.evolve(scale), attrs.evolve(target)
    draft.emit(instruction, operands[1], source, operands[0], **attributes)
    last = draft.instructions[-1]
    kinds = ("@out", "@in", "@out")
    changed = tuple(attrs.evolve(o, kind=k) for o, k in zip(last.operands, kinds, strict=True))
    draft.instructions[-1] = attrs.evolve(last, operands=changed)
    step = compile_draft(draft).metadata.steps[-1]
    assert step.kind == "host"
    assert step.opcode == instruction
    assert [o.role for o in step.operands] == ["out", "in", "out"]
    assert [o.tensor.name for o in step.operands] == [target.name, source.name, scale.name]
    assert dict(step.attributes) == attributes


def test_saturation_does_not_depend_on_the_device() -> None:
    draft = Draft()
    source = image(draft, channels=17)
    result = draft.output(out_kind(source, channels=40, scale=0.01))
    case = program(convolve(draft, source, result) and draft)
    found = []
    for cores, nbytes in ((1, 4096), (3, 8192), (32, 131072)):
        config = attrs.evolve(SMALL, cores_count=cores, scratchpad_bytes=nbytes)
        report = Device(config).run(compile_draft(draft, config), case.inputs)
        found.append((report.layers[0].saturation, report.layers[0].elements))
    assert found[0] == found[1] == found[2]
    assert {s.side for s in found[0][0]} == {"low", "high"}
    assert found[0][1] == 6 * 5 * 40
