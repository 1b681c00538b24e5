"""Test which operations run on the device, and the reasons for those on the host."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from compiled_runs import check_program
from lir_draft import Draft, Ref, int8, tensor_type
from small_programs import SMALL, WINDOW, compile_draft, convolve, image, out_kind, program
from toy_rows import add_opcode

from nmpsim.bundle.metadata import Layer
from nmpsim.compiler.placement import find_host_reason
from nmpsim.compiler.resolve import resolve_operands
from nmpsim.compiler.tiling.planner import PLANNERS
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.lir.opcodes import OPCODES, find_opcodes

NEITHER = {"debugprint", "allocactivation", "deallocactivation", "tensorview"}


def find_reasons(draft: Draft) -> list[str]:
    """Check the program and return the reason of each layer, which is empty on the device."""
    check_program(program(draft), SMALL)
    layers = compile_draft(draft).metadata.layers
    for layer in layers:
        assert (layer.placement == "host") == bool(layer.reason)
        assert (layer.barrier is None) == (layer.placement == "host")
    return [layer.reason for layer in layers]


def on_the_host() -> set[str]:
    return {name for name, row in OPCODES.items() if row.signatures}


def without_a_place() -> set[str]:
    return set(OPCODES) - NEITHER - find_opcodes(*PLANNERS) - on_the_host()


def test_every_opcode_has_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_opcodes(*PLANNERS) <= on_the_host()
    assert without_a_place() == set()
    add_opcode(monkeypatch)
    assert without_a_place() == {"toy"}


def test_float_operations_run_on_the_host() -> None:
    draft = Draft()
    source = draft.input(tensor_type("float", (2, 10)))
    quantized = draft.emit("quantize", draft.buffer(int8((2, 10), 0.05)), source)
    real = draft.emit("dequantize", draft.buffer(source.type), quantized)
    draft.emit("softmax", draft.output(source.type), real)
    assert find_reasons(draft) == [
        f"the device has no unit for {op}" for op in ("quantize", "dequantize", "softmax")
    ]


def add_move_and_relu(elem: str) -> Draft:
    draft = Draft()
    kind = tensor_type(elem, (3, 7), 0.01)
    left, right = draft.input(kind), draft.input(kind)
    result = draft.emit("elementadd", draft.buffer(kind), left, right)
    moved = draft.buffer(attrs.evolve(kind, shape=(7, 3)))
    draft.emit("transpose", moved, result, Shuffle=(1, 0))
    draft.emit("relu", draft.output(moved.type), moved)
    return draft


@pytest.mark.parametrize("elem", ["i32", "float"])
def test_other_element_types_run_on_the_host(elem: str) -> None:
    _, operations = resolve_operands(add_move_and_relu(elem).module())
    found = [find_host_reason(op) for op in operations]
    assert found[0].endswith(f"is {elem}, but the units support only Int8 and Int16")
    assert found[1] == ""
    assert found[2].endswith(f"is {elem}, but the units support only Int8 and Int16")


@pytest.mark.parametrize("elem", ["i8", "i16"])
def test_narrow_element_types_run_on_the_device(elem: str) -> None:
    assert find_reasons(add_move_and_relu(elem)) == ["", "", ""]


@pytest.mark.parametrize("elem", ["i8", "i16", "i32", "i64"])
def test_biases_of_the_unit_run_on_the_device(elem: str) -> None:
    draft = Draft()
    source = image(draft)
    dtype = ELEM_DTYPES[elem]
    weights = draft.constant(np.ones((8, 3, 3, 8), np.int8), "i8", 0.02)
    bias = draft.constant(np.ones(8, dtype), elem, 0.001)
    attributes = {**WINDOW, "Group": 1, "FusedActivation": "NONE", "FusedActivationArgs": ()}
    draft.emit("convolution", draft.output(out_kind(source)), source, weights, bias, **attributes)
    assert find_reasons(draft) == [""]


def test_int8_weights_with_int16_inputs_run_on_the_device() -> None:
    draft = Draft()
    source = draft.input(tensor_type("i16", (2, 6), 0.001))
    weights = draft.constant(np.ones((6, 4), np.int8), "i8", 0.02)
    bias = draft.constant(np.zeros(4, np.int64), "i64", 0.00002)
    draft.emit("fullyconnected", draft.output(tensor_type("i16", (2, 4))), source, weights, bias)
    assert find_reasons(draft) == [""]


def test_a_table_of_16_bits_runs_on_the_host() -> None:
    draft = Draft()
    source = draft.input(tensor_type("i16", (2, 6), 0.001))
    table = draft.constant(np.zeros(65536, np.int16), "i16")
    draft.emit("intlookuptable", draft.output(source.type), source, table)
    assert find_reasons(draft)[0].endswith("is i16, but tables support only Int8")


def test_computed_weights_run_on_the_host() -> None:
    draft = Draft()
    source = draft.input(int8((2, 6), 0.05))
    weights = draft.input(int8((6, 4), 0.02))
    bias = draft.constant(np.zeros(4, np.int32), "i32", 0.001)
    draft.emit("fullyconnected", draft.output(int8((2, 4))), source, weights, bias)
    assert find_reasons(draft) == [f"%{weights.name} is not a constant"]


def test_a_slice_of_16_bits_runs_on_the_device() -> None:
    draft = Draft()
    source = image(draft)
    piece = draft.constant(np.ones((6, 5, 8), np.int16), "i16", 0.01)
    draft.emit("batchedadd", draft.output(out_kind(source)), source, piece)
    (reason,) = find_reasons(draft)
    assert reason.endswith("is i16, but the unit supports only i32 and i8, the type of the batch")


def test_fused_activations_without_integer_form_run_on_the_host() -> None:
    draft = Draft()
    source = image(draft)
    convolve(draft, source, draft.output(out_kind(source)), activation="TANH")
    _, operations = resolve_operands(draft.module())
    assert find_host_reason(operations[0]) == "the rescale unit does not support TANH"


@pytest.mark.parametrize("alpha", [0.0, -0.5])
def test_slopes_without_integer_form_run_on_the_host(alpha: float) -> None:
    draft = Draft()
    source = image(draft)
    kind = out_kind(source)
    result = convolve(draft, source, draft.buffer(kind), "i32", "LEAKY_RELU", (alpha,))
    draft.emit("leakyrelu", draft.output(kind), result, Alpha=alpha)
    reason = f"Alpha is {alpha:g}, but the rescale unit supports only positive factors"
    assert find_reasons(draft) == [reason, reason]


def make_shifted_views(draft: Draft, source: Ref, start: int) -> tuple[Ref, Ref]:
    """Return two views of a buffer, the second of which begins later."""
    whole = draft.emit("copy", draft.buffer(source.type), source)
    flat = draft.view(whole, attrs.evolve(source.type, shape=(source.type.elements,)))
    part = attrs.evolve(source.type, shape=(source.type.elements - start,))
    return draft.view(flat, part), draft.view(flat, part, (start,))


def test_results_over_an_input_run_on_the_host() -> None:
    """Each core's part would be read by one and written by another; the host reads all first."""
    draft = Draft()
    source = image(draft)
    low, high = make_shifted_views(draft, source, 70)
    draft.emit("copy", high, low)
    draft.emit("elementadd", low, low, high)
    draft.emit("copy", draft.output(low.type), low)
    copied, added = (f"the result overwrites %{v.name}" for v in (low, high))
    found = find_reasons(draft)
    assert [bool(reason) for reason in found] == [False, True, True, False]
    assert found[1].startswith(copied)
    assert found[2].startswith(added)


