"""Test which tensors are quantized and how, with a small program for each rule."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from lir_draft import Draft, Ref
from random_float_nets import real

from nmpsim.diagnostics import UserError
from nmpsim.interpreter import dequantize, execute_exact, execute_real, locate_tensors
from nmpsim.lir.nodes import Module
from nmpsim.quantization import CalibratedProgram, QuantizedProgram, Settings

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
ONE_BY_ONE = {
    "Kernels": (1, 1),
    "Strides": (1, 1),
    "Pads": (0,) * 4,
    "Group": 1,
    "Dilation": (1, 1),
}
POOL = {"Kernels": (2, 2), "Strides": (2, 2), "Pads": (0,) * 4}


def weights(draft: Draft, *shape: int) -> Ref:
    return draft.constant(RNG.normal(0, 1, shape).astype(np.float32), "float")


def convolution(draft: Draft, src: Ref, outputs: int = 2, **more: Any) -> Ref:
    dest = draft.result(real(*src.shape[:3], outputs))
    filters = weights(draft, outputs, 1, 1, src.shape[3])
    return draft.emit(
        "convolution", dest, src, filters, weights(draft, outputs), **ONE_BY_ONE, **more
    )


def finish(draft: Draft, last: Ref) -> Module:
    draft.emit("copy", draft.output(last.type), last)
    return draft.module()


def quantize(module: Module, **choices: Any) -> QuantizedProgram:
    (data,) = (w for w in module.weights if not w.constant and w.name.startswith("input"))
    samples = np.random.default_rng(1).normal(0, 1, (4, *data.type.shape))
    return CalibratedProgram.from_samples(module, {data.name: samples}).quantize(
        Settings(**choices)
    )


def get_result_types(program: QuantizedProgram) -> dict[str, Any]:
    """Return the result type of each instruction."""
    places = locate_tensors(program.module)
    return {
        i.name: places[i.operands[0].name].type
        for i in program.module.instructions
        if i.operands and i.opcode not in ("tensorview", "deallocactivation")
    }


def by_opcode(program: QuantizedProgram, opcode: str) -> list[Any]:
    return [i for i in program.module.instructions if i.opcode == opcode]


def result_type(program: QuantizedProgram, opcode: str) -> Any:
    (instruction,) = by_opcode(program, opcode)
    return get_result_types(program)[instruction.name]


def image_net() -> tuple[Draft, Ref]:
    draft = Draft()
    return draft, draft.input(real(1, 4, 4, 2))


def test_moves_keep_the_parameters():
    draft, data = image_net()
    image = convolution(draft, data)
    pooled = draft.emit("maxpool", draft.buffer(real(1, 2, 2, 2)), image, **POOL)
    turned = draft.emit("transpose", draft.buffer(real(1, 2, 2, 2)), pooled, Shuffle=(0, 3, 1, 2))
    flat = draft.view(turned, real(1, 8))
    product = draft.emit("matmul", draft.buffer(real(1, 3)), flat, weights(draft, 8, 3))
    program = quantize(finish(draft, product))
    expected = result_type(program, "convolution").quant
    for opcode in ("maxpool", "transpose"):
        assert result_type(program, opcode).quant == expected
    (view,) = by_opcode(program, "tensorview")
    assert view.attributes["Ty"].quant == expected
    assert result_type(program, "matmul").quant != expected


@pytest.mark.parametrize("activation", ["relu", "clip", "cpumaxsplat"])
@pytest.mark.parametrize("opcode", ["convolution", "elementadd"])
def test_an_operation_has_the_range_of_its_activation(opcode, activation):
    attributes = {"clip": {"Min": 0.0, "Max": 0.5}, "cpumaxsplat": {"SplatValue": 0.0}}
    draft, data = image_net()
    if opcode == "convolution":
        image = convolution(draft, data)
    else:
        image = draft.emit("elementadd", draft.buffer(data.type), data, data)
    active = draft.emit(
        activation, draft.buffer(image.type), image, **attributes.get(activation, {})
    )
    program = quantize(finish(draft, active))
    kind = result_type(program, opcode)
    assert kind.quant.offset == -128  # the range begins at real zero
    assert result_type(program, activation) == kind
    (narrowed,) = (result for result in program.results if result.narrowed)
    assert narrowed.opcode == opcode


def test_a_result_with_other_readers_keeps_its_range():
    draft, data = image_net()
    image = convolution(draft, data)
    active = draft.emit("relu", draft.buffer(image.type), image)
    total = draft.emit("elementadd", draft.buffer(image.type), image, active)
    program = quantize(finish(draft, total))
    assert result_type(program, "convolution").quant.offset != -128
    assert result_type(program, "relu").quant.offset == -128


def test_parts_of_a_concatenation_have_its_parameters():
    draft, data = image_net()
    small = convolution(draft, data)
    large = draft.emit("elementmul", draft.buffer(data.type), data, data)
    whole = draft.emit("touch", draft.buffer(real(1, 4, 4, 4)))
    draft.emit("inserttensor", whole, small, Offsets=(0, 0, 0, 0), Count=1, Axis=3)
    draft.emit("inserttensor", whole, large, Offsets=(0, 0, 0, 2), Count=1, Axis=3)
    image = convolution(draft, whole)
    program = quantize(finish(draft, image))
    types, (first, _) = get_result_types(program), by_opcode(program, "inserttensor")
    kind = types[first.name].quant
    assert result_type(program, "elementmul").quant == kind
    assert types[by_opcode(program, "convolution")[0].name].quant == kind
    assert not by_opcode(program, "rescalequantized")


def test_a_part_that_others_read_is_rescaled_into_a_concatenation():
    draft, data = image_net()
    small = convolution(draft, data)
    large = draft.emit("elementmul", draft.buffer(data.type), data, data)
    whole = draft.emit("touch", draft.buffer(real(1, 4, 4, 4)))
    draft.emit("inserttensor", whole, small, Offsets=(0, 0, 0, 0), Count=1, Axis=3)
    draft.emit("inserttensor", whole, large, Offsets=(0, 0, 0, 2), Count=1, Axis=3)
    other = draft.emit("elementadd", draft.buffer(small.type), small, small)
    draft.emit("copy", draft.output(other.type), other)
    program = quantize(finish(draft, whole))
    assert len(by_opcode(program, "rescalequantized")) == 1


def test_an_operation_between_float_operations_is_quantized():
    draft, data = image_net()
    squeezed = draft.emit("softmax", draft.buffer(data.type), data)
    image = convolution(draft, squeezed)
    program = quantize(finish(draft, draft.emit("softmax", draft.buffer(image.type), image)))
    opcodes = [i.opcode for i in program.module.instructions if "alloc" not in i.opcode]
    assert opcodes[:4] == ["softmax", "quantize", "convolution", "dequantize"]
    assert [r.reason for r in program.staying_float] == ["the device has no unit for softmax"] * 2


def test_float_moves_stay_float():
    draft, data = image_net()
    image = convolution(draft, data)
    soft = draft.emit("softmax", draft.buffer(image.type), image)
    turned = draft.emit("transpose", draft.buffer(real(1, 2, 4, 4)), soft, Shuffle=(0, 3, 1, 2))
    program = quantize(finish(draft, turned))
    assert result_type(program, "transpose").elem == "float"
    (moved,) = (r for r in program.staying_float if r.opcode == "transpose")
    assert "moves" in moved.reason


@pytest.mark.parametrize("elem", ["i8", "i16"])
@pytest.mark.parametrize("opcode", ["sigmoid", "tanh"])
def test_functions_become_tables_in_int8(opcode, elem):
    draft, data = image_net()
    image = convolution(draft, data)
    curve = draft.emit(opcode, draft.buffer(image.type), image)
    module = finish(draft, curve)
    program = quantize(module, elem=elem)
    if elem == "i16":
        (staying,) = program.staying_float
        assert staying.opcode == opcode
        return
    assert not program.staying_float
    assert by_opcode(program, "intlookuptable")
    inputs = {
        data.name: np.random.default_rng(1).normal(0, 1, (4, 1, 4, 4, 2))[0].astype(np.float32)
    }
    types = {name: place.type for name, place in locate_tensors(program.module).items()}
    exact = execute_exact(program.module, inputs)
    expected = {i.name: values for i, _, values in execute_real(module, inputs)}
    actual = {i.name: dequantize(v, types[n]) for i, n, v in exact}
    (table,) = by_opcode(program, "intlookuptable")
    assert np.abs(actual[table.name] - expected[table.name]).max() < 0.05


def fully_connected_net() -> Module:
    draft = Draft()
    data = draft.input(real(1, 6))
    dest = draft.output(real(1, 4))
    draft.emit("fullyconnected", dest, data, weights(draft, 6, 4), weights(draft, 4))
    return draft.module()


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("bias_elem", ["i16", "i32"])
@pytest.mark.parametrize("elem", ["i8", "i16"])
def test_biases_can_have_the_scale_of_the_result(elem, bias_elem, per_channel):
    draft, data = image_net()
    image = convolution(draft, data)
    product = draft.buffer(real(1, 3))
    draft.emit(
        "fullyconnected",
        product,
        draft.view(image, real(1, 32)),
        weights(draft, 32, 3),
        weights(draft, 3),
    )
    module = finish(draft, product)
    program = quantize(
        module, elem=elem, bias_elem=bias_elem, bias_on_result=True, per_channel=per_channel
    )
    places = {name: place.type for name, place in locate_tensors(program.module).items()}
    floats = {w.name: w for w in module.weights}
    for instruction in program.module.instructions:
        names = [operand.name for operand in instruction.operands]
        constants = program.module.constants
        if "convolution" in instruction.opcode or "fullyconnected" in instruction.opcode:
            result, bias = places[names[0]].quant, places[names[3]]
            assert bias.elem == bias_elem
            scale, offset = bias.quant.scale, bias.quant.offset
            if instruction.opcode.startswith("channelwise"):
                scale, offset = constants[names[6]], constants[names[7]]
            assert np.all(scale == np.float32(result.scale))
            assert np.all(offset == result.offset)
            reals = result.scale * (constants[names[3]].astype(np.float64) - result.offset)
            original = module.constants[names[3]] if names[3] in floats else None
            assert original is not None
            np.testing.assert_allclose(reals, original, atol=0.51 * result.scale)


def test_a_bias_that_does_not_fit_is_counted():
    draft, data = image_net()
    dest = draft.output(real(1, 4, 4, 2))
    filters = draft.constant(np.full((2, 1, 1, 2), 1e-3, np.float32), "float")
    bias = draft.constant(np.array([-5, 1], np.float32), "float")
    draft.emit(
        "convolution",
        dest,
        data,
        filters,
        bias,
        **ONE_BY_ONE,
        FusedActivation="RELU",
        FusedActivationArgs=(),
    )
    module = draft.module()
    lost = quantize(module, bias_elem="i8", bias_on_result=True)
    assert [result.bias_saturated for result in lost.results] == [1]
    assert [result.bias_saturated for result in quantize(module, bias_elem="i8").results] == [0]


def test_the_bias_of_a_lowered_fully_connected_layer_is_on_the_scale_of_the_products():
    draft = Draft()
    data = draft.input(real(1, 6))
    product = draft.emit("matmul", draft.buffer(real(1, 4)), data, weights(draft, 6, 4))
    total = draft.emit("batchedadd", draft.buffer(real(1, 4)), product, weights(draft, 4))
    program = quantize(finish(draft, total))
    places = {name: place.type for name, place in locate_tensors(program.module).items()}
    (matmul,), (add,) = by_opcode(program, "matmul"), by_opcode(program, "batchedadd")
    bias = places[add.operands[2].name]
    factors = [np.float32(places[o.name].quant.scale) for o in matmul.operands[1:]]
    assert bias.elem == "i32"
    assert bias.quant.scale == float(factors[0] * factors[1])


@pytest.mark.parametrize("name", ["convolution", "a name"])
def test_keep_float_excludes_layers(name):
    draft, data = image_net()
    image = convolution(draft, convolution(draft, data))
    module = finish(draft, image)
    first = next(i.name for i in module.instructions if i.opcode == "convolution")
    asked = name if name == "convolution" else first
    if name == "convolution":
        with pytest.raises(UserError) as caught:
            quantize(module, keep_float=frozenset({asked}))
        (finding,) = caught.value.diagnostics
        assert finding.code == "QUANT003"
        assert "--keep-float convolution" in finding.found
        return
    program = quantize(module, keep_float=frozenset({asked}))
    (staying,) = program.staying_float
    assert (staying.name, staying.reason) == (first, f"requested by --keep-float {first}")


def get_diagnostic(module: Module, **choices: Any) -> Any:
    with pytest.raises(UserError) as caught:
        quantize(module, **choices)
    (finding,) = caught.value.diagnostics
    return finding


def test_an_unknown_name_of_keep_float_is_an_error():
    finding = get_diagnostic(fully_connected_net(), keep_float=frozenset({"fullyconected"}))
    assert finding.code == "QUANT004"
    assert "fullyconnected" in finding.hint


def test_a_program_that_only_moves_is_refused():
    draft, data = image_net()
    turned = draft.emit("transpose", draft.buffer(real(1, 2, 4, 4)), data, Shuffle=(0, 3, 1, 2))
    finding = get_diagnostic(finish(draft, turned))
    assert finding.code == "QUANT003"
    assert finding.found == "a program without operations"


def test_a_quantized_program_is_refused():
    program = quantize(fully_connected_net())
    finding = get_diagnostic(program.module)
    assert finding.code == "QUANT001"
    assert "quantized tensors" in finding.found


def test_computed_weights_stay_float():
    draft = Draft()
    data = draft.input(real(1, 4))
    square = draft.buffer(real(4, 4))
    draft.emit("matmul", square, draft.view(data, real(4, 1)), data)
    dest = draft.emit("fullyconnected", draft.buffer(real(1, 4)), data, square, weights(draft, 4))
    (staying,) = quantize(finish(draft, dest)).staying_float
    assert "is not a constant" in staying.reason


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_nan_weights_are_reported(bad):
    draft = Draft()
    data = draft.input(real(1, 2))
    filters = draft.constant(np.full((2, 2), bad, np.float32), "float")
    dest = draft.output(real(1, 2))
    draft.emit("fullyconnected", dest, data, filters, weights(draft, 2))
    module = draft.module()
    samples = np.array([[[4.0, 4.0]]])
    with pytest.raises(UserError) as caught:
        CalibratedProgram.from_samples(module, {data.name: samples})
    (finding,) = caught.value.diagnostics
    assert finding.code == "QUANT002"
    assert "values that are not finite" in finding.message and "2 of 2 values" in finding.found
    assert finding.place.line


def test_one_infinite_value_is_reported_once():
    draft = Draft()
    data = draft.input(real(1, 2))
    draft.emit("elementdiv", draft.output(real(1, 2)), data, data)
    module = draft.module()
    with pytest.raises(UserError) as caught:
        CalibratedProgram.from_samples(module, {data.name: np.array([[[4.0, 0.0]]])})
    (finding,) = caught.value.diagnostics
    assert "no finite number" not in finding.message
    assert finding.found == "1 of 2 values are not finite"


def test_a_state_is_input_and_output():
    draft = Draft()
    data, state = draft.input(real(1, 4)), draft.input(real(1, 4))
    draft.emit("elementadd", state, state, data)
    module = draft.module()
    samples = np.random.default_rng(1).normal(0, 1, (3, 1, 4))
    program = CalibratedProgram.from_samples(
        module, {data.name: samples, state.name: samples[::-1]}
    ).quantize(Settings())
    run = execute_exact(program.module, {data.name: samples[0], state.name: samples[2]})
    for _ in run:
        pass
    np.testing.assert_allclose(run.copy_values(state.name), samples[0] + samples[2], atol=0.1)


def test_states_are_exchanged():
    """Outputs that are inputs are written when nobody needs their old values any more."""
    draft = Draft()
    one, other = draft.input(real(1, 4)), draft.input(real(1, 4))
    total = draft.emit("elementadd", draft.output(real(1, 4)), one, other)
    before = draft.emit("copy", draft.buffer(real(1, 4)), one)
    draft.emit("copy", one, other)
    draft.emit("copy", other, before)
    module = draft.module()
    samples = np.random.default_rng(1).normal(0, 1, (3, 1, 4)).astype(np.float32)
    arrays = {one.name: samples, other.name: samples[::-1]}
    program = CalibratedProgram.from_samples(module, arrays).quantize(Settings())
    run = execute_exact(program.module, {name: values[0] for name, values in arrays.items()})
    for _ in run:
        pass
    assert run.copy_values(one.name).tolist() == samples[2].tolist()
    assert run.copy_values(other.name).tolist() == samples[0].tolist()
    np.testing.assert_allclose(run.copy_values(total.name), samples[0] + samples[2], atol=0.1)


def test_a_condition_is_refused():
    module = fully_connected_net()
    conditional = attrs.evolve(module.instructions[0], predicate=module.weights[0].name)
    finding = get_diagnostic(attrs.evolve(module, instructions=(conditional,)))
    assert finding.code == "QUANT001"
    assert "predicated" in finding.message


@pytest.mark.parametrize("channels_first", [True, False])
def test_sums_over_a_flattened_image_run_in_the_order_of_the_network(channels_first):
    """In float32, 2**24 + 1 - 2**24 is 0, and 2**24 - 2**24 + 1 is 1."""
    draft = Draft()
    pixels = np.float32([[[[2**24, 1], [-(2**24), 0]]]])  # 1 x 1 x 2 pixels, 2 channels
    if channels_first:
        pixels = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    data = draft.input(real(*pixels.shape))
    last = data
    if channels_first:
        last = draft.emit("transpose", draft.result(real(1, 1, 2, 2)), data, Shuffle=(0, 2, 3, 1))
    flat = draft.view(last, real(1, 4), (0, 0, 0, 0))
    ones = draft.constant(np.ones((4, 1), np.float32), "float")
    bias = draft.constant(np.zeros(1, np.float32), "float")
    product = draft.emit("fullyconnected", draft.result(real(1, 1)), flat, ones, bias)
    calibrated = CalibratedProgram.from_samples(finish(draft, product), {data.name: pixels})
    ranges = {value.name: (r.low, r.high) for value, r in calibrated.ranges.items()}
    assert ranges[calibrated.graph.nodes[-1].instruction.name] == (
        (1, 1) if channels_first else (0, 0)
    )
