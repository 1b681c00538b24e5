"""A bundle may mix profiles: which layer follows which, what fuses, what is refused."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from compiled_runs import check_program
from compiled_runs import compile_program as compiled_program
from hypothesis import given
from hypothesis import strategies as st
from lir_draft import Draft, Ref, int8, tensor_type
from program_writer import Program, Size, Writer, sizes
from random_arithmetic import (
    avg_pool,
    batched_add,
    binary,
    convolution,
    fully_connected,
    unary_attributes,
)
from random_programs import chains, write
from small_programs import SMALL, convolve, image, out_kind, program
from tiers import examples, tiling

from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.compiler.numerics import PROFILES
from nmpsim.core.device import Device
from nmpsim.diagnostics import Diagnostic, UserError
from nmpsim.isa.codec import decode_descriptor
from nmpsim.isa.profiles import NUMERICS, NumericsProfile
from nmpsim.isa.profiles import PROFILES as DEVICE_PROFILES
from nmpsim.isa.table import DESCRIPTORS


def compiled(draft: Draft, numerics: str = "glow-int", **by_layer: str) -> Bundle:
    options = {"numerics": numerics, "layer_numerics": by_layer, **tiling()}
    return parse_bundle(compile_module(draft.module(), SMALL, **options))


def refusal(draft: Draft, numerics: str = "glow-int", **by_layer: str) -> Diagnostic:
    with pytest.raises(UserError) as caught:
        compiled(draft, numerics, **by_layer)
    (finding,) = caught.value.diagnostics
    return finding


def convolution_and_relu() -> Draft:
    draft = Draft()
    source = image(draft)
    result = convolve(draft, source, draft.buffer(out_kind(source)))
    draft.emit("relu", draft.output(result.type), result)
    return draft


def names(draft: Draft) -> list[str]:
    return [i.name for i in draft.instructions if i.opcode != "allocactivation"]


def test_one_profile_applies_to_all_layers() -> None:
    bundle = compiled(convolution_and_relu(), "glow-float")
    assert [layer.numerics for layer in bundle.metadata.layers] == ["glow-float"]
    assert bundle.metadata.numerics == "glow-float"


@pytest.mark.parametrize("which", [0, 1])
def test_a_fused_layer_has_all_its_names(which: int) -> None:
    draft = convolution_and_relu()
    bundle = compiled(draft, **{names(draft)[which]: "float"})
    (layer,) = bundle.metadata.layers
    assert layer.fused == tuple(names(draft))
    assert layer.numerics == "float"
    assert bundle.metadata.numerics == "glow-int"


def test_different_profiles_do_not_fuse() -> None:
    draft = convolution_and_relu()
    first, second = names(draft)
    layers = compiled(draft, **{first: "float", second: "glow-float"}).metadata.layers
    assert [(layer.name, layer.numerics) for layer in layers] == [
        (first, "float"),
        (second, "glow-float"),
    ]


def test_a_third_different_profile_does_not_fuse() -> None:
    """Though what is given by name for the second is what all have."""
    draft = Draft()
    source = image(draft)
    result = convolve(draft, source, draft.buffer(out_kind(source)))
    middle = draft.emit("relu", draft.buffer(result.type), result)
    draft.emit("clip", draft.output(result.type), middle, Min=0.0, Max=5.0)
    first, second, third = names(draft)
    layers = compiled(draft, **{second: "glow-int", third: "float"}).metadata.layers
    assert [(layer.fused or layer.name, layer.numerics) for layer in layers] == [
        ((first, second), "glow-int"),
        (third, "float"),
    ]


def sum_and_relu(elem: str) -> Draft:
    draft = Draft()
    source = draft.input(int8((8, 32), 0.05, 3))
    spread = {"i8": 100, "i32": 20000}[elem]
    values = np.linspace(-spread, spread, 32).astype({"i8": np.int8, "i32": np.int32}[elem])
    piece = draft.constant(values, elem, 4.3 / spread, 1)
    total = draft.emit("batchedadd", draft.buffer(int8((8, 32), 0.07, -5)), source, piece)
    draft.emit("relu", draft.output(total.type), total)
    return draft


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("elem", ["i8", "i32"])
def test_fusing_changes_no_bit(elem: str, which: int) -> None:
    """The sum is the Interpreter's, whichever of the two was named, and fused or not."""
    draft = sum_and_relu(elem)
    case = program(draft)
    answers = []
    for fuse in (False, True):
        for by_layer in ({names(draft)[which]: "glow-float"}, {}):
            case = change_attributes(case, by_layer=by_layer)
            bundle = compiled_program(case, SMALL, fuse)
            assert bundle is not None
            (values,) = Device(SMALL).run(bundle, case.inputs).outputs.values()
            answers.append(values)
    named, plain, named_fused, plain_fused = answers
    np.testing.assert_array_equal(named, named_fused)
    np.testing.assert_array_equal(plain, plain_fused)
    assert (named != plain).any()
    check_program(change_attributes(case, by_layer={names(draft)[which]: "glow-float"}), SMALL)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(("numerics", "least"), [("glow-float", 2), ("float", 1), ("q31", 2)])
