"""Test which activations are fused into the operation before them."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from compiled_runs import check_program
from lir_draft import Draft, Ref, int8
from small_programs import SMALL, compile_draft, convolve, image, out_kind, program


def list_layers(draft: Draft) -> list[tuple[str, int]]:
    """Check the program and return opcode and number of fused instructions of each layer."""
    check_program(program(draft), SMALL)
    return [(layer.op, len(layer.fused)) for layer in compile_draft(draft).metadata.layers]


def add_convolution(draft: Draft) -> Ref:
    source = image(draft)
    return convolve(draft, source, draft.buffer(out_kind(source)))


Activation = Callable[[Draft, Ref, Ref], Ref]


def relu(draft: Draft, target: Ref, source: Ref) -> Ref:
    return draft.emit("relu", target, source)


def clip(draft: Draft, target: Ref, source: Ref) -> Ref:
    return draft.emit("clip", target, source, Min=-1.0, Max=2.5)


def max_splat(draft: Draft, target: Ref, source: Ref) -> Ref:
    return draft.emit("cpumaxsplat", target, source, SplatValue=-0.7)


@pytest.mark.parametrize("activation", [relu, clip, max_splat])
def test_a_clip_of_the_same_scale_is_fused(activation: Activation) -> None:
    draft = Draft()
    result = add_convolution(draft)
    activation(draft, draft.output(result.type), result)
    assert list_layers(draft) == [("convolution", 2)]


@pytest.mark.parametrize("activation", [relu, clip, max_splat])
def test_a_clip_in_place_is_fused(activation: Activation) -> None:
    draft = Draft()
    result = add_convolution(draft)
    activation(draft, result, result)
    draft.emit("copy", draft.output(result.type), result)
    assert list_layers(draft) == [("convolution", 2), ("copy", 0)]


def test_several_clips_are_fused() -> None:
    draft = Draft()
    result = add_convolution(draft)
    draft.emit("relu", result, result)
    draft.emit("clip", draft.buffer(result.type), result, Min=-3.0, Max=1.0)
    again = Ref(draft.instructions[-2].name, result.type, "buffer")
    draft.emit("cpumaxsplat", draft.output(result.type), again, SplatValue=0.4)
    assert list_layers(draft) == [("convolution", 4)]


@pytest.mark.parametrize("ranges", [((2.0, 3.0), (-3.0, -2.0)), ((-3.0, -2.0), (2.0, 3.0))])
def test_disjoint_bounds_are_fused(ranges: tuple[tuple[float, float], ...]) -> None:
    draft = Draft()
    result = add_convolution(draft)
    for target, (low, high) in zip((result, draft.output(result.type)), ranges, strict=True):
        draft.emit("clip", target, result, Min=low, Max=high)
    assert list_layers(draft) == [("convolution", 3)]


@pytest.mark.parametrize("opcode", ["elementadd", "elementsub", "elementmul", "elementmax"])
def test_clips_fuse_into_elementwise_operations(opcode: str) -> None:
    draft = Draft()
    left, right = image(draft), image(draft)
    result = draft.emit(opcode, draft.buffer(int8(left.shape, 0.08, 1)), left, right)
    draft.emit("relu", draft.output(result.type), result)
    assert list_layers(draft) == [(opcode, 2)]


def test_clips_fuse_into_average_pools_and_products() -> None:
    draft = Draft()
    source = image(draft)
    pool = {"Kernels": (2, 2), "Strides": (1, 1), "Pads": (0, 0, 0, 0), "CountIncludePads": 1}
    mean = draft.emit("avgpool", draft.buffer(int8((1, 5, 4, 8), 0.03, 0)), source, **pool)
    kept = draft.emit("clip", draft.buffer(mean.type), mean, Min=-1.0, Max=1.0)
    flat = draft.view(kept, attrs.evolve(kept.type, shape=(20, 8)))
    right = draft.input(int8((8, 3), 0.05, 2))
    product = draft.emit("matmul", draft.buffer(int8((20, 3), 0.1, 0)), flat, right)
    draft.emit("relu", draft.output(product.type), product)
    assert list_layers(draft) == [("avgpool", 2), ("matmul", 2)]


def test_another_scale_is_not_fused() -> None:
    draft = Draft()
    result = add_convolution(draft)
    draft.emit("relu", draft.output(attrs.evolve(result.type, quant=int8((), 0.07).quant)), result)
    assert list_layers(draft) == [("convolution", 0), ("relu", 0)]


def test_leaky_relu_is_not_fused() -> None:
    draft = Draft()
    result = add_convolution(draft)
    draft.emit("leakyrelu", draft.output(result.type), result, Alpha=0.1)
    assert list_layers(draft) == [("convolution", 0), ("leakyrelu", 0)]


def test_a_result_read_later_is_not_fused() -> None:
    draft = Draft()
    result = add_convolution(draft)
    active = draft.emit("relu", draft.buffer(result.type), result)
    draft.emit("elementadd", draft.output(result.type), active, result)
    assert list_layers(draft)[:2] == [("convolution", 0), ("relu", 0)]


def test_an_output_is_not_fused() -> None:
    draft = Draft()
    source = image(draft)
    result = convolve(draft, source, draft.output(out_kind(source)))
    draft.emit("relu", draft.output(result.type), result)
    assert list_layers(draft) == [("convolution", 0), ("relu", 0)]


def test_a_result_read_before_the_activation_is_not_fused() -> None:
    draft = Draft()
    result = add_convolution(draft)
    draft.emit("copy", draft.output(result.type), result)
    draft.emit("relu", draft.output(result.type), result)
    assert list_layers(draft) == [("convolution", 0), ("copy", 0), ("relu", 0)]


def test_a_part_of_the_result_is_not_fused() -> None:
    draft = Draft()
    result = add_convolution(draft)
    part = draft.view(result, attrs.evolve(result.type, shape=(1, 3, 5, 8)))
    draft.emit("relu", draft.output(part.type), part)
    assert list_layers(draft) == [("convolution", 0), ("relu", 0)]


def test_an_operation_without_a_clip_is_not_fused() -> None:
    draft = Draft()
    source = image(draft)
    pool = {"Kernels": (2, 2), "Strides": (1, 1), "Pads": (0, 0, 0, 0)}
    kind = attrs.evolve(source.type, shape=(1, 5, 4, 8))
    result = draft.emit("maxpool", draft.buffer(kind), source, **pool)
    draft.emit("relu", draft.output(kind), result)
    assert list_layers(draft) == [("maxpool", 0), ("relu", 0)]


def test_a_target_in_use_is_not_fused() -> None:
    draft = Draft()
    source = image(draft)
    kind = out_kind(source)
    target = draft.emit("splat", draft.buffer(kind), Value=1.0)
    result = convolve(draft, source, draft.buffer(kind))
    draft.emit("copy", draft.output(kind), target)
    draft.emit("relu", target, result)
    draft.emit("copy", draft.output(kind), target)
    assert [op for op, _ in list_layers(draft)] == ["splat", "convolution", "copy", "relu", "copy"]


def test_a_second_target_in_use_is_not_fused() -> None:
    """Fused, the convolution would write it before the copy reads it."""
    draft = Draft()
    source = image(draft)
    kind = out_kind(source)
    target = draft.emit("splat", draft.buffer(kind), Value=1.0)
    result = convolve(draft, source, draft.buffer(kind))
    draft.emit("copy", draft.output(kind), target)
    active = draft.emit("relu", draft.buffer(kind), result)
    draft.emit("clip", target, active, Min=0.0, Max=2.0)
    draft.emit("copy", draft.output(kind), target)
    expected = [("splat", 0), ("convolution", 2), ("copy", 0), ("clip", 0), ("copy", 0)]
    assert list_layers(draft) == expected


def test_a_target_read_by_the_operation_is_not_fused() -> None:
    draft = Draft()
    first, second = image(draft), image(draft)
    left = draft.emit("copy", draft.buffer(first.type), first)
    result = draft.emit("elementadd", draft.buffer(left.type), left, second)
    draft.emit("relu", left, result)
    draft.emit("copy", draft.output(left.type), left)
    assert [op for op, _ in list_layers(draft)] == ["copy", "elementadd", "relu", "copy"]
