"""Test images as inputs: Glow's formula for each pixel, unchanged arrays, and several images."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nmpsim.bundle import Tensor, read_bundle
from nmpsim.bundle.metadata import Normalization
from nmpsim.cli.dataset import load_dataset
from nmpsim.cli.inputs import find_samples
from nmpsim.cli.options import PIXEL_RANGES, ImageOptions
from nmpsim.cli.samples import ProgramInputs
from nmpsim.diagnostics import UserError

PIXELS = np.arange(0, 240, 10, dtype=np.uint8).reshape(2, 4, 3)
FLOAT = Tensor("data", "float", (1, 2, 4, 3), 0)
INT8 = Tensor("data", "i8", (1, 2, 4, 3), 0, 1.0, -128)
UINT8 = Tensor("data", "ui8", (1, 2, 4, 3), 0, 0.0078125, 128)


def read_image(
    path: Path, tensor: Tensor = UINT8, order: str = "RGB", **options: object
) -> np.ndarray:
    inputs = ProgramInputs({tensor.name: tensor}, ImageOptions(**options), order)
    (sample,) = find_samples([str(path)], inputs)
    return sample.load()[tensor.name]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "an image.png"
    Image.fromarray(PIXELS).save(path)
    return path


def convert_like_glow(mode: str, layout: str, order: str, mean: tuple, stddev: tuple) -> np.ndarray:
    """Convert pixels like Image.cpp: mean and deviation, scale and bias, order, layout."""
    f = np.float32
    low, high = (f(limit) for limit in PIXEL_RANGES[mode])
    if order == "BGR":
        mean, stddev = mean[::-1], stddev[::-1]
    scale = f((high - low) / 255.0)
    result = np.zeros((2, 4, 3), f)
    for row, column, channel in np.ndindex(2, 4, 3):
        value = (f(PIXELS[row, column, channel]) - f(mean[channel])) / f(stddev[channel])
        at = 2 - channel if order == "BGR" else channel
        result[row, column, at] = value * scale + low
    return result.transpose(2, 0, 1) if layout == "NCHW" else result


@pytest.mark.parametrize("mode", PIXEL_RANGES)
def test_values_equal_glow(image: Path, mode: str) -> None:
    means, deviations = ((0, 0, 0), (123.675, 116.28, 103.53)), ((1, 1, 1), (0.229, 0.224, 0.225))
    for layout, order, mean, stddev in itertools.product(
        ("NHWC", "NCHW"), ("RGB", "BGR"), means, deviations
    ):
        shape = (1, 2, 4, 3) if layout == "NHWC" else (1, 3, 2, 4)
        found = read_image(
            image,
            Tensor("data", "float", shape, 0),
            mode=mode,
            channel_order=order,
            mean=mean,
            stddev=stddev,
        )
        assert found.dtype == np.float32
        assert np.array_equal(found[0], convert_like_glow(mode, layout, order, mean, stddev))


def test_bytes_stay_unchanged(image: Path) -> None:
    assert np.array_equal(read_image(image)[0], PIXELS)
    assert np.array_equal(read_image(image, order="BGR")[0], PIXELS[:, :, ::-1])
    assert np.array_equal(read_image(image, order="BGR", channel_order="RGB")[0], PIXELS)
    assert read_image(image, mode="neg1to1").dtype == np.float32


def test_a_program_of_lir_has_glows_channel_order(one_input) -> None:
    assert read_bundle(one_input).metadata.channel_order == "BGR"


@pytest.mark.parametrize(
    ("scale", "offset", "mode"),
    [
        (1.0, -128, "0to255"),
        (0.003921568859368563, -128, "0to1"),
        (0.007843137718737125, -1, "neg1to1"),
        (0.0078125, 0, "neg1to1"),
        (1.0, 0, "neg128to127"),
    ],
)
def test_an_int8_range_selects_its_mode(image: Path, scale: float, offset: int, mode: str) -> None:
    tensor = Tensor("data", "i8", (1, 2, 4, 3), 0, scale, offset)
    found = read_image(image, tensor)
    assert np.array_equal(found, read_image(image, tensor, mode=mode))
    quantized = np.clip(np.round(found / np.float32(scale)) + offset, -128, 127)
    assert np.abs(quantized[0] - (PIXELS.astype(int) - 128)).max() <= 1


def test_metadata_take_precedence_over_the_range(image: Path) -> None:
    said = Normalization("data", (1.0, 2.0, 3.0), (2.0,))

    def taken_by(tensor: Tensor, **options: object) -> np.ndarray:
        inputs = ProgramInputs({"data": tensor}, ImageOptions(**options), "RGB", {"data": said})
        return find_samples([str(image)], inputs)[0].load()["data"]

    for tensor in (FLOAT, INT8):
        assert np.array_equal(taken_by(tensor)[0], (PIXELS - np.float32([1, 2, 3])) / 2)
        assert np.array_equal(taken_by(tensor, mode="0to1"), read_image(image, tensor, mode="0to1"))
    assert np.array_equal(taken_by(UINT8)[0], PIXELS)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("x.bmp", Image.fromarray(PIXELS)),
        ("x.PNG", Image.fromarray(PIXELS)),
        ("opaque.png", Image.fromarray(PIXELS).convert("RGBA")),
        ("palette.png", Image.fromarray(PIXELS).convert("P", palette=Image.Palette.ADAPTIVE)),
        ("noending", Image.fromarray(PIXELS)),
    ],
)
def test_all_image_formats_are_read(tmp_path: Path, name: str, made: Image.Image) -> None:
    made.save(tmp_path / name, format="BMP" if name.endswith("bmp") else "PNG")
    assert np.array_equal(read_image(tmp_path / name)[0], PIXELS)


def test_jpeg_grey_and_one_bit_images_are_read(tmp_path: Path) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "x.jpg")
    with Image.open(tmp_path / "x.jpg") as decoded:
        assert np.array_equal(read_image(tmp_path / "x.jpg")[0], np.asarray(decoded))
    grey = Tensor("data", "ui8", (1, 1, 2, 4), 0, 1.0, 0)
    Image.fromarray(PIXELS[:, :, 0]).save(tmp_path / "grey.png")
    assert np.array_equal(read_image(tmp_path / "grey.png", grey)[0, 0], PIXELS[:, :, 0])
    Image.fromarray(PIXELS[:, :, 0] > 50).save(tmp_path / "bits.png")
    assert set(read_image(tmp_path / "bits.png", grey).reshape(-1)) == {0, 255}


def test_images_are_resized_on_request(tmp_path: Path) -> None:
    Image.new("RGB", (40, 50), (10, 20, 30)).save(tmp_path / "x.png")
    found = read_image(tmp_path / "x.png", resize=True)
    assert found.shape == (1, 2, 4, 3)
    assert found.reshape(-1, 3).tolist() == [[10, 20, 30]] * 8


def test_a_folder_or_pattern_gives_a_run_for_each_file(tmp_path: Path) -> None:
    for number in (2, 0, 1):
        Image.fromarray(PIXELS + np.uint8(number)).save(tmp_path / f"{number}.png")
    (tmp_path / "notes.txt").write_text("")
    inputs = ProgramInputs({"data": UINT8, "mask": Tensor("mask", "float", (2,), 0)})
    np.save(tmp_path / "mask.npy", np.zeros(2, np.float32))
    mask = f"mask={tmp_path}/mask.npy"
    for argument in (f"data={tmp_path}/*.png", f"data={tmp_path}/[0-9].png"):
        samples = find_samples([mask, argument], inputs)
        assert [Path(one.name).name for one in samples] == ["0.png", "1.png", "2.png"]
        assert [one.load()["data"][0, 0, 0, 0] for one in samples] == [0, 1, 2]
    with pytest.raises(UserError, match="different numbers of files"):
        find_samples([f"data={tmp_path}/?.png", f"mask={tmp_path}/[01].png"], inputs)
    (tmp_path / "mask.npy").unlink()
    assert len(find_samples([str(tmp_path)], ProgramInputs({"data": UINT8}))) == 3


def test_a_name_of_a_file_may_look_like_a_pattern(tmp_path: Path) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "x[1].png")
    assert np.array_equal(read_image(tmp_path / "x[1].png")[0], PIXELS)


@pytest.mark.parametrize("shape", [(2, 4, 3), (1, 1, 2, 4, 3)])
def test_dimensions_of_one_are_added(tmp_path: Path, shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "x.npy", PIXELS.reshape(shape))
    assert np.array_equal(read_image(tmp_path / "x.npy")[0], PIXELS)


def test_raw_values_are_of_the_inputs_type(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(PIXELS.tobytes())
    assert np.array_equal(read_image(tmp_path / "x.bin")[0], PIXELS)
    values = np.arange(24, dtype="<f4").reshape(2, 4, 3) / 7
    (tmp_path / "x.raw").write_bytes(values.tobytes())
    assert np.array_equal(read_image(tmp_path / "x.raw", FLOAT)[0], values)


def test_a_missing_image_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="FILE001"):
        read_image(tmp_path / "x.png", FLOAT)


def test_several_runs_have_a_line_each(fake, nmpsim_cli, one_input, tmp_path: Path) -> None:
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.zeros(4, np.int8))
    words = ("run", one_input, "--input", f"{tmp_path}/*.npy")
    result = nmpsim_cli(*words)
    assert result.exit_code == 0, result.stderr
    assert sum(".npy" in line for line in result.stdout.splitlines()) == 2
    document = json.loads(nmpsim_cli(*words, "--format", "json").stdout)
    assert document["schema"] == "nmpsim-runs-1"
    assert [Path(run["input"]).name for run in document["runs"]] == ["a.npy", "b.npy"]
    assert nmpsim_cli(*words, "--save-outputs", tmp_path / "o.npz").exit_code == 0
    with np.load(tmp_path / "o.npz") as saved:
        assert saved["prob"].shape[0] == 2
    refused = nmpsim_cli(*words, "--shadow")
    assert refused.exit_code == 2
    assert "--shadow cannot be used with 2 inputs" in refused.stderr


def test_one_trap_of_several_runs_is_reported(fake, nmpsim_cli, one_input, tmp_path: Path) -> None:
    fake.behaviour = "trap"
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.zeros(4, np.int8))
    output = tmp_path / "o.npz"
    result = nmpsim_cli("run", one_input, "--input", f"{tmp_path}/*.npy", "--save-outputs", output)
    assert result.exit_code == 1
    assert "the run stopped" in result.stdout
    assert not output.exists()


def test_a_folder_of_images_is_a_data_set(tmp_path: Path) -> None:
    for number, name in enumerate(("cat", "dog")):
        (tmp_path / name).mkdir()
        Image.fromarray(PIXELS + np.uint8(number)).save(tmp_path / name / "0.png")
    np.save(tmp_path / "dog" / "1.npy", PIXELS)
    inputs = ProgramInputs({"data": UINT8})
    data = load_dataset(tmp_path, None, inputs)
    assert (data.labels, data.class_names) == ([0, 1, 1], ("cat", "dog"))
    assert [int(data.samples.read(index)["data"].reshape(-1)[0]) for index in range(3)] == [0, 1, 0]
    other = load_dataset(tmp_path, None, ProgramInputs({"data": UINT8}, ImageOptions(mode="0to1")))
    assert other.samples.digest != data.samples.digest
