"""Test names, layouts, the mapping of nodes, and errors of ONNX models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from counted_work import count_lines
from onnx_files import Kind, Node, make_scales, write_model, write_small_network

import nmpsim
from nmpsim.bundle.metadata import Metadata
from nmpsim.extras import get_install_command
from nmpsim.frontends import import_model
from nmpsim.frontends.graph import constant_folding


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_small_network(tmp_path / "a small network.onnx")


def get_diagnostic(path: Path, **given: Any) -> nmpsim.Diagnostic:
    with pytest.raises(nmpsim.UserError) as error:
        nmpsim.compile(path, **given)
    return error.value.diagnostics[0]


def list_host_operations(metadata: Metadata) -> list[str]:
    """Return the operations of the host in order."""
    return [step.opcode for step in metadata.steps if step.kind == "host"]


def run(path: Path, *inputs: Any, **given: Any) -> list[Any]:
    bundle = nmpsim.compile(path, tiling="simple", **given).bundle
    return list(nmpsim.Device(threads=1).run(bundle, list(inputs)).outputs.values())


def test_names_and_types_equal_the_file(model: Path) -> None:
    metadata = nmpsim.compile(model).bundle.metadata
    (image,), (classes,) = metadata.user_inputs, metadata.user_outputs
    assert (image.name, image.elem, image.offset) == ("image", "ui8", 128)
    assert image.shape == (1, 2, 4, 4)
    assert (classes.name, classes.elem, classes.offset) == ("classes", "ui8", 100)
    assert metadata.numerics == "float"


@pytest.mark.parametrize("dtype", ["uint16", "int16"])
def test_inputs_and_outputs_may_have_16_bits(dtype: str, tmp_path: Path) -> None:
    """uint16 is uint16 for a user, and Int16 for the device."""
    limits = np.iinfo(dtype)
    zero = limits.min + 30000
    nodes: list[Node] = [
        ("DequantizeLinear", ["x", "x_s", "x_z"], ["real"], {}),
        ("Relu", ["real"], ["above"], {}),
        ("QuantizeLinear", ["above", "y_s", "y_z"], ["y"], {}),
        ("Transpose", ["x"], ["turned"], {}),
    ]
    path = write_model(
        tmp_path / "two ends.onnx",
        nodes,
        {"x": (dtype, (2, 5))},
        {"y": (dtype, (2, 5)), "turned": (dtype, (5, 2))},
        make_scales(x=(0.5, zero, dtype), y=(0.25, limits.min + 5, dtype)),
    )
    x = np.array([limits.min, limits.max, zero, zero + 1, zero - 1] * 2, dtype).reshape(2, 5)
    bundle = nmpsim.compile(path, tiling="simple").bundle
    (given,), (result, *_) = bundle.metadata.user_inputs, bundle.metadata.user_outputs
    elem = {"uint16": "ui16", "int16": "i16"}[dtype]
    assert (given.elem, given.offset) == (elem, zero)
    assert (result.elem, result.offset) == (elem, limits.min + 5)
    report = nmpsim.Device(threads=1).run(bundle, [x])
    y, turned = report.outputs.values()
    steps = 2 * np.maximum(x.astype(np.int64) - zero, 0) + limits.min + 5
    assert np.array_equal(y, np.clip(steps, limits.min, limits.max))
    assert y.dtype == turned.dtype == dtype
    assert np.array_equal(turned, x.T)
    assert np.array_equal(
        report.output_reports[0].dequantize(), 0.25 * (y.astype(np.int64) - limits.min - 5)
    )
    with pytest.raises(nmpsim.UserError) as error:
        nmpsim.Device(threads=1).run(bundle, [x.astype(np.uint8)])
    assert dtype in str(error.value.diagnostics[0].expected)
    reals = nmpsim.Device(threads=1).run(bundle, [0.5 * (x.astype(np.float64) - zero)])
    assert np.array_equal(reals.outputs["y"], y)


def test_each_node_has_a_mapping(model: Path) -> None:
    metadata = nmpsim.compile(model).bundle.metadata
    mappings = {one.node: one for one in metadata.operators}
    assert mappings["3 Conv sum"].layers == ("image_last", "conv_q")
    assert mappings["4 Relu conv"].why == "part of 3 Conv sum"
    assert mappings["6 DequantizeLinear conv_r"].why == "the operations that read it take integers"
    assert len(mappings) == 12
    assert list_host_operations(metadata) == []


def test_instructions_refer_to_their_node(model: Path) -> None:
    imported = import_model(model)
    assert imported is not None
    nodes = {one.name: one.span.node for one in imported.module.instructions}
    assert nodes["conv_q"] == "3 Conv sum"


def test_a_network_equals_results_by_hand(model: Path) -> None:
    held = {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(model).graph.initializer}
    x = np.random.default_rng(0).integers(0, 256, (1, 2, 4, 4)).astype(np.uint8)
    padded = np.pad(x[0].astype(np.int64) - 128, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    sums = np.einsum("cyxij,ocij->oyx", windows, held["w"].astype(np.int64))
    factor = np.float32(0.05) * held["w_s"] / np.float32(0.1)
    sums = sums + held["b"][:, None, None]
    conv = np.clip(np.rint(sums.astype(np.float32) * factor[:, None, None]), 0, 255)
    pool = conv.reshape(4, 2, 2, 2, 2).max(axis=(2, 4)).reshape(-1).astype(np.int64)
    total = (pool @ (held["v"].astype(np.int64) - 120)).astype(np.float32)
    factor = np.float32(0.1) * np.float32(0.01) / np.float32(0.2)
    expected = np.clip(np.rint(total * factor) + 100, 0, 255)
    (y,) = run(model, x)
    assert y.dtype == np.uint8
    assert y.tolist() == [expected.tolist()]


PAIR: dict[str, Kind] = {"z": ("int8", (1, 4)), "a": ("int8", (1, 4))}


def test_inputs_and_outputs_keep_the_order_of_the_file(tmp_path: Path) -> None:
    given = ["s", "o"]
    nodes: list[Node] = [
        ("com.microsoft.QLinearAdd", ["a", *given, "z", *given, *given], ["second"], {}),
        ("com.microsoft.QLinearConcat", [*given, "z", *given, "a", *given], ["first"], {"axis": 1}),
    ]
    outputs: dict[str, Kind] = {"first": ("int8", (1, 8)), "second": ("int8", (1, 4))}
    constants = {"s": np.float32(0.5), "o": np.int8(0)}
    path = write_model(tmp_path / "two.onnx", nodes, PAIR, outputs, constants)
    z, a = np.full((1, 4), 9, np.int8), np.full((1, 4), 2, np.int8)
    first, second = run(path, z, a)
    assert first.tolist() == [[9] * 4 + [2] * 4]
    assert second.tolist() == [[11] * 4]


def test_channels_are_transposed_once(tmp_path: Path) -> None:
    """An image with channels last, turned by the model itself, is not turned at all."""
    nodes: list[Node] = [
        ("Transpose", ["image"], ["first"], {"perm": [0, 3, 1, 2]}),
        ("QLinearConv", ["first", "x_s", "x_z", "w", "w_s", "w_z", "y_s", "y_z"], ["y"], {}),
        ("Transpose", ["y"], ["last"], {"perm": [0, 2, 3, 1]}),
    ]
    constants = {
        **make_scales(x=(1, 0), w=(1, 0, "int8"), y=(1, 0)),
        "w": np.arange(6, dtype=np.int8).reshape(3, 2, 1, 1),
    }
    inputs: dict[str, Kind] = {"image": ("uint8", (1, 2, 2, 2))}
    outputs: dict[str, Kind] = {"last": ("uint8", (1, 2, 2, 3))}
    path = write_model(tmp_path / "last.onnx", nodes, inputs, outputs, constants)
    ops = [layer.op for layer in nmpsim.compile(path).bundle.metadata.layers]
    assert ops == ["channelwisequantizedconvolution", "copy"]
    x = np.arange(8, dtype=np.uint8).reshape(1, 2, 2, 2)
    (y,) = run(path, x)
    assert np.array_equal(y, x @ constants["w"].reshape(3, 2).T)


def test_a_name_clash_with_a_moved_conversion_is_resolved(tmp_path: Path) -> None:
    """ONNX Runtime's quantizer names tensors so."""
    nodes: list[Node] = [
        ("QuantizeLinear", ["x", "s", "z"], ["x_quantized"], {}),
        ("DequantizeLinear", ["x_quantized", "s", "z"], ["r"], {}),
        ("Tanh", ["r"], ["t"], {}),
        ("Transpose", ["t"], ["u"], {"perm": [1, 0]}),
        ("QuantizeLinear", ["u", "s", "z"], ["t_quantized"], {}),
        ("DequantizeLinear", ["t_quantized", "s", "z"], ["v"], {}),
        ("Transpose", ["v"], ["y"], {"perm": [1, 0]}),
    ]
    path = write_model(
        tmp_path / "names.onnx",
        nodes,
        {"x": ("float32", (2, 3))},
        {"y": ("float32", (2, 3))},
        {"s": np.float32(0.125), "z": np.int8(0)},
    )
    model = onnx.load(path)
    for node in model.graph.node:  # what would be named t_quantized when it is carried
        for names in (node.input, node.output):
            names[:] = ["t_quantized_" if one == "t_quantized" else one for one in names]
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = "t_quantized"
    onnx.save(model, path)
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    expected = np.rint(np.tanh(np.rint(x * 8) / 8) * 8) / 8
    assert np.array_equal(run(path, x)[0], expected)


