"""PyTorch's layers and its small network, from records: to the bit what PyTorch answered."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pytest
from numerics.vectors import torch_files
from torch_records import DigitsRecording, RecordingWriter, record_half_bias, record_operation

import nmpsim
from nmpsim.frontends.torch import lower_recording
from nmpsim.frontends.torch.recording import ModelRecording

ENGINES = ("fbgemm", "x86", "qnnpack", "onednn")
Array = npt.NDArray[Any]


def run_recording(
    recorded: ModelRecording, inputs: dict[str, Array], engine: str = "reference"
) -> Any:
    """Compile a recorded run, execute it and return the report."""
    bundle = nmpsim.compile(lower_recording(recorded), tiling="simple").bundle
    return nmpsim.Device(threads=1, engine=engine).run(bundle, inputs, save_layers=True)


@pytest.mark.parametrize("torch_engine", ENGINES)
def test_recorded_operations_equal_pytorch(torch_engine: str, shared: Path) -> None:
    kinds = {"conv", "linear", "add", "add_relu", "mul"}
    cases = list(torch_files(shared, torch_engine, kinds))
    assert len(cases) == 22
    for case in cases:
        recorded, inputs = record_operation(case, torch_engine)
        report = run_recording(recorded, inputs, "compiled")
        assert {layer.placement for layer in report.layers} == {"device"}
        np.testing.assert_array_equal(report.outputs["output"], case["y"], err_msg=case["name"])


@pytest.mark.parametrize("torch_engine", ["fbgemm", "qnnpack"])
def test_every_activation_of_a_network_equals_pytorch(torch_engine: str, shared: Path) -> None:
    digits = DigitsRecording(shared, torch_engine, 32)
    report = run_recording(
        digits.recorded(torch_engine), {"x": digits.arrays["input_f32"]}, "compiled"
    )
    layers = {key.partition(":")[2]: values for key, values in report.layer_outputs.items()}
    names = ("q", "c1", "blk.dw", "blk.pw", "blk.add", "mp", "c2", "ap", "fc")
    for name in names:
        expected = digits.activation({"blk.add": "blk"}.get(name, name)).astype(np.int16) - 128
        is_image = expected.ndim == 4 and name != "q"
        held = np.moveaxis(expected, 1, -1) if is_image else expected
        np.testing.assert_array_equal(layers[name], held, err_msg=name)
    np.testing.assert_array_equal(report.outputs["output"], digits.arrays["logits"])
    on_host = {layer.name for layer in report.layers if layer.placement == "host"}
    assert on_host == {"q", "dq"}


@pytest.mark.parametrize(("torch_engine", "stored"), [("qnnpack", 255), ("fbgemm", 127)])
def test_one_half_equals_pytorch(torch_engine: str, stored: int) -> None:
    """What a convolution without weights makes of its bias: two integers, one number."""
    report = run_recording(record_half_bias(torch_engine), {"x": np.ones((1, 5, 5, 5), np.float32)})
    (convolved,) = (values for key, values in report.layer_outputs.items() if key.endswith(":conv"))
    assert set(convolved.reshape(-1).tolist()) == {stored - 128}
    assert set(report.outputs["output"].reshape(-1).tolist()) == {0.5}


def test_x86_combines_two_engines(shared: Path) -> None:
    imported = lower_recording(DigitsRecording(shared, "fbgemm", 1).recorded("x86"))
    assert imported.numerics == "float-fbgemm"
    assert imported.layer_numerics == dict.fromkeys(
        ("c1", "blk.dw", "blk.pw", "c2"), "float-onednn"
    )
    bundle = nmpsim.compile(imported, tiling="simple").bundle
    profiles = {layer.name: layer.numerics for layer in bundle.metadata.layers}
    assert (profiles["c1"], profiles["fc"]) == ("float-onednn", "float-fbgemm")
    own = nmpsim.compile(imported, tiling="simple", numerics="float-qnnpack").bundle
    assert {layer.numerics for layer in own.metadata.layers} <= {"float-qnnpack", ""}


def record_average(
    channels_last: bool, channels: int, engine: str = "fbgemm", **more: Any
) -> tuple[ModelRecording, Array]:
    """Return a run of an average pool, and its input."""
    run = RecordingWriter(engine)
    x = run.tensor((1, channels, 4, 4), 0.05, 77, channels_last=channels_last)
    y = run.tensor((1, channels, 2, 2), 0.05, 77)
    run.call("aten.avg_pool2d", "ap", y, self=x, kernel_size=(2, 2), stride=(2, 2), **more)
    values = np.random.default_rng(5).integers(0, 256, x.shape).astype(np.uint8)
    return run.recorded({"x": x}, y), values


def average_windows(values: Array, late: int) -> Array:
    """Average windows of 2 x 2; the first ``late`` channels add the zero point after rounding."""
    n, c, h, w = values.shape
    taps = values.astype(np.int64).reshape(n, c, h // 2, 2, w // 2, 2) - 77
    quarter = taps.sum(axis=(3, 5)) / 4
    rounded = np.where(np.arange(c)[:, None, None] < late, np.rint(quarter) + 77, 0)
    early = np.rint(quarter + 77)
    return np.where(np.arange(c)[:, None, None] < late, rounded, early).astype(np.uint8)


@pytest.mark.parametrize(
    ("channels_last", "channels", "late"), [(False, 32, 0), (True, 32, 32), (True, 20, 16)]
)
def test_an_average_depends_on_the_memory_order_of_its_input(
    channels_last: bool, channels: int, late: int
) -> None:
    recorded, values = record_average(channels_last, channels)
    expected = average_windows(values, late)
    assert not np.array_equal(expected, average_windows(values, 0 if late else channels)), (
        "there are ties"
    )
    np.testing.assert_array_equal(
        run_recording(recorded, {"x": values}).outputs["output"], expected
    )


def test_an_average_that_no_profile_has_is_refused() -> None:
    more = {"padding": (1, 1), "count_include_pad": False}
    with pytest.raises(nmpsim.UserError, match="count_include_pad False"):
        lower_recording(record_average(True, 16, **more)[0])


@pytest.mark.parametrize("torch_engine", ["fbgemm", "qnnpack"])
def test_a_mean_rounds_halves_to_an_even_integer(torch_engine: str) -> None:
    """The integer includes the zero point, except in qnnpack."""
    run = RecordingWriter(torch_engine)
    x, y = run.tensor((1, 40, 4, 3), 0.05, 77), run.tensor((1, 40), 0.05, 77)
    run.call("aten.mean", "mean", y, self=x, dim=(2, 3), keepdim=False)
    values = np.random.default_rng(6).integers(0, 256, x.shape).astype(np.uint8)
    mean = values.astype(np.int64).sum(axis=(2, 3)) / 12
    rounded = np.rint(mean - 77) + 77 if torch_engine == "qnnpack" else np.rint(mean)
    assert (np.rint(mean) != np.rint(mean - 77) + 77).any(), "there are halves"
    report = run_recording(run.recorded({"x": x}, y), {"x": values})
    np.testing.assert_array_equal(report.outputs["output"], rounded)
    assert {layer.placement for layer in report.layers} == {"device"}


@pytest.mark.parametrize(
    ("ceil_mode", "channels_last", "late"), [(False, True, 20), (True, True, 16), (True, False, 0)]
)
def test_averages_with_ceil_mode_do_not_use_qnnpack(
    ceil_mode: bool, channels_last: bool, late: int
) -> None:
    """PyTorch then takes the other engines', which may divide by fewer taps than a window has."""
    recorded, values = record_average(channels_last, 20, "qnnpack", ceil_mode=ceil_mode)
    expected = average_windows(values, late)
    np.testing.assert_array_equal(
        run_recording(recorded, {"x": values}).outputs["output"], expected
    )


