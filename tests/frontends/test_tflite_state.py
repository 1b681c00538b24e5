"""Variables of TFLite models, which keep values from one run to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner
from tflite_files import streaming_network

import nmpsim
from nmpsim.cli.app import app
from nmpsim.runtime.tflite_interpreter import Interpreter

Frames = list[npt.NDArray[Any]]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "streaming.tflite"
    path.write_bytes(streaming_network())
    return path


def make_frames(count: int, dtype: str = "int8") -> Frames:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(3)
    return [
        rng.integers(limits.min, limits.max, (1, 2, 1, 4), dtype, endpoint=True)
        for _ in range(count)
    ]


def expect_outputs(frames: Frames) -> Frames:
    """Return the outputs of the streaming network, computed from all frames at once."""
    dtype = frames[0].dtype
    rows = np.concatenate(
        [np.arange(12).reshape(3, 4).astype(dtype), *(f[0, :, 0] for f in frames)]
    )
    old = np.full((1, 4), 9, dtype)
    fixed = np.full((1, 4), 3, dtype)
    outputs = []
    for start in range(0, 2 * len(frames), 2):
        window = rows[start : start + 5]
        parts = [window.max(axis=0, keepdims=True), old, window[:1], fixed]
        outputs.append(np.concatenate(parts).reshape(1, 4, 1, 4))
        old = window[:1]
    return outputs


@pytest.mark.parametrize(
    ("dtype", "engine", "tiling", "count"),
    [
        ("INT8", "compiled", "layer", 100),
        ("INT8", "compiled", "chain", 8),
        ("UINT8", "compiled", "simple", 8),
        ("INT8", "reference", "layer", 4),
        ("INT8", "auto", "layer", 8),
    ],
)
def test_state_is_kept_between_runs(
    dtype: str, engine: str, tiling: str, count: int, tmp_path: Path
) -> None:
    path = tmp_path / "streaming.tflite"
    path.write_bytes(streaming_network(dtype))
    bundle = nmpsim.compile(path, tiling=tiling).bundle
    device = nmpsim.Device(engine=engine, threads=1)
    frames = make_frames(count, dtype.lower())
    expected = expect_outputs(frames)
    for frame, values in zip(frames, expected, strict=True):
        report = device.run(bundle, frame)
        assert np.array_equal(report.outputs["y"], values)
        assert np.array_equal(report.outputs["frames"][0, -2:], frame[0])
    again = device.run(bundle, frames[0], reset_state=True)
    assert np.array_equal(again.outputs["y"], expected[0])
    state = {name: again.outputs[name] for name in ("frames", "old")}
    other = nmpsim.Device(engine=engine, threads=1)
    given = other.run(bundle, {"x": frames[1], **state}, save_layers=True)
    assert np.array_equal(given.outputs["y"], expected[1]), "a given state replaces the kept one"


def test_batches_keep_or_reset_state(model: Path) -> None:
    bundle, frames = nmpsim.compile(model).bundle, make_frames(7)
    device = nmpsim.Device(threads=1)
    for reset in (False, True):
        device.run(bundle, frames[0])
        batch = device.run_batch(bundle, frames[1:], reset_state=reset)
        found = [run.outputs[0].values for run in batch.runs]
        expected = expect_outputs(frames)[1:]
        if reset:
            expected = [expect_outputs([frame])[0] for frame in frames[1:]]
        assert all(map(np.array_equal, found, expected))
        device = nmpsim.Device(threads=1)
    for frame, report in zip(frames, device.run_layers(bundle, frames), strict=True):
        assert np.array_equal(report.outputs["y"], expect_outputs([frame])[0])


def test_interpreter_equals_litert(model: Path) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    own, reference = Interpreter(model), litert.Interpreter(str(model))
    for one in (own, reference):
        one.allocate_tensors()
    for frame in make_frames(100):
        for one in (own, reference):
            one.set_tensor(0, frame)
            one.invoke()
        assert np.array_equal(own.get_tensor(5), reference.get_tensor(5))


@pytest.mark.parametrize(
    ("settings", "code", "found"),
    [
        ({"variables": ("frames", "fixed")}, "MODEL002", "variable old, which is read before"),
        ({"init": 0}, "MODEL002", "subgraph 1 ''"),
        ({"init": 2}, "MODEL001", "CALL_ONCE of subgraphs {2}"),
    ],
)
def test_refuse_unsupported_variables(
    settings: dict[str, Any], code: str, found: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(streaming_network(**settings))
    with pytest.raises(nmpsim.UserError) as caught:
        nmpsim.compile(path)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code
    assert found in str(diagnostic.found)


def test_state_cannot_be_batched(model: Path) -> None:
    with pytest.raises(nmpsim.UserError, match="a network with state cannot compute a batch"):
        nmpsim.compile(model, images_per_core=1)


def test_run_command_keeps_state(model: Path, tmp_path: Path) -> None:
    frames = make_frames(3)
    paths = [tmp_path / f"{index}.npy" for index in range(3)]
    for path, frame in zip(paths, frames, strict=True):
        np.save(path, frame)
    outputs = tmp_path / "outputs.npz"
    inputs = [word for path in paths for word in ("--input", str(path))]
    command = ["run", str(model), *inputs, "--save-outputs", str(outputs)]
    alone = [expect_outputs([frame])[0] for frame in frames]
    for more, expected in (([], expect_outputs(frames)), (["--reset-state"], alone)):
        result = CliRunner().invoke(app, [*command, *more])
        assert result.exit_code == 0, result.output
        assert np.array_equal(np.load(outputs)["y"], expected)
        assert "frames" not in result.output, "state is no output of the network"


def test_layers_of_chains_are_saved_with_the_state(model: Path) -> None:
    frames = make_frames(3)
    saved = []
    for tiling in ("layer", "chain"):
        bundle, device = nmpsim.compile(model, tiling=tiling).bundle, nmpsim.Device(threads=1)
        for frame in frames:
            report = device.run(bundle, frame, save_layers=True)
        saved.append(report.layer_outputs)
    assert saved[0].keys() == saved[1].keys()
    assert all(np.array_equal(values, saved[1][name]) for name, values in saved[0].items())