def test_float_operators_stay_float(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("DequantizeLinear", ["q", "x_s", "x_z"], ["r"], {}),
        ("Tanh", ["r"], ["t"], {}),
        ("QuantizeLinear", ["t", "y_s", "y_z"], ["y"], {}),
    ]
    constants = make_scales(x=(0.02, 128), y=(0.01, 128))
    path = write_model(
        tmp_path / "tanh.onnx", nodes, {"q": ("uint8", (256,))}, {"y": ("uint8", (256,))}, constants
    )
    metadata = nmpsim.compile(path).bundle.metadata
    assert list_host_operations(metadata) == ["dequantize", "tanh", "quantize"]
    x = np.arange(256, dtype=np.uint8)
    (y,) = run(path, x)
    real = (x.astype(np.float32) - 128) * np.float32(0.02)
    expected = np.rint(np.tanh(real) / np.float32(0.01)) + 128
    assert y.tolist() == np.clip(expected, 0, 255).tolist()


@pytest.mark.parametrize("op", ["Clip", "Relu"])
def test_a_clip_is_implied_by_the_range_of_the_result(op: str, tmp_path: Path) -> None:
    limits = ["nought", "six"] if op == "Clip" else []
    for zero, is_float in ((0, False), (1, True)):
        nodes: list[Node] = [
            ("DequantizeLinear", ["q", "x_s", "x_z"], ["r"], {}),
            ("DequantizeLinear", ["w", "w_s", "w_z"], ["f"], {}),
            ("Conv", ["r", "f"], ["s"], {}),
            (op, ["s", *limits], ["c"], {}),
            ("QuantizeLinear", ["c", "y_s", "y_z"], ["y"], {}),
        ]
        constants = {
            **make_scales(x=(1, 128), w=(1, 128), y=(6 / 255, zero)),
            "w": np.full((1, 1, 1, 1), 130, np.uint8),
            "nought": np.float32(0),
            "six": np.float32(5.99),
        }
        kind: Kind = ("uint8", (1, 1, 2, 2))
        path = write_model(tmp_path / "clip.onnx", nodes, {"q": kind}, {"y": kind}, constants)
        assert bool(list_host_operations(nmpsim.compile(path).bundle.metadata)) == is_float
        island = nmpsim.compile(path, integer_islands=True)
        assert list_host_operations(island.bundle.metadata) == []
        assert [text.split(":")[1] for text in island.warnings] == [" 2 Conv s"] * is_float
        x = np.array([[[[0, 126], [130, 255]]]], np.uint8)
        found, expected = (run(path, x, integer_islands=choice)[0] for choice in (True, False))
        assert np.abs(found.astype(int) - expected).max() <= 1