def record_elementwise(
    operation: str, table: Array, scale: float = 0.05, zero: int = 10
) -> ModelRecording:
    """Return a run of an elementwise operation with a table."""
    run = RecordingWriter("fbgemm")
    x, y = run.tensor((1, 256), 0.05, 10), run.tensor((1, 256), scale, zero)
    run.call(operation, "act", y, (table.astype(np.uint8),), self=x)
    return run.recorded({"x": x}, y)


def test_a_function_of_one_value_becomes_a_table_or_a_clip() -> None:
    values = np.arange(256)
    tables = {
        "relu": np.maximum(values, 10),
        "clip": np.clip(values, 10, 130),
        "intlookuptable": values[::-1],
    }
    for opcode, table in tables.items():
        report = run_recording(
            record_elementwise("aten.relu", table), {"x": values.astype(np.uint8).reshape(1, 256)}
        )
        assert [layer.op for layer in report.layers] == [opcode]
        np.testing.assert_array_equal(report.outputs["output"][0], table)
    other_scale = record_elementwise("aten.sigmoid", np.maximum(values, 10), 1 / 256, 0)
    assert "intlookuptable" in {i.opcode for i in lower_recording(other_scale).module.instructions}


def test_a_permutation_between_views_is_one_transposition() -> None:
    """A channel shuffle: two groups of channels taken in turn."""
    run = RecordingWriter("fbgemm")
    x = run.tensor((1, 6, 2, 3), 0.05, 10)
    apart = run.tensor((1, 2, 3, 2, 3), 0.05, 10)
    turned = run.tensor((1, 3, 2, 2, 3), 0.05, 10)
    y = run.tensor(x.shape, 0.05, 10)
    run.call("aten.view", "view", apart, self=x, size=apart.shape)
    run.call("aten.transpose", "transpose", turned, self=apart, dim0=1, dim1=2)
    run.call("aten.view", "view", y, self=turned, size=y.shape)
    imported = lower_recording(run.recorded({"x": x}, y))
    assert [operator.layers for operator in imported.operators][:2] == [(), ("transpose",)]
    values = np.arange(36, dtype=np.uint8).reshape(x.shape)
    report = run_recording(run.recorded({"x": x}, y), {"x": values})
    shuffled = values.reshape(1, 2, 3, 2, 3).swapaxes(1, 2).reshape(x.shape)
    np.testing.assert_array_equal(report.outputs["output"], shuffled)


