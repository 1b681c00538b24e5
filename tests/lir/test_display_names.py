"""Test that display names are short, unique and stable."""

import pytest

from nmpsim.lir.layers import LayerEntry, find_layer
from nmpsim.lir.names import get_operation_name, make_display_names

NET = "M/M/"
SHARED = f"{NET}Conv2d_1_depthwise/depthwise_Fold"
"""Constant of the second layer whose name is also part of other names."""


def join_names(scope: str, *more: str) -> str:
    return ";".join((f"{NET}{scope}/Relu6", f"{NET}{scope}/add_fold", *more))


@pytest.mark.parametrize(
    ("full", "shown"),
    [
        # TFLite joins what was fused, and constants that layers share
        (
            (
                join_names("Conv2d_0", SHARED, f"{NET}Conv2d_0/BatchNorm_Fold/bias"),
                join_names("Conv2d_1_depthwise", SHARED),
                join_names("Conv2d_1_pointwise", SHARED),
            ),
            ("Conv2d_0", "Conv2d_1_depthwise", "Conv2d_1_pointwise"),
        ),
        # TensorFlow 2 names a path twice
        (
            (
                "Net/b_1/project/bn/FBN;StatefulPartitionedCall/Net/b_1/project/bn/FBN;"
                "Net/b_1/project/Conv2D",
                "Net/b_2/project/bn/FBN;Net/b_2/project/Conv2D",
            ),
            ("b_1/project", "b_2/project"),
        ),
        # Keras: the operation, not its activation; of two in a scope each its own
        (("model/activation/Relu;model/dense/BiasAdd", "model/activation_1/Relu;model/add/add"),
         ("dense", "add")),
        (("model/dense/MatMul", "model/dense/Softmax"), ("MatMul", "Softmax")),
        # ONNX and PyTorch: modules in modules
        (
            ("/layer1/layer1.0/conv1/Conv", "/layer1/layer1.1/conv1/Conv", "/fc/Gemm"),
            ("layer1.0/conv1", "layer1.1/conv1", "fc"),
        ),
        (("layer1.0.conv1", "layer2.0.conv1", "features.3", "conv2"),
         ("layer1.0.conv1", "layer2.0.conv1", "features.3", "conv2")),
        # Names of Glow are short and unique as they are; two that are the same stay the same
        (("conv1__2", "pool1__2"), ("conv1__2", "pool1__2")),
        (("a/b", "a/b"), ("a/b", "a/b")),
        ((), ()),
    ],
)  # fmt: skip
def test_a_display_name_is_the_shortest_unique_suffix(full, shown):
    assert tuple(make_display_names(full)) == shown


def test_no_display_name_is_another_layer_s_full_name_or_an_index():
    assert make_display_names(["features.12", "head.7"]) == ["features.12", "head.7"]
    assert make_display_names(["net/x/add/f;net/x/add/g", "add"]) == ["x/add", "add"]


def test_hostile_names_take_linear_time():
    names = [";".join(["/".join("ab" * 500)] * 200), "/" * 5000, ";" * 5000, ""]
    assert len(set(make_display_names(names))) == len(names)


def test_a_display_name_finds_its_layer():
    full = [join_names("Conv2d_0", SHARED), join_names("Conv2d_1_depthwise", SHARED)]
    shown = make_display_names(full)
    layers = [
        LayerEntry(index, index, 0, name, display_name=short)
        for index, (name, short) in enumerate(zip(full, shown, strict=True))
    ]
    assert [find_layer(layers, word).index for word in (*shown, *full)] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("opcode", "attributes", "channels", "word"),
    [
        ("convolution", {"Kernels": (3, 3), "Group": 1}, 8, "conv"),
        ("channelwisequantizedconvolution", {"Kernels": (1, 1), "Group": 1}, 8, "conv1x1"),
        ("convolution", {"Kernels": (3, 3), "Group": 8}, 8, "dwconv"),
        ("convolution", {"Kernels": (3, 3), "Group": 4}, 8, "groupconv"),
        ("convolution", None, None, "conv"),
        ("rowwisequantizedfullyconnected", {}, None, "fc"),
        ("elementadd", {}, None, "add"),
        ("softmax", {}, None, "softmax"),
    ],
)
def test_operations_have_common_names(opcode, attributes, channels, word):
    assert get_operation_name(opcode, attributes, channels) == word