def test_an_open_shape_can_be_given(tmp_path: Path) -> None:
    nodes: list[Node] = [("QuantizeLinear", ["x", "y_s", "y_z"], ["y"], {})]
    path = write_model(
        tmp_path / "open.onnx", nodes, {"x": ("float32", ("n",))}, {"y": ("uint8", ())},
        make_scales(y=(0.5, 0)),
    )  # fmt: skip
    assert run(path, np.ones(1, np.float32))[0].tolist() == [2]
    assert run(path, np.ones(3, np.float32), input_shapes={"x": (3,)})[0].tolist() == [2, 2, 2]
    finding = get_diagnostic(path, input_shapes={"X": (3,)})
    assert (finding.code, finding.found, finding.expected) == ("ARG001", "a shape for X", "x")
    held = onnx.load(path)
    held.graph.input[0].type.tensor_type.ClearField("shape")
    path.write_bytes(held.SerializeToString())
    finding = get_diagnostic(path)
    assert finding.code == "MODEL002"
    assert "--input-shape x=" in str(finding.hint)


def test_all_unsupported_nodes_are_reported_together(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("Acosh", ["x"], ["first"], {}),
        ("Relu", ["first"], ["second"], {}),
        ("NonZero", ["x"], ["third"], {}),
    ]
    kind: Kind = ("float32", (4,))
    path = write_model(
        tmp_path / "odd.onnx", nodes, {"x": kind}, {"second": kind, "third": kind}, {}
    )
    with pytest.raises(nmpsim.UserError) as error:
        nmpsim.compile(path)
    assert [(one.code, one.message) for one in error.value.diagnostics] == [
        ("MODEL002", "operator 0 Acosh first cannot be compiled"),
        ("MODEL002", "operator 2 NonZero third cannot be compiled"),
    ]


