"""Test that the errors for a wrong model or image say what to do."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image
from tflite_files import FileOperator, FileTensor, small_network, tflite_file

import nmpsim
from nmpsim.extras import get_install_command

PIXELS = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)


def png(*, width: int = 4, height: int = 4) -> bytes:
    """Return a PNG file whose header declares a size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(99)))
        + chunk(b"IEND", b"")
    )


def encode_image(image: Image.Image, format: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format=format, **options)
    return file.getvalue()


def array(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def transparent() -> bytes:
    image = Image.fromarray(PIXELS).convert("RGBA")
    image.putpixel((1, 1), (1, 2, 3, 0))
    return encode_image(image)


def mixed_model() -> bytes:
    tensors = [FileTensor("x", (1, 4))]
    tensors += [FileTensor(name, (1, 4), "FLOAT32", (), ()) for name in ("y", "z")]
    operators = [FileOperator("DEQUANTIZE", (0,), (1,)), FileOperator("LOGISTIC", (1,), (2,))]
    return tflite_file(tensors, operators, [0], [2])


GOOD = encode_image(Image.fromarray(PIXELS))
IMAGE = Image.fromarray(PIXELS)
FILES = {
    "photo.png": GOOD,
    "a photo.png": GOOD,
    "notes.txt": b"hello world\n",
    "text.png": b"hello world\n",
    "empty.png": b"",
    "cut.png": GOOD[:-30],
    "large.png": encode_image(IMAGE.resize((8, 6))),
    "transparent.png": transparent(),
    "grey.png": encode_image(IMAGE.convert("L")),
    "cmyk.jpg": encode_image(IMAGE.convert("CMYK"), "JPEG"),
    "deep.png": encode_image(Image.fromarray(np.full((4, 4), 4096, np.uint16))),
    "moving.png": encode_image(IMAGE, save_all=True, append_images=[IMAGE.rotate(90)]),
    "photo.webp": b"RIFF\x00\x00\x00\x00WEBPVP8 ",
    "bomb.png": png(width=60000, height=60000),
    "nchw.npy": array(np.zeros((1, 3, 4, 4), np.uint8)),
    "int64.npy": array(np.zeros((1, 4, 4, 3), np.int64)),
    "larger.npy": array(np.zeros((1, 3, 8, 8), np.uint8)),
    "five.npy": array(np.zeros((5, 4, 4, 3), np.uint8)),
    "nan.npy": array(np.full((1, 4, 4, 3), np.nan, np.float32)),
    "short.bin": b"abc",
    "mixed.tflite": mixed_model(),
    "cut.tflite": small_network()[:1000],
    "int8.tflite": small_network(depth=3),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    for name, contents in FILES.items():
        (folder / name).write_bytes(contents)
    (folder / "none").mkdir()
    (folder / "model.tflite").write_bytes(small_network(dtype="UINT8", depth=3))
    nmpsim.save(nmpsim.compile(folder / "model.tflite", tiling="simple"), folder / "u8.bin")
    nmpsim.save(nmpsim.compile(folder / "int8.tflite", tiling="simple"), folder / "i8.bin")
    return folder


@pytest.fixture
def command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    from nmpsim.cli.app import app

    monkeypatch.chdir(folder)
    return lambda *words, **given: CliRunner().invoke(app, list(words), **given)


MISTAKES = [
    ("a text", "run u8.bin --input notes.txt", "INPUT003", "Write arrays with numpy.save"),
    ("a text called PNG", "run u8.bin --input text.png", "INPUT003", "Convert the image to PNG."),
    ("another format", "run u8.bin --input photo.webp", "INPUT003", "Convert the image to PNG."),
    ("an empty file", "run u8.bin --input empty.png", "INPUT003", "the file is empty"),
    (
        "a truncated image",
        "run u8.bin --input cut.png",
        "INPUT003",
        "Write or copy the file again; it may be truncated.",
    ),
    (
        "another size",
        "run u8.bin --input large.png",
        "INPUT002",
        "Pass --resize, or resize the image.",
    ),
    (
        "with alpha",
        "run u8.bin --input transparent.png",
        "INPUT002",
        "Flatten the image onto a background.",
    ),
    ("grey", "run u8.bin --input grey.png", "INPUT002", "Convert the image to RGB."),
    ("for print", "run u8.bin --input cmyk.jpg", "INPUT002", "Convert the image to RGB."),
    (
        "16 bits",
        "run u8.bin --input deep.png",
        "INPUT002",
        "Convert the image to 8 bits per channel.",
    ),
    ("animated", "run u8.bin --input moving.png", "INPUT002", "Save one frame as an image."),
    (
        "a bomb",
        "run u8.bin --input bomb.png",
        "INPUT003",
        "Scale the image down before passing it; --resize",
    ),
    (
        "a bomb to resize",
        "run u8.bin --input bomb.png --resize",
        "INPUT003",
        "Scale the image down before passing it",
    ),
    ("no mode", "run i8.bin --input photo.png", "INPUT002", "--image-mode 0to1|neg1to1|"),
    (
        "wrong layout",
        "run u8.bin --input photo.png --image-layout NCHW",
        "INPUT002",
        "Leave out --image-layout.",
    ),
    ("two means", "run u8.bin --input photo.png --image-mean 1,2", "ARG001", "one per channel"),
    ("no number", "run u8.bin --input photo.png --image-mean x", "ARG001", "comma-separated list"),
    ("NCHW", "run u8.bin --input nchw.npy", "INPUT002", "from NCHW with x.transpose(0, 2, 3, 1)"),
    ("wrong dtype", "run u8.bin --input int64.npy", "INPUT002", "x.astype('uint8')"),
    (
        "five samples",
        "run u8.bin --input five.npy",
        "INPUT002",
        "Save each of the 5 samples in a separate file",
    ),
    ("no numbers", "run u8.bin --input nan.npy", "INPUT002", "expected: values other than NaN"),
    ("raw of another size", "run u8.bin --input short.bin", "INPUT002", "48 bytes: 1x4x4x3 of"),
    ("an empty folder", "run u8.bin --input none", "FILE001", "*.npy, *.npz, *.png"),
    ("a pattern of nothing", "run u8.bin --input x*.png", "FILE001", "or a pattern such as"),
    ("- twice", "run - --input -", "ARG001", "Save the data in a file"),
    ("- of nothing", "run u8.bin --input -", "FILE001", "the data is empty"),
    ("no input", "run u8.bin", "INPUT001", "Pass --input FILE: an array, an image"),
    (
        "another input",
        "run u8.bin --input img=photo.png",
        "INPUT001",
        "List the inputs with `nmpsim inspect`.",
    ),
    (
        "two images",
        "run u8.bin --input photo.png --input photo.png",
        "INPUT001",
        "For several runs, pass a folder or a pattern",
    ),
    ("a missing file", "run u8.bin --input photo.jpg", "FILE001", "No such file"),
    (
        "a path in two words",
        "run u8.bin --input a photo.png",
        "ARG001",
        "Put paths with spaces, and patterns, in quotes",
    ),
    (
        "a pattern by the shell",
        "run u8.bin --input a.png b.png",
        "ARG001",
        "Put paths with spaces, and patterns, in quotes",
    ),
    (
        "several at once",
        "debug u8.bin --input *.png -c where",
        "INPUT001",
        "use `nmpsim run`, which accepts several",
    ),
    ("a text as model", "run notes.txt --input photo.png", "BUN001", "or a TFLite model"),
    ("an image as model", "compile photo.png -o x.bin", "FILE001", "Use a LIR text"),
    ("no such model", "compile missing.tflite -o x.bin", "FILE001", "cannot read the program"),
    ("floats between integers", "run mixed.tflite --input photo.png", "MODEL002", "full integer"),
    ("a truncated model", "run cut.tflite --input photo.png", "MODEL001", "may be incomplete"),
    (
        "both on stdout",
        "run u8.bin --input photo.png --save-outputs -",
        "ARG001",
        "Write one of them",
    ),
    ("no samples", "eval u8.bin --dataset none", "DATA001", "*.npy, *.npz, *.png"),
]


@pytest.mark.parametrize(
    ("words", "code", "advice"),
    [row[1:] for row in MISTAKES],
    ids=[row[0] for row in MISTAKES],
)
def test_a_mistake_gives_a_hint(
    command: Callable[..., Result], words: str, code: str, advice: str
) -> None:
    result = command(*words.split(), input="x" if "- --input -" in words else None)
    assert result.exit_code == 2, result.output
    (head, *rest) = [line for line in result.stderr.splitlines() if not line.startswith("note:")]
    assert f"error[{code}]" in head
    assert advice in "\n".join((head, *rest))
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("package", "words", "hint"),
    [
        ("PIL", "run u8.bin --input photo.png", get_install_command("image")),
        ("tflite", "run model.tflite --input photo.png", get_install_command("tflite")),
    ],
)
def test_a_missing_package_is_named(
    command: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    words: str,
    hint: str,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    result = command(*words.split())
    assert (result.exit_code, "error[PKG001]" in result.stderr) == (2, True)
    assert f"hint: Run `{hint}`." in result.stderr


def test_an_image_of_another_size_is_not_a_batch(command: Callable[..., Result]) -> None:
    result = command("run", "u8.bin", "--input", "larger.npy")
    assert result.exit_code == 2
    assert "found: 1x3x8x8, 192 values" in result.stderr
    assert "samples" not in result.stderr


def test_a_path_with_a_blank_is_accepted(command: Callable[..., Result]) -> None:
    result = command("run", "u8.bin", "--input", "a photo.png", "--engine", "reference")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == "note: images are converted to NHWC RGB, unscaled pixels\n"


def test_a_model_and_an_image_give_the_best_classes(
    command: Callable[..., Result], folder: Path
) -> None:
    assert command("compile", "model.tflite", "-o", "two.bin").exit_code == 0
    result = command("run", "two.bin", "--input", "photo.png", "--engine", "reference")
    assert result.exit_code == 0
    (best,) = [line.strip() for line in result.stdout.splitlines() if "top 3" in line]
    report = nmpsim.Device(engine="reference").run(nmpsim.load(folder / "two.bin"), [PIXELS[None]])
    scores = report.outputs["classes"].reshape(-1)
    assert best.startswith(f"top 3: {int(scores.argmax())} (")