def test_parts_and_broadcast_operands_equal_pytorch() -> None:
    """Concatenation by tables, slices, an image times one value a channel."""
    run = RecordingWriter("fbgemm")
    x = run.tensor((2, 4, 3, 3), 0.05, 10)
    gate = run.tensor((2, 4, 1, 1), 1 / 256, 0)
    scaled = run.tensor(x.shape, 0.05, 10)
    run.call("quantized.mul", "se", scaled, qa=gate, qb=x)
    first = run.tensor((2, 2, 3, 3), 0.05, 10)
    run.call("aten.slice", "slice", first, self=scaled, dim=1, start=0, end=2, step=1)
    y = run.tensor((2, 6, 3, 3), 0.1, 10)
    half = np.rint((np.arange(256) - 10) / 2).astype(np.int64) + 10
    tables = (half.astype(np.uint8),) * 4
    run.call("quantized.cat", "cat", y, tables, qx=(first, x), dim=1)
    rng = np.random.default_rng(2)
    values = rng.integers(0, 256, x.shape).astype(np.uint8)
    gates = rng.integers(0, 256, gate.shape).astype(np.uint8)
    report = run_recording(run.recorded({"x": x, "gate": gate}, y), {"x": values, "gate": gates})
    product = (values.astype(np.float32) - 10) * gates.astype(np.float32)
    mul = np.clip(np.rint(product * np.float32(1 / 256)) + 10, 0, 255).astype(int)
    expected = half[np.concatenate([mul[:, :2], values], axis=1)]
    np.testing.assert_array_equal(report.outputs["output"], expected)