def test_cyclic_nodes_are_damaged(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("Transpose", ["c"], ["a"], {}),
        ("QuantizeLinear", ["a", "x_s", "x_z"], ["b"], {}),
        ("DequantizeLinear", ["b", "x_s", "x_z"], ["c"], {}),
    ]
    kind: Kind = ("float32", (4,))
    path = write_model(
        tmp_path / "circle.onnx", nodes, {"x": kind}, {"c": kind}, make_scales(x=(1, 0))
    )
    finding = get_diagnostic(path)
    assert finding.code == "MODEL001"
    assert str(finding.found).startswith("a cycle: ")


def test_nodes_out_of_order_are_sorted(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("Relu", ["x"], ["a"], {}),
        ("Neg", ["a"], ["b"], {}),
        ("Add", ["a", "b"], ["y"], {}),
    ]
    kind: Kind = ("float32", (4,))
    values = np.array([-1, 2, -3, 4], np.float32)
    results = [
        run(write_model(tmp_path / f"{n}.onnx", order, {"x": kind}, {"y": kind}, {}), values)
        for n, order in enumerate((nodes, nodes[::-1], [nodes[1], nodes[0], nodes[2]]))
    ]
    np.testing.assert_equal(results[1:], results[:1] * 2)


WITHOUT_INPUTS = [(op, 0) for op in ("Concat", "Identity", "Pad", "Split", "DequantizeLinear")]
WITH_TOO_MANY = [(op, 9) for op in ("Identity", "Pad", "Split", "DequantizeLinear", "Relu")]


