"""Test the code, place, numbers and hint of each compilation error."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from compiled_runs import check_program
from lir_draft import Draft, Ref, int8, tensor_type
from small_programs import SMALL, compile_draft, convolve, image, out_kind, program

from nmpsim.compiler.driver import compile_module
from nmpsim.config import DeviceConfig, default_device
from nmpsim.diagnostics import Diagnostic, UserError

TINY = attrs.evolve(default_device(), cores_count=2, scratchpad_bytes=4096)


def finding(draft: Draft, config: DeviceConfig = SMALL, numerics: str = "glow-int") -> Diagnostic:
    with pytest.raises(UserError) as caught:
        compile_module(draft.module(), config, numerics=numerics)
    (found,) = caught.value.diagnostics
    return found


def window(side: int, stride: int = 1) -> dict[str, tuple[int, ...]]:
    return {"Kernels": (side, side), "Strides": (stride, stride), "Pads": (0, 0, 0, 0)}


def wide_convolution(side: int, channels: int = 1) -> Draft:
    draft = Draft()
    source = draft.input(int8((1, side, side, channels), 0.05))
    filter_ = draft.constant(np.ones((16, side, side, channels), np.int8), "i8", 0.01)
    bias = draft.constant(np.zeros(16, np.int32), "i32", 0.0005)
    target = draft.output(int8((1, 1, 1, 16), 0.5))
    attributes = {**window(side), "Dilation": (1, 1), "Group": 1}
    draft.emit("convolution", target, source, filter_, bias, **attributes)
    return draft


def test_an_unknown_profile_is_an_error() -> None:
    draft = Draft()
    source = image(draft)
    draft.emit("relu", draft.output(source.type), source)
    found = finding(draft, numerics="glow-double")
    assert found.code == "COMP001"
    assert found.found == "glow-double"
    assert found.expected is not None
    assert "glow-int" in found.expected


def test_an_unsupported_operation_is_an_error() -> None:
    draft = Draft()
    source = draft.input(tensor_type("float16", (2, 3)))
    target = draft.emit("relu", draft.output(source.type), source)
    found = finding(draft)
    assert found.code == "COMP001"
    assert "relu" in found.message
    assert found.found is not None
    assert "float16" in found.found
    assert found.found.endswith(
        f"on the device: %{target.name} is float16, but the units support only Int8 and Int16"
    )
    assert found.place is not None
    assert found.place.line == 100


def test_a_window_larger_than_a_scratchpad_is_an_error() -> None:
    draft = wide_convolution(17)
    found = finding(draft, TINY)
    assert found.code == "COMP002"
    assert f"%{draft.instructions[0].name}" in found.message
    assert found.place is not None
    assert found.place.line == 100
    assert found.found is not None
    assert int(found.found.split()[0]) > 4096
    assert found.expected == "at most 4096 bytes"
    assert found.hint is not None
    assert "bytes in [scratchpad]" in found.hint


def test_the_largest_fitting_window_compiles() -> None:
    """In parts of one input channel, of many."""
    check_program(program(wide_convolution(9, channels=40)), TINY)


def test_a_pool_larger_than_a_scratchpad_runs_on_the_host() -> None:
    draft = Draft()
    source = draft.input(int8((1, 64, 64, 1), 0.05))
    draft.emit("maxpool", draft.output(int8((1, 1, 1, 1), 0.05)), source, **window(64))
    check_program(program(draft), TINY)
    (pool,) = compile_draft(draft, TINY).metadata.layers
    assert pool.placement == "host"
    assert f"{2 * 64 * 64 + 2 * 64:,} bytes" in pool.reason


def test_a_deep_group_is_computed_in_parts() -> None:
    draft = Draft()
    source = draft.input(int8((1, 6, 5, 600), 0.05, 3))
    convolve(draft, source, draft.output(out_kind(source, channels=8)), group=2)
    check_program(program(draft), TINY)


def test_too_many_activations_are_an_error() -> None:
    draft = Draft()
    kind = int8((1024, 1024))
    first, second = draft.input(kind), draft.input(kind)
    draft.emit("elementadd", draft.output(kind), first, second)
    found = finding(draft, attrs.evolve(SMALL, dram_bytes=2 << 20))
    assert found.code == "COMP002"
    assert found.expected == f"at most {2 << 20} bytes"
    assert found.hint == "Increase bytes in [dram] of the device file."


def scaled(first: float, second: float) -> Draft:
    draft = Draft()
    source = draft.input(int8((4, 4), first))
    draft.emit("rescalequantized", draft.output(int8((4, 4), second)), source)
    return draft


@pytest.mark.parametrize(("first", "second"), [(1e-30, 1e30), (1e30, 1e-30)])
def test_a_ratio_without_integer_form_is_an_error(first: float, second: float) -> None:
    found = finding(scaled(first, second))
    assert found.code == "COMP001"
    assert found.place is not None
    assert found.place.line == 100


def test_zero_terms_beyond_32_bits_are_an_error() -> None:
    draft = Draft()
    depth = 140_000
    source = draft.input(int8((1, depth), 0.05, -128))
    weights = draft.constant(np.full((depth, 1), 127, np.int8), "i8", 0.01)
    bias = draft.constant(np.zeros(1, np.int32), "i32", 0.0005)
    draft.emit("fullyconnected", draft.output(int8((1, 1), 1000.0)), source, weights, bias)
    found = finding(draft)
    assert found.code == "COMP001"
    assert "32 bits" in found.message


def test_a_fused_clip_with_inverted_bounds_is_an_error() -> None:
    draft = Draft()
    source = image(draft)
    target: Ref = draft.output(out_kind(source))
    convolve(draft, source, target, activation="CLIP", arguments=(3.0, 1.0))
    found = finding(draft)
    assert (found.code, found.message) == ("LIR008", "Min is greater than Max")


def test_the_file_is_named() -> None:
    draft = wide_convolution(17)
    with pytest.raises(UserError) as caught:
        compile_module(attrs.evolve(draft.module(), file="net.lir"), TINY)
    assert str(caught.value).startswith("net.lir:100:3: error[COMP002]")


def test_small_layers_always_fit() -> None:
    draft = Draft()
    source = image(draft)
    convolve(draft, source, draft.output(out_kind(source)))
    assert compile_draft(draft, TINY).metadata.layers[0].placement == "device"
