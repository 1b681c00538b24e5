"""Images as inputs: how pixels become a tensor's values, as Glow's image options say it.

Source of the formula and of its order: Glow's ``lib/Base/Image.cpp``,
``readPngPpmImageAndPreprocess``.
"""

from __future__ import annotations

import math
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from nmpsim.cli.input_options import MODES, ImageOptions
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.extras import missing
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.records import frozen
from nmpsim.views.text import elem_text, shape_text

if TYPE_CHECKING:
    import numpy.typing as npt
    from PIL.Image import Image

    from nmpsim.bundle.metadata import Normalization, Tensor

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp")
_FORMATS = ("PNG", "JPEG", "BMP")
_OTHER_ENDINGS = (".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_BEGINNINGS = (b"\x89PNG", b"\xff\xd8\xff")
_DEPTH_AT = 24
"""Where a PNG file says how many bits a channel has."""
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    TypeError,
    OverflowError,
    struct.error,
    zlib.error,
)
"""What Pillow raises for damaged files."""


@frozen
class ImageFormat:
    """How an input takes an image."""

    layout: str
    height: int
    width: int
    channels: int
    channel_order: str
    mode: str | None
    """None: pixels are the values."""
    mean: tuple[float, ...]
    stddev: tuple[float, ...]

    def __str__(self) -> str:
        order = f" {self.channel_order}" if self.channels == 3 else ""
        norm = ", less the mean, by the deviation" if self.mean or self.stddev else ""
        return f"{self.layout}{order}, {self.mode or 'pixels as they are'}{norm}"


def is_image(path: Path, head: bytes) -> bool:
    """Whether a file is, or claims to be, an image, also one that is not read."""
    claimed = path.suffix.lower() in (*ENDINGS, *_OTHER_ENDINGS)
    return claimed or head.startswith(_BEGINNINGS) or _is_bmp(head)


def _is_bmp(head: bytes) -> bool:
    """Two letters are too few to tell it from text; four bytes of a BMP are always 0."""
    return head[:2] == b"BM" and head[6:10] == bytes(4)


def image_format(
    tensor: Tensor,
    options: ImageOptions,
    channel_order: str,
    normalization: Normalization | None = None,
) -> ImageFormat:
    """How an input takes images.

    Args:
        tensor: the input as a user has it.
        options: what the command line says.
        channel_order: that of the program, where the options say nothing.
        normalization: likewise, what the model's file says.

    Raises:
        UserError: INPUT002 if the input is no image, or nobody says how pixels become values.
    """
    layout, (height, width, channels) = _layout(tensor, options.layout)
    for what, given in (("mean", options.mean), ("stddev", options.stddev)):
        if len(given) not in (0, 1, channels):
            raise fail(
                "ARG001",
                f"--image-{what} has a number for each channel",
                found=str(len(given)),
                expected=f"{channels}, as {tensor.name!r} has channels, or one for all",
            )
    if 0 in options.stddev:
        raise fail("ARG001", "--image-stddev is divided by", found="0", expected="another number")
    order = options.channel_order or channel_order
    mean, stddev = options.mean, options.stddev
    if not (options.mode or mean or stddev) and _applies(normalization, tensor, channels):
        mean, stddev = normalization.mean, normalization.stddev
    mode = options.mode or ("0to255" if mean or stddev else _mode(tensor))
    return ImageFormat(layout, height, width, channels, order, mode, mean, stddev)


def _applies(
    normalization: Normalization | None, tensor: Tensor, channels: int
) -> TypeGuard[Normalization]:
    """Whether what the file says is needed, and fits; bytes need nothing."""
    if normalization is None or ELEM_DTYPES[tensor.elem] == np.uint8:
        return False
    return {len(normalization.mean), len(normalization.stddev)} <= {1, channels}


def _layout(tensor: Tensor, wanted: str | None) -> tuple[str, tuple[int, int, int]]:
    """NCHW or NHWC, and height, width and channels."""
    shape = tensor.shape
    possible: dict[str, tuple[int, int, int]] = {}
    if len(shape) in (3, 4) and math.prod(shape[:-3]) == 1:
        first, second, third = shape[-3:]
        possible = {"NHWC": (first, second, third), "NCHW": (second, third, first)}
    fitting = [name for name, (_, _, channels) in possible.items() if channels in (1, 3)]
    if wanted in fitting:
        fitting = [wanted]
    if len(fitting) == 1 and wanted in (None, fitting[0]):
        return fitting[0], possible[fitting[0]]
    if len(fitting) == 2:
        raise fail(
            "INPUT002",
            f"input {tensor.name!r} may be NCHW or NHWC",
            found=shape_text(shape),
            hint="--image-layout NCHW, or NHWC",
        )
    expected = "1 or 3 channels and a batch of 1" + (f" as {wanted}" if wanted else "")
    raise fail(
        "INPUT002",
        f"input {tensor.name!r} takes no image",
        found=shape_text(shape),
        expected=expected,
        hint="leave out --image-layout" if fitting else "give it as an .npy file",
    )


def _mode(tensor: Tensor) -> str | None:
    """What nobody gave: none for bytes, else the one whose range the input's type has.

    An int8 input that is exactly as wide as a mode takes all pixels as they are, 128 less.
    """
    dtype = ELEM_DTYPES[tensor.elem]
    if dtype == np.uint8:
        return None
    if tensor.scale is not None and dtype == np.int8:
        offset = tensor.offset or 0
        low, high = tensor.scale * (-128 - offset), tensor.scale * (127 - offset)
        for mode, limits in MODES.items():
            if max(abs(low - limits[0]), abs(high - limits[1])) <= tensor.scale:
                return mode
    raise fail(
        "INPUT002",
        f"nothing says which values input {tensor.name!r} has for pixels",
        found=elem_text(tensor.elem),
        hint=f"--image-mode {'|'.join(MODES)}, as the network was trained",
    )