@pytest.mark.parametrize(("op", "count"), WITHOUT_INPUTS + WITH_TOO_MANY)
def test_a_wrong_number_of_inputs_is_damaged(op: str, count: int, tmp_path: Path) -> None:
    kind: Kind = ("float32", (4,))
    path = write_model(
        tmp_path / "odd.onnx", [(op, ["x"] * count, ["y"], {})], {"x": kind}, {"y": kind}, {}
    )
    finding = get_diagnostic(path)
    assert (finding.code, finding.found) == ("MODEL001", f"node 0 {op} y has {count} inputs")
    assert str(finding.expected).endswith(" inputs")


def test_untested_versions_give_a_warning(tmp_path: Path) -> None:
    kind: Kind = ("float32", (4,))
    relu: list[Node] = [("Relu", ["x"], ["y"], {})]
    for opset, warnings in (
        (13, ()),
        (9, ("opset 9 of the file is not tested; the tested versions are 10 to 28",)),
    ):
        path = write_model(tmp_path / f"{opset}.onnx", relu, {"x": kind}, {"y": kind}, {}, opset)
        assert nmpsim.compile(path).warnings == warnings


def test_open_dimensions_give_a_warning(tmp_path: Path) -> None:
    nodes: list[Node] = [("Concat", ["x", "c"], ["y"], {"axis": 1})]
    constants = {"c": np.zeros((1, 2, 5), np.float32)}
    for shape, is_told in (((1, 3, None), True), ((None, 3, 5), False)):
        kinds = {"x": ("float32", shape)}, {"y": ("float32", None)}
        path = write_model(tmp_path / "open.onnx", nodes, *kinds, constants)  # type: ignore[arg-type]
        if not is_told:
            assert nmpsim.compile(path).warnings == ()
            continue
        assert "--input-shape x=1,3,224" in str(get_diagnostic(path).hint)
        assert nmpsim.compile(path, input_shapes={"x": (1, 3, 5)}).warnings == ()


def test_the_first_input_determines_open_dimensions(tmp_path: Path) -> None:
    kind: Kind = ("float32", ("batch", 3, "rows"))
    path = write_model(
        tmp_path / "o.onnx", [("Relu", ["x"], ["y"], {})], {"x": kind}, {"y": kind}, {}
    )
    for samples in ({"x": (1, 3, 7)}, {"": (1, 3, 7)}, {"x": (20, 3, 7)}, {"x": (20, 1, 3, 7)}):
        compiled = nmpsim.compile(path, sample_shapes=samples)
        assert compiled.bundle.metadata.user_inputs[0].shape == (1, 3, 7)
        assert compiled.warnings == ()
    for samples in ({}, {"x": (1, 4, 7)}, {"x": (7,)}, {"other": (1, 3, 7)}, {"x": (1, 3, 0)}):
        try:
            (warning,) = nmpsim.compile(path, sample_shapes=samples).warnings
        except nmpsim.UserError as error:
            assert "has an invalid shape" in str(error)
        else:
            assert "x has open dimensions, which are set to 1" in warning


def test_the_first_input_determines_a_shape_that_the_file_lacks(tmp_path: Path) -> None:
    kind: Kind = ("float32", None)
    path = write_model(
        tmp_path / "o.onnx", [("Relu", ["x"], ["y"], {})], {"x": kind}, {"y": kind}, {}
    )
    assert get_diagnostic(path).message == "the shape of input x is unknown"
    bundle = nmpsim.compile(path, sample_shapes={"": (20, 3)}).bundle
    assert bundle.metadata.user_inputs[0].shape == (20, 3)


def test_calibration_determines_open_dimensions(tmp_path: Path) -> None:
    kind: Kind = ("float32", ("batch", 3, "rows"))
    path = write_model(
        tmp_path / "o.onnx", [("Relu", ["x"], ["y"], {})], {"x": kind}, {"y": kind}, {}
    )
    program = nmpsim.quantize(path, calibration={"x": np.ones((5, 3, 7), np.float32)})
    assert nmpsim.compile(program).bundle.metadata.user_inputs[0].shape == (1, 3, 7)