def test_bounds_of_a_fused_clip_follow_the_profile(numerics: str, least: int, which: int) -> None:
    """0.25 / 0.5 + 1 lies between two integers: each profile rounds it in its own way."""
    draft = Draft()
    kind = int8((4, 16), 0.5, 1)
    total = draft.emit("elementadd", draft.buffer(kind), draft.input(kind), draft.input(kind))
    draft.emit("clip", draft.output(kind), total, Min=0.25, Max=20.0)
    case = change_attributes(program(draft), by_layer={names(draft)[which]: numerics})
    check_program(case, SMALL)
    bundle = compiled_program(case, SMALL, fuse=True)
    assert bundle is not None
    assert {words["clip_low"] for words in find_descriptors(bundle, "eltwise")} == {least}


def test_descriptors_contain_the_profile() -> None:
    draft = Draft()
    source = image(draft)
    first = convolve(draft, source, draft.buffer(out_kind(source)))
    convolve(draft, first, draft.output(out_kind(source)))
    bundle = compiled(draft, **{names(draft)[1]: "glow-float"})
    found = {words["layer"]: words["profile"] for words in find_descriptors(bundle, "conv")}
    assert {layer: DEVICE_PROFILES[number] for layer, number in found.items()} == {
        0: "glow_int",
        1: "glow_float",
    }


def find_descriptors(bundle: Bundle, kind: str) -> list[dict[str, int]]:
    """Return the decoded descriptors of one kind that the code of the layers uses."""
    from nmpsim.bundle.assembly.disassembler import analyze_code

    found = []
    for start, end in bundle.text:
        words = bundle.image[start - bundle.image_base : end - bundle.image_base].view("<u4")
        for address, name in analyze_code(words.tolist(), start).descriptors.items():
            if name == kind:
                at = address - bundle.image_base
                record = bundle.image[at : at + DESCRIPTORS[kind].nbytes].tobytes()
                found.append(decode_descriptor(kind, record))
    return found


def test_int16_of_glow_int_follows_the_interpreter() -> None:
    draft = Draft()
    kind = tensor_type("i16", (2, 9), 0.001)
    left, right = draft.input(kind), draft.input(kind)
    total = draft.emit("elementadd", draft.buffer(kind), left, right)
    draft.emit("copy", draft.output(kind), total)
    layers = compiled(draft).metadata.layers
    assert [layer.numerics for layer in layers] == ["glow-float", ""]


def test_float_operations_have_no_profile() -> None:
    draft = Draft()
    source = draft.input(tensor_type("float", (2, 9)))
    quantized = draft.emit("quantize", draft.buffer(int8((2, 9), 0.1)), source)
    real = draft.emit("dequantize", draft.buffer(source.type), quantized)
    draft.emit("softmax", draft.output(source.type), real)
    bundle = compiled(draft, "q31")
    assert [layer.numerics for layer in bundle.metadata.layers] == ["q31", "", ""]
    assert {step.numerics for step in bundle.metadata.steps} == {"q31"}


def test_an_unknown_layer_is_refused() -> None:
    draft = convolution_and_relu()
    name = names(draft)[0]
    found = refusal(draft, **{name[:-1] + "x": "float"})
    assert found.code == "COMP001"
    assert found.message == f"no layer is named {name[:-1] + 'x'!r}"
    assert found.found is not None
    assert all(f"{one} (index " in found.found for one in names(draft))
    assert found.hint is not None
    assert name in found.hint


@pytest.mark.parametrize("numerics", ["glow_int", "GLOW-INT", "fbgemm", "float-fbgem", ""])
def test_an_unknown_profile_of_a_layer_is_refused(numerics: str) -> None:
    draft = convolution_and_relu()
    found = refusal(draft, **{names(draft)[0]: numerics})
    assert (found.code, found.message) == ("COMP001", "unknown numerics profile")
    assert found.expected == ", ".join(PROFILES)


def float_bias() -> Draft:
    draft = Draft()
    source = draft.input(int8((2, 6), 0.05))
    weights = draft.constant(np.ones((6, 4), np.int8), "i8", 0.02)
    bias = draft.constant(np.ones(4, np.float32), "float")
    draft.emit("fullyconnected", draft.output(int8((2, 4), 0.05)), source, weights, bias)
    return draft


@pytest.mark.parametrize("numerics", ["glow-int", "glow-float", "nmp", "q31"])
def test_profiles_of_integer_biases_are_mixed(numerics: str) -> None:
    found = refusal(float_bias(), numerics)
    assert found.code == "COMP001"
    assert found.found == "a bias of float32"
    assert found.hint is not None
    assert "--numerics float" in found.hint


@pytest.mark.parametrize("numerics", [n for n in PROFILES if n.startswith("float")])
def test_profiles_of_float_biases_are_mixed(numerics: str) -> None:
    check_program(change_attributes(program(float_bias()), numerics=numerics), SMALL)


def change_attributes(case: Program, **changes: Any) -> Program:
    return Program(case.module, case.inputs, **changes)