def test_a_split_of_an_image_keeps_the_layout_of_the_image() -> None:
    run = RecordingWriter("fbgemm")
    x = run.tensor((1, 6, 4, 10), 0.05, 77)
    pooled = run.tensor((1, 6, 2, 5), 0.05, 77)
    run.call("aten.quantized_max_pool2d", "pool", pooled, self=x, kernel_size=(2, 2), stride=(2, 2))
    parts = run.tensor((1, 2, 2, 5), 0.05, 77), run.tensor((1, 4, 2, 5), 0.05, 77)
    sizes = [part.shape[1] for part in parts]
    run.call("aten.split_with_sizes", "split", parts[0], self=pooled, split_sizes=sizes, dim=1)
    run.calls[-1] = attrs.evolve(run.calls[-1], results=parts)
    values = np.random.default_rng(8).integers(0, 256, x.shape).astype(np.uint8)
    report = run_recording(run.recorded({"x": x}, parts[1]), {"x": values})
    maxima = values.reshape(1, 6, 2, 2, 5, 2).max(axis=(3, 5))
    np.testing.assert_array_equal(report.outputs["output"], maxima[:, 2:])


def test_concatenated_channels_use_the_block_form() -> None:
    run = RecordingWriter("fbgemm")
    parts = [run.tensor((1, c, 2, 2), 0.05, 10, channels_last=True) for c in (70, 3)]
    y = run.tensor((1, 73, 2, 2), 0.1, 10)
    single, block = (np.clip(np.arange(256) // 2 + d, 0, 255).astype(np.uint8) for d in (0, 1))
    run.call("quantized.cat", "cat", y, (single, block) * 2, qx=tuple(parts), dim=1)
    rng = np.random.default_rng(4)
    values = [rng.integers(0, 256, part.shape).astype(np.uint8) for part in parts]
    given = dict(zip("ab", values, strict=True))
    report = run_recording(run.recorded(dict(zip("ab", parts, strict=True)), y), given)
    whole = np.concatenate(values, axis=1)
    expected = np.where(np.arange(73)[:, None, None] < 64, block[whole], single[whole])
    np.testing.assert_array_equal(report.outputs["output"], expected)


def test_float_operations_run_on_the_host() -> None:
    run = RecordingWriter("fbgemm")
    x = run.tensor((2, 3))
    clipped = run.call("aten.relu", "relu", run.tensor(x.shape), self=x)
    y = run.call("aten._softmax", "softmax", run.tensor(x.shape), self=clipped, dim=-1)
    values = np.float32([[-1, 0, 2], [3, -4, 1]])
    report = run_recording(run.recorded({"x": x}, y), {"x": values})
    grown = np.exp(np.maximum(values, 0))
    np.testing.assert_allclose(
        report.outputs["output"], grown / grown.sum(axis=1, keepdims=True), rtol=1e-6
    )
    assert {layer.placement for layer in report.layers} == {"host"}


def test_unknown_operations_are_refused_by_name() -> None:
    run = RecordingWriter("fbgemm")
    x, y, z = (run.tensor((1, 4), 0.05, 10) for _ in range(3))
    run.call("aten.cumsum", "blk.cumsum", y, self=x, dim=1)
    run.call("aten.sigmoid", "act", z, self=y)
    with pytest.raises(nmpsim.UserError) as error:
        lower_recording(run.recorded({"x": x}, z))
    first, second = error.value.diagnostics
    assert first.code == second.code == "MODEL002"
    assert first.message == "operation 0 aten.cumsum blk.cumsum cannot be compiled"
    assert first.found == "operation aten.cumsum"
    assert second.message == "operation 1 aten.sigmoid act cannot be compiled"


def test_a_missing_pytorch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "nmpsim.frontends.torch.recorder", raising=False)
    with pytest.raises(nmpsim.UserError, match="PyTorch is needed") as error:
        nmpsim.from_torch(object(), ())
    assert error.value.diagnostics[0].code == "PKG001"


def test_weight_options_are_refused() -> None:
    with pytest.raises(nmpsim.UserError, match="ARG001"):
        nmpsim.compile(
            lower_recording(record_elementwise("aten.relu", np.arange(256))), weights="w.npz"
        )