def test_a_name_that_is_not_utf8_is_damaged(tmp_path: Path) -> None:
    nodes: list[Node] = [("Neg", ["x"], ["made"], {}), ("Relu", ["made"], ["y"], {})]
    kind: Kind = ("float32", (4,))
    path = write_model(tmp_path / "names.onnx", nodes, {"x": kind}, {"y": kind}, {})
    path.write_bytes(path.read_bytes().replace(b"made", b"mad\xff"))
    finding = get_diagnostic(path)
    assert (finding.code, finding.found) == ("MODEL001", "the name b'mad\\xff'")


def test_an_output_without_a_node_is_refused(tmp_path: Path) -> None:
    kind: Kind = ("float32", (4,))
    nodes: list[Node] = [("Relu", ["x"], ["y"], {})]
    path = write_model(tmp_path / "through.onnx", nodes, {"x": kind}, {"y": kind, "x": kind}, {})
    finding = get_diagnostic(path)
    assert (finding.code, finding.message) == ("MODEL002", "output x cannot be compiled")


@pytest.mark.parametrize("kept", [3, 40, 400])
def test_a_truncated_file_is_damaged(model: Path, kept: int) -> None:
    model.write_bytes(model.read_bytes()[:kept])
    assert get_diagnostic(model).code == "MODEL001"


def test_a_missing_package_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    finding = get_diagnostic(model)
    assert (finding.code, finding.hint) == ("PKG001", f"Run `{get_install_command('onnx')}`.")


def move_constant_outside(model: Path, location: str) -> None:
    """Move the first constant of a model to another file."""
    held = onnx.load(model)
    tensor = held.graph.initializer[0]
    raw = onnx.numpy_helper.to_array(tensor).tobytes()
    (model.parent / "weights.bin").write_bytes(raw)
    (model.parent.parent / "secret.bin").write_bytes(raw)
    onnx.external_data_helper.set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    model.write_bytes(held.SerializeToString())


def test_data_in_the_folder_of_the_model_is_read(model: Path) -> None:
    x = np.full((1, 2, 4, 4), 200, np.uint8)
    before = run(model, x)
    move_constant_outside(model, "weights.bin")
    assert np.array_equal(run(model, x), before)


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "link", "..\\secret.bin", ""])
def test_no_data_is_read_outside_the_folder_of_the_model(model: Path, location: str) -> None:
    move_constant_outside(model, location)
    (model.parent / "link").symlink_to(model.parent.parent / "secret.bin")
    finding = get_diagnostic(model)
    assert finding.code == "MODEL001"
    assert "folder" in str(finding.expected)


def test_an_output_may_be_a_constant(tmp_path: Path) -> None:
    """With an operator beside it, or as the whole model."""
    nodes: list[Node] = [
        ("MaxPool", ["x"], ["y"], {"kernel_shape": [2]}),
        ("Shape", ["x"], ["shape"], {}),
        ("Identity", ["held"], ["c"], {}),
    ]
    inputs: dict[str, Kind] = {"x": ("uint8", (1, 1, 3))}
    outputs: dict[str, Kind] = {
        "shape": ("int64", (3,)),
        "c": ("uint8", (2,)),
        "y": ("uint8", (1, 1, 2)),
    }
    constants = {"held": np.array([3, 200], np.uint8)}
    path = write_model(tmp_path / "constant.onnx", nodes, inputs, outputs, constants)
    shape, c, y = run(path, np.array([[[250, 3, 4]]], np.uint8))
    assert shape.tolist() == [1, 1, 3]
    assert (c.dtype, c.tolist()) == (np.uint8, [3, 200])
    assert (y.dtype, y.tolist()) == (np.uint8, [[[250, 4]]])