def test_a_transpose_in_place_runs_on_the_host() -> None:
    draft = Draft()
    source = draft.input(int8((40, 40)))
    whole = draft.emit("copy", draft.buffer(source.type), source)
    draft.emit("transpose", whole, whole, Shuffle=(1, 0))
    draft.emit("copy", draft.output(whole.type), whole)
    assert [bool(reason) for reason in find_reasons(draft)] == [False, True, False]


def test_elementwise_operations_in_place_run_on_the_device() -> None:
    draft = Draft()
    source = image(draft)
    whole = draft.emit("copy", draft.buffer(source.type), source)
    draft.emit("elementadd", whole, whole, whole)
    draft.emit("leakyrelu", whole, whole, Alpha=0.1)
    draft.emit("copy", draft.output(whole.type), whole)
    assert find_reasons(draft) == ["", "", "", ""]


def test_host_steps_lie_between_device_segments() -> None:
    draft = Draft()
    source = image(draft)
    kind = source.type
    first = draft.emit("relu", draft.buffer(kind), source)
    second = draft.emit("rescalequantized", draft.buffer(kind), first)
    float_kind = tensor_type("float", kind.shape)
    real = draft.emit("dequantize", draft.buffer(float_kind), second)
    back = draft.emit("quantize", draft.buffer(kind), real)
    draft.emit("relu", draft.output(kind), back)
    find_reasons(draft)
    steps = compile_draft(draft).metadata.steps
    assert [(step.kind, step.layers) for step in steps] == [
        ("device", (0, 1)),
        ("host", (2,)),
        ("host", (3,)),
        ("device", (4,)),
    ]
    assert [step.opcode for step in steps] == [None, "dequantize", "quantize", None]


def compile_layer(draft: Draft) -> Layer:
    (layer,) = compile_draft(draft).metadata.layers
    return layer


def test_reasons_reach_the_report() -> None:
    draft = Draft()
    source = draft.input(tensor_type("float", (2, 3)))
    draft.emit("sigmoid", draft.output(source.type), source)
    assert compile_layer(draft).reason == "the device has no unit for sigmoid"