def test_q31_requires_a_bias_on_the_scale_of_the_sum() -> None:
    draft = Draft()
    source = draft.input(int8((2, 6), 0.05))
    weights = draft.constant(np.ones((6, 4), np.int8), "i8", 0.02)
    bias = draft.constant(np.ones(4, np.int32), "i32", 0.0011)
    draft.emit("fullyconnected", draft.output(int8((2, 4), 0.05)), source, weights, bias)
    found = refusal(draft, "q31")
    assert found.code == "COMP001"
    assert found.place is not None
    assert found.place.line
    assert "the input scale times the weight scale" in str(found.expected)


@pytest.mark.parametrize("numerics", ["q31", "float", "float-onednn"])
def test_a_leaky_activation_after_a_sum_has_its_profile(numerics: str) -> None:
    """The unit has it in integers only, and the host has none of these."""
    draft = Draft()
    source = image(draft)
    arguments = (0.1,)
    target = draft.output(out_kind(source))
    convolve(draft, source, target, activation="LEAKY_RELU", arguments=arguments)
    found = refusal(draft, numerics)
    assert found.code == "COMP001"
    assert numerics in str(found.found)
    assert "LEAKY_RELU" in str(found.found)


def test_host_operations_follow_the_profile() -> None:
    """The result lies on a part of the operand, so the host does it, in the device's bits."""
    draft = Draft()
    source = draft.input(int8((4, 6), 0.05, 3))
    wide = draft.buffer(int8((24,), 0.05, 3))
    flat = draft.view(source, attrs.evolve(source.type, shape=(24,)))
    draft.emit("copy", wide, flat)
    part = draft.view(wide, attrs.evolve(source.type, shape=(12,)), (0,))
    behind = draft.view(wide, attrs.evolve(source.type, shape=(12,)), (6,))
    draft.emit("elementmul", behind, part, part)
    draft.emit("copy", draft.output(wide.type), wide)
    for numerics in ("glow-int", "glow-float", "nmp"):
        placed = compiled(draft, numerics).metadata.layers[1]
        assert (placed.placement, placed.numerics) == ("host", numerics)
        check_program(change_attributes(program(draft), numerics=numerics), SMALL)
    for numerics in ("q31", "float"):
        found = refusal(draft, numerics)
        assert found.code == "COMP001"
        assert f"does not support elementmul with numerics {numerics}" in str(found.found)


def names_with_profiles(program: Program, random: Any) -> dict[str, str]:
    computing = [
        i.name
        for i in program.module.instructions
        if i.opcode not in ("allocactivation", "tensorview", "touch")
    ]
    return {
        name: random.choice(("glow-float", "glow-float", "glow-int"))
        for name in computing
        if random.random() < 0.6
    }


@examples(40)
@given(chains(), sizes(), st.randoms(use_true_random=False))
def test_random_programs_with_two_profiles_are_exact(
    program: Program, size: Size, random: Any
) -> None:
    chosen = names_with_profiles(program, random)
    check_program(change_attributes(program, by_layer=chosen), size.config)


def draw_activation(w: Writer, source: Ref) -> Ref:
    """Draw an activation on the grid of its input, so that it may fuse."""
    opcode = w.pick("relu", "clip", "cpumaxsplat")
    target = w.draft.result(source.type)
    attributes = unary_attributes(w, opcode, source.type.quant.scale)
    return w.draft.emit(opcode, target, source, **attributes)


@st.composite
def layers_that_fuse(draw: Any) -> Program:
    w = Writer(draw)
    shape = (w.number(1, 2), w.number(1, 8), w.number(1, 8), w.pick(1, 3, 16))
    sums = (convolution, fully_connected, avg_pool, binary, batched_add)
    return write(
        w, w.draft.input(w.narrow_type(shape)), (*sums, *[draw_activation] * 5), w.number(2, 5)
    )


@examples(40)
@given(layers_that_fuse(), sizes(), st.randoms(use_true_random=False))
def test_random_fused_layers_are_exact(program: Program, size: Size, random: Any) -> None:
    chosen = names_with_profiles(program, random)
    check_program(change_attributes(program, by_layer=chosen), size.config)


@pytest.mark.parametrize("elem", ["i8", "i16"])
@pytest.mark.parametrize("numerics", ["glow-float", "glow-int"])
def test_random_chains_are_exact(numerics: str, elem: str) -> None:
    @examples(15)
    @given(chains(elem, numerics), sizes())
    def check(program: Program, size: Size) -> None:
        check_program(program, size.config)

    check()


@pytest.mark.parametrize("row", NUMERICS, ids=lambda row: row.name)
def test_a_row_names_the_profiles_of_its_layers(row: NumericsProfile) -> None:
    assert PROFILES[row.name].name == row.name
    drafts = [sum_and_relu("i8")]
    if row.name != "nmp":  # it needs a bias on another scale
        drafts.append(convolution_and_relu())
    for draft in drafts:
        bundle = compiled(draft, row.name)
        found = {
            DEVICE_PROFILES[words["profile"]]
            for kind in ("conv", "eltwise")
            for words in find_descriptors(bundle, kind)
        }
        assert found and found <= set(row.profiles)
