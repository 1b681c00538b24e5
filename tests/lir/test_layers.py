"""Test the selection of layers by name in every kind of record."""

from __future__ import annotations

import pytest

from nmpsim.diagnostics import Diagnostic, UserError
from nmpsim.lir.layers import LayerEntry, find_layer, find_operations

LAYERS = (
    LayerEntry(0, 1, 41, "data__1_quantize", "host"),
    LayerEntry(1, 3, 43, "conv1__10", "host"),
    LayerEntry(2, 5, 45, "conv1__2", "device"),
    LayerEntry(3, 7, 47, "relu__7", "device", ("conv2__1", "conv2_res")),
    LayerEntry(4, 9, 49, "add__3", "device"),
    LayerEntry(5, 11, 51, "add__4", "device", ("sum__9",)),
    LayerEntry(6, 13, 53, "prob__1__2", "host"),
    LayerEntry(7, 15, 55, "last", "host", ("prob_out",)),
)


def get_diagnostic(word: str, layers: tuple[LayerEntry, ...] = LAYERS) -> Diagnostic:
    with pytest.raises(UserError) as error:
        find_layer(layers, word)
    (problem,) = error.value.diagnostics
    assert problem.code == "LAYER001"
    return problem


@pytest.mark.parametrize(
    "word",
    [
        "3", "03", "relu__7", "%relu__7", "relu", "conv2__1", "conv2", "conv2_res", "number:7",
        "line:47", "index:3", "0007:relu__7", "7:relu__7",
    ],
)  # fmt: skip
def test_a_layer_is_found(word: str) -> None:
    assert find_layer(LAYERS, word).name == "relu__7"


def test_a_name_without_suffix_means_the_only_device_layer() -> None:
    assert find_layer(LAYERS, "conv1").name == "conv1__2"


def test_a_name_without_suffix_means_the_only_host_layer() -> None:
    assert find_layer(LAYERS, "prob").name == "prob__1__2"


def test_a_full_name_takes_precedence() -> None:
    layers = (*LAYERS, LayerEntry(8, 17, 57, "conv1", "host"))
    assert find_layer(layers, "conv1").index == 8


JOINED = (
    LayerEntry(0, 1, 0, "m/relu;m/add/add", "device"),
    LayerEntry(1, 2, 0, "m/relu_1;m/bn;m/conv/bias__1", "device", ("m/pool",)),
    LayerEntry(2, 3, 0, "m/bn", "host"),
    LayerEntry(3, 4, 0, "m/relu;m/add/add__1", "device"),
    LayerEntry(4, 5, 0, "m/last;m/conv/bias__1", "device"),
)


@pytest.mark.parametrize(
    ("word", "index"), [("m/add/add", 0), ("m/relu_1", 1), ("m/bn", 2), ("m/add/add__1", 3)]
)
def test_a_part_of_a_joined_name_is_sufficient(word: str, index: int) -> None:
    assert find_layer(JOINED, word).index == index


def test_a_part_of_two_names_is_ambiguous() -> None:
    assert get_diagnostic("m/conv/bias", JOINED).message == "'m/conv/bias' matches 2 layers"


def test_two_device_layers_are_listed() -> None:
    problem = get_diagnostic("add")
    assert problem.message == "'add' matches 2 layers"
    assert problem.found == "add__3 (index 4, number 9), add__4 (index 5, number 11)"
    assert problem.hint is not None
    assert "number:9" in problem.hint


def test_two_host_layers_are_listed() -> None:
    layers = (LayerEntry(0, 1, 1, "zero__3", "host"), LayerEntry(1, 2, 2, "zero__5", "host"))
    assert "2 layers" in get_diagnostic("zero", layers).message


def test_a_number_is_an_index_only() -> None:
    assert find_layer(LAYERS, "7").name == "last"
    problem = get_diagnostic("11")
    assert problem.hint == "Use number:11 to select the LIR instruction with this number."


@pytest.mark.parametrize(
    "word",
    ["", "%", "77", "index:9", "number:2", "number:", "line:0x2f", "line:-1", "0004:relu__7",
     "conv", "add__", "rleu__7", "number:" + "9" * 5000, "\u0663"],
)  # fmt: skip
def test_an_unknown_layer_lists_existing_layers(word: str) -> None:
    problem = get_diagnostic(word)
    assert "(index 4, number 9)" in problem.found or "conv1__10 (index 1" in problem.found


def test_matching_beginnings_of_many_layers_are_listed() -> None:
    many = tuple(LayerEntry(i, i, i, f"layer{i}__1") for i in range(50))
    assert get_diagnostic("layer4__", many).found == "layer4__1 (index 4, number 4)"
    assert get_diagnostic("nothing", many).found.endswith(
        "layer7__1 (index 7, number 7) and 42 more"
    )


def test_the_nearest_name_is_a_hint() -> None:
    assert get_diagnostic("rleu__7").hint == "Did you mean 'relu__7'?"
    assert get_diagnostic("x", ()).found == "a program without layers"


def test_operations_of_one_layer_share_its_index() -> None:
    parts = (
        LayerEntry(0, 1, 1, "conv__1"), LayerEntry(0, 2, 2, "relu__1"),
        LayerEntry(-1, 3, 3, "gone__1"), LayerEntry(-1, 4, 4, "gone__2"),
    )  # fmt: skip
    assert [one.name for one in find_operations(parts, "0")] == ["conv__1", "relu__1"]
    assert [one.name for one in find_operations(parts, "conv")] == ["conv__1"]
    assert find_layer(parts, "0").name == "relu__1"
    assert "2 layers" in get_diagnostic("gone", parts).message


def test_an_error_shows_display_names_for_long_names_and_each_layer_once() -> None:
    scope = "functional_1/network"
    layers = (
        LayerEntry(0, 1, 0, f"{scope}/conv/Relu;{scope}/conv/Bias", display_name="conv"),
        LayerEntry(0, 2, 0, f"{scope}/conv/Relu;{scope}/conv/Bias__1", display_name="conv"),
        LayerEntry(1, 3, 0, "dense__2", display_name="dense"),
    )
    problem = get_diagnostic("convv", layers)
    assert problem.found == "conv (index 0, number 1), dense__2 (index 1, number 3)"
    assert problem.hint == "Did you mean 'conv'?"
    assert get_diagnostic("functional", layers).found == "conv (index 0, number 1)"