def read_image(path: Path, tensor: Tensor, format: ImageFormat, resize: bool) -> npt.NDArray[Any]:
    """An image in the shape of an input: uint8 as it is, or float32 values.

    Raises:
        UserError: PKG001 without Pillow; FILE001; INPUT003 for a file that is no image of 8 bits;
            INPUT002 if it is of another size or kind than the input.
    """
    pixels = _pixels(path, format, resize)
    if format.channel_order == "BGR":
        pixels = pixels[:, :, ::-1]
    values = pixels if format.mode is None else _values(pixels, format)
    if format.layout == "NCHW":
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values).reshape(tensor.shape)


def image_size(path: Path) -> tuple[int, int]:
    """Return height and width of an image, from the header of its file.

    Raises:
        UserError: PKG001 without Pillow; FILE001, INPUT003 for a file that is no image.
    """
    with _opened(path) as image:
        return image.height, image.width


def _values(pixels: npt.NDArray[Any], format: ImageFormat) -> npt.NDArray[np.float32]:
    """``(pixel - mean) / stddev * scale + bias`` in float32, channels in their final order."""
    low, high = MODES[format.mode or "0to255"]
    mean = np.array(format.mean or (0,), np.float32)
    stddev = np.array(format.stddev or (1,), np.float32)
    normal = (pixels.astype(np.float32) - mean) / stddev
    values: npt.NDArray[np.float32] = normal * np.float32((high - low) / 255) + np.float32(low)
    return values


def _pixels(path: Path, format: ImageFormat, resize: bool) -> npt.NDArray[np.uint8]:
    """uint8 [height, width, channels], in RGB."""
    kind = "RGB" if format.channels == 3 else "L"
    with _opened(path) as image:
        _check_depth(path, image)
        size = (format.width, format.height)
        if image.size != size and not resize:
            raise fail(
                "INPUT002",
                "the image is of another size",
                place=Place(str(path)),
                found=f"{image.width} x {image.height} pixels",
                expected=f"{format.width} x {format.height} pixels",
                hint="--resize makes it fit",
            )
        image = _of_kind(path, image, kind)
        if image.size != size:
            from PIL.Image import Resampling

            image = image.resize(size, Resampling.BILINEAR)
        values = np.asarray(image, np.uint8)
    return values.reshape(format.height, format.width, format.channels)


@contextmanager
def _opened(path: Path) -> Iterator[Image]:
    """The image of a file; what Pillow raises while it is read becomes an error of the user."""
    place = Place(str(path))
    try:
        from PIL import Image
    except ImportError as error:
        raise missing(error, "image", "images need the package Pillow", place=place) from error
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            # Else a file of a few bytes takes gigabytes.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.simplefilter("ignore", UserWarning)
            with Image.open(file, formats=_FORMATS) as image:
                yield image
    except UserError:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise fail(
            "INPUT003",
            "the image has too many pixels",
            place=place,
            expected=f"at most {Image.MAX_IMAGE_PIXELS:,}",
            hint="make it smaller before; --resize reads it whole, too",
        ) from error
    except _DAMAGE as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> UserError:
    place = Place(str(path))
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as problem:
        return fail("FILE001", f"cannot read the input: {problem.strerror}", place=place)
    if not head:
        return fail("INPUT003", "the file is empty", place=place, expected="an image")
    if head.startswith(_BEGINNINGS) or _is_bmp(head):
        return fail(
            "INPUT003",
            "the image is damaged",
            place=place,
            found=str(error).split("\n", 1)[0][:120],
            hint="the file may be truncated; write or copy it again",
        )
    return fail(
        "INPUT003",
        "this is no PNG, JPEG or BMP image",
        place=place,
        found=repr(head[:4]),
        hint="convert it to PNG",
    )


def _check_depth(path: Path, image: Image) -> None:
    """Pillow takes the upper half of 16 bits without a word."""
    depth = 8
    if image.format == "PNG":
        with path.open("rb") as file:
            depth = file.read(_DEPTH_AT + 1)[-1]
    if depth > 8 or image.mode.startswith(("I", "F")):
        raise _wrong_kind(path, "16 bits a channel", "8 bits", "convert it to 8 bits a channel")
    frames = getattr(image, "n_frames", 1)
    if frames > 1:
        raise _wrong_kind(path, f"{frames} frames", "one image", "save one frame as an image")


def _of_kind(path: Path, image: Image, kind: str) -> Image:
    """As RGB or L; colours are not made up, and nothing is hidden behind transparency."""
    if image.mode == "P" or "transparency" in image.info:
        image = image.convert("LA" if image.mode == "L" else "RGBA")
    if image.mode in ("RGBA", "LA"):
        low, _ = image.getchannel("A").getextrema()
        if low != 255:
            hint = "flatten it onto a background: transparent pixels have no colour"
            raise _wrong_kind(path, "transparent pixels", "an opaque image", hint)
        image = image.convert(image.mode.removesuffix("A"))
    if image.mode == "1":
        image = image.convert("L")
    if image.mode != kind:
        names = {"RGB": "colour (RGB)", "L": "grey"}
        hint = f"convert it to {'RGB' if kind == 'RGB' else 'grey'}"
        raise _wrong_kind(path, names.get(image.mode, image.mode), f"{names[kind]}", hint)
    return image


def _wrong_kind(path: Path, found: str, expected: str, hint: str) -> UserError:
    return fail(
        "INPUT002",
        "the image is of another kind than the input",
        place=Place(str(path)),
        found=found,
        expected=expected,
        hint=hint,
    )