def test_dropout_is_an_identity_outside_training(tmp_path: Path) -> None:
    nodes: list[Node] = [("Dropout", ["x", "", "training"], ["y"], {})]
    inputs: dict[str, Kind] = {"x": ("float32", (2,))}
    for training in (False, True):
        constants = {"training": np.array(training)}
        path = write_model(tmp_path / "dropout.onnx", nodes, inputs, {"y": inputs["x"]}, constants)
        if training:
            assert get_diagnostic(path).found == "training_mode true"
        else:
            assert run(path, np.ones(2, np.float32))[0].tolist() == [1, 1]


def test_computed_constants_have_bounded_size(tmp_path: Path) -> None:
    doublings: list[Node] = [
        ("Concat", [f"c{n}"] * 2, [f"c{n + 1}"], {"axis": 0}) for n in range(40)
    ]
    nodes: list[Node] = [
        *doublings,
        ("ReduceMax", ["c40"], ["m"], {}),
        ("Add", ["x", "m"], ["y"], {}),
    ]
    kind: Kind = ("float32", (4,))
    constants = {"c0": np.zeros(8, np.float32)}
    finding = get_diagnostic(
        write_model(tmp_path / "large.onnx", nodes, {"x": kind}, {"y": kind}, constants)
    )
    assert (finding.code, finding.found) == ("MODEL002", "a constant of 33554432 elements")


def test_constants_beyond_the_budget_are_not_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constant_folding, "_MAX_ALL_ELEMENTS", 250)
    computed = []
    plain = constant_folding.FOLDS["Reshape"]
    monkeypatch.setitem(
        constant_folding.FOLDS, "Reshape", lambda *x: computed.append(x) or plain(*x)
    )
    nodes: list[Node] = [("Transpose", ["c"], ["t"], {})]
    nodes += [("Reshape", ["t", "size"], [f"r{n}"], {}) for n in range(20)]  # copies, no views
    nodes.append(("Relu", ["x"], ["y"], {}))
    kind: Kind = ("float32", (4,))
    constants = {"c": np.zeros((10, 10), np.float32), "size": np.array([100], np.int64)}
    finding = get_diagnostic(
        write_model(tmp_path / "n.onnx", nodes, {"x": kind}, {"y": kind}, constants)
    )
    assert finding.found == "300 elements in all computed constants"
    assert len(computed) == 3  # of 100 elements each


@pytest.mark.parametrize(("fmod", "expected"), [(0, [1, -1]), (1, [-2, 2])])
def test_mod_has_the_sign_selected_by_fmod(tmp_path: Path, fmod: int, expected: list[int]) -> None:
    nodes: list[Node] = [("Mod", ["a", "b"], ["size"], {"fmod": fmod})]
    nodes += [("Add", ["size", "four"], ["shape"], {}), ("Reshape", ["x", "shape"], ["y"], {})]
    constants = {"a": np.array([-5, 5]), "b": np.array([3, -3]), "four": np.array([4, 4])}
    kind: Kind = ("float32", (15,) if fmod == 0 else (12,))
    shape = tuple(4 + one for one in expected)
    model = write_model(
        tmp_path / "m.onnx", nodes, {"x": kind}, {"y": ("float32", shape)}, constants
    )
    assert run(model, np.zeros(kind[1], np.float32))[0].shape == shape


def test_work_is_linear_in_nodes(tmp_path: Path) -> None:
    kind: Kind = ("float32", (4,))
    counts = []
    for nodes in (50, 100, 400):  # the first one imports
        relus: list[Node] = [("Relu", [f"t{n}"], [f"t{n + 1}"], {}) for n in range(nodes)]
        path = write_model(tmp_path / f"{nodes}.onnx", relus, {"t0": kind}, {f"t{nodes}": kind}, {})
        counts.append(count_lines(nmpsim.compile, path))
    assert counts[2] < 4.2 * counts[1]
