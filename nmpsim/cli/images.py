"""Conversion of images to input tensors, by the rules of Glow's image options.

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
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from nmpsim.arrays import Array
from nmpsim.cli.options import PIXEL_RANGES, ImageOptions
from nmpsim.diagnostics import UserError, fail
from nmpsim.extras import require_extra
from nmpsim.input_files import CHECK_FILE_HINT
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.records import frozen
from nmpsim.views.text import format_elem, format_shape

if TYPE_CHECKING:
    import numpy.typing as npt
    from PIL.Image import Image

    from nmpsim.bundle.metadata import Normalization, Tensor

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp")
_FORMATS = ("PNG", "JPEG", "BMP")
_OTHER_ENDINGS = (".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_BEGINNINGS = (b"\x89PNG", b"\xff\xd8\xff")
_DEPTH_AT = 24
"""Offset of the bits per channel in a PNG file."""
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
"""Exceptions of Pillow for damaged files."""


@frozen
class ImageFormat:
    """Format of the images for one input: size, channel order and normalization."""

    layout: str
    height: int
    width: int
    channels: int
    channel_order: str
    mode: str | None
    """Value range; None if pixels are the values."""
    mean: tuple[float, ...]
    stddev: tuple[float, ...]

    def __str__(self) -> str:
        order = f" {self.channel_order}" if self.channels == 3 else ""
        norm = ", normalized by mean and deviation" if self.mean or self.stddev else ""
        return f"{self.layout}{order}, {self.mode or 'unscaled pixels'}{norm}"


def is_image(path: Path, head: bytes) -> bool:
    """Return whether a file is an image by its suffix or by its first bytes ``head``."""
    claimed = path.suffix.lower() in (*ENDINGS, *_OTHER_ENDINGS)
    return claimed or head.startswith(_BEGINNINGS) or _is_bmp(head)


def _is_bmp(head: bytes) -> bool:
    """Return whether a file is a BMP, by its two letters and by four bytes that are always 0."""
    return head[:2] == b"BM" and head[6:10] == bytes(4)


def choose_image_format(
    tensor: Tensor,
    options: ImageOptions,
    channel_order: str,
    normalization: Normalization | None = None,
) -> ImageFormat:
    """Choose the image format for an input by its shape, the options and the model's file.

    Parameters
    ----------
    tensor
        The input in the user's layout.
    options
        The options of the command line.
    channel_order
        Order of the channels without an option.
    normalization
        Normalization of the model's file, used without an option.

    Raises
    ------
    UserError
        INPUT002 if the input does not accept images, or the value range of pixels is unknown.
    """
    layout, (height, width, channels) = _layout(tensor, options.layout)
    for what, given in (("mean", options.mean), ("stddev", options.stddev)):
        if len(given) not in (0, 1, channels):
            raise fail(
                "ARG001",
                f"--image-{what} does not match the channels of input {tensor.name!r}",
                found=f"{len(given)} numbers",
                expected=f"1 number, or {channels}, one per channel",
            )
    if 0 in options.stddev:
        raise fail(
            "ARG001",
            "--image-stddev contains 0",
            found=", ".join(f"{number:g}" for number in options.stddev),
            expected="numbers other than 0",
        )
    order = options.channel_order or channel_order
    mean, stddev = options.mean, options.stddev
    if not (options.mode or mean or stddev) and _applies(normalization, tensor, channels):
        mean, stddev = normalization.mean, normalization.stddev
    mode = options.mode or ("0to255" if mean or stddev else _default_mode(tensor))
    return ImageFormat(layout, height, width, channels, order, mode, mean, stddev)


def _applies(
    normalization: Normalization | None, tensor: Tensor, channels: int
) -> TypeGuard[Normalization]:
    """Return whether a normalization fits an input and is needed, which it is not for bytes."""
    if normalization is None or ELEM_DTYPES[tensor.elem] == np.uint8:
        return False
    return {len(normalization.mean), len(normalization.stddev)} <= {1, channels}


def _layout(tensor: Tensor, wanted: str | None) -> tuple[str, tuple[int, int, int]]:
    """Return NCHW or NHWC, and height, width and channels."""
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
            f"the layout of input {tensor.name!r} is ambiguous",
            found=format_shape(shape),
            hint="Pass --image-layout NCHW or NHWC.",
        )
    expected = "1 or 3 channels and a batch of 1" + (f" as {wanted}" if wanted else "")
    raise fail(
        "INPUT002",
        f"input {tensor.name!r} does not accept images",
        found=format_shape(shape),
        expected=expected,
        hint="Leave out --image-layout." if fitting else "Pass an .npy file.",
    )


def _default_mode(tensor: Tensor) -> str | None:
    """Return the default mode: None for bytes, else the mode with the range of the input's type.

    An int8 input with exactly the range of a mode holds every pixel value, less 128.
    """
    dtype = ELEM_DTYPES[tensor.elem]
    if dtype == np.uint8:
        return None
    if tensor.scale is not None and dtype == np.int8:
        offset = tensor.offset or 0
        low, high = tensor.scale * (-128 - offset), tensor.scale * (127 - offset)
        for mode, limits in PIXEL_RANGES.items():
            if max(abs(low - limits[0]), abs(high - limits[1])) <= tensor.scale:
                return mode
    raise fail(
        "INPUT002",
        f"the value range of pixels is unknown for input {tensor.name!r}",
        found=format_elem(tensor.elem),
        hint=f"Pass --image-mode {'|'.join(PIXEL_RANGES)}, as the network was trained.",
    )


def read_image(path: Path, tensor: Tensor, format: ImageFormat, resize: bool) -> Array:
    """Read an image in the shape of an input, as uint8 pixels or float32 values.

    Raises
    ------
    UserError
        PKG001 without Pillow; FILE001; INPUT003 for an unreadable image; INPUT002 for another size
        or kind than the input's.
    """
    pixels = _pixels(path, format, resize)
    if format.channel_order == "BGR":
        pixels = pixels[:, :, ::-1]
    values = pixels if format.mode is None else _values(pixels, format)
    if format.layout == "NCHW":
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values).reshape(tensor.shape)


def read_image_size(path: Path) -> tuple[int, int]:
    """Read the height and width of an image, in pixels, from the header of its file.

    Raises
    ------
    UserError
        PKG001 without Pillow; FILE001; INPUT003 for an unreadable image.
    """
    with _open(path) as image:
        return image.height, image.width


def _values(pixels: Array, format: ImageFormat) -> npt.NDArray[np.float32]:
    """Return ``(pixel - mean) / stddev * scale + bias`` in float32, channels in final order."""
    low, high = PIXEL_RANGES[format.mode or "0to255"]
    mean = np.array(format.mean or (0,), np.float32)
    stddev = np.array(format.stddev or (1,), np.float32)
    normal = (pixels.astype(np.float32) - mean) / stddev
    values: npt.NDArray[np.float32] = normal * np.float32((high - low) / 255) + np.float32(low)
    return values


def _pixels(path: Path, format: ImageFormat, resize: bool) -> npt.NDArray[np.uint8]:
    """Return uint8 [height, width, channels], in RGB order."""
    kind = "RGB" if format.channels == 3 else "L"
    with _open(path) as image:
        _check_depth(path, image)
        size = (format.width, format.height)
        if image.size != size and not resize:
            raise fail(
                "INPUT002",
                "the image does not have the size of the input",
                place=path,
                found=f"{image.width} x {image.height} pixels",
                expected=f"{format.width} x {format.height} pixels",
                hint="Pass --resize, or resize the image.",
            )
        image = _convert(path, image, kind)
        if image.size != size:
            from PIL.Image import Resampling

            image = image.resize(size, Resampling.BILINEAR)
        values = np.asarray(image, np.uint8)
    return values.reshape(format.height, format.width, format.channels)


@contextmanager
def _open(path: Path) -> Iterator[Image]:
    """Open an image; exceptions of Pillow become UserError."""
    with require_extra("image", "images need the package Pillow", place=path):
        from PIL import Image
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            # A file of a few bytes could take gigabytes.
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
            place=path,
            found=str(error).partition(", could")[0],
            expected=f"at most {Image.MAX_IMAGE_PIXELS:,} pixels",
            hint="Scale the image down before passing it; --resize reads all pixels first.",
        ) from error
    except _DAMAGE as error:
        raise _damage_error(path, error) from error


def _damage_error(path: Path, error: Exception) -> UserError:
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as problem:
        message, hint = f"cannot read the input: {problem.strerror}", CHECK_FILE_HINT
        return fail("FILE001", message, place=path, hint=hint)
    if not head:
        return fail(
            "INPUT003", "the file is empty", place=path, found="0 bytes", expected="an image"
        )
    if head.startswith(_BEGINNINGS) or _is_bmp(head):
        return fail(
            "INPUT003",
            "the image is damaged",
            place=path,
            found=str(error).split("\n", 1)[0][:120],
            hint="Write or copy the file again; it may be truncated.",
        )
    return fail(
        "INPUT003",
        "the file is not an image",
        place=path,
        found=f"the bytes {head[:4]!r}",
        expected="a PNG, JPEG or BMP image",
        hint="Convert the image to PNG.",
    )


def _check_depth(path: Path, image: Image) -> None:
    """Raise UserError for 16-bit channels, which Pillow truncates, and for several frames."""
    depth = 8
    if image.format == "PNG":
        with path.open("rb") as file:
            depth = file.read(_DEPTH_AT + 1)[-1]
    if depth > 8 or image.mode.startswith(("I", "F")):
        raise _kind_error(
            path,
            "16 bits per channel",
            "8 bits per channel",
            "Convert the image to 8 bits per channel.",
        )
    frames = getattr(image, "n_frames", 1)
    if frames > 1:
        raise _kind_error(path, f"{frames} frames", "one image", "Save one frame as an image.")


def _convert(path: Path, image: Image, kind: str) -> Image:
    """Convert an image to RGB or L. Raises UserError if colours or transparency would be lost."""
    if image.mode == "P" or "transparency" in image.info:
        image = image.convert("LA" if image.mode == "L" else "RGBA")
    if image.mode in ("RGBA", "LA"):
        low, _ = image.getchannel("A").getextrema()
        if low != 255:
            hint = "Flatten the image onto a background."
            raise _kind_error(path, "transparent pixels", "an opaque image", hint)
        image = image.convert(image.mode.removesuffix("A"))
    if image.mode == "1":
        image = image.convert("L")
    if image.mode != kind:
        names = {"RGB": "colour pixels (RGB)", "L": "grey pixels"}
        hint = f"Convert the image to {'RGB' if kind == 'RGB' else 'grey'}."
        found = names.get(image.mode, f"pixels of mode {image.mode}")
        raise _kind_error(path, found, names[kind], hint)
    return image


def _kind_error(path: Path, found: str, expected: str, hint: str) -> UserError:
    return fail(
        "INPUT002",
        f"the image has {found}",
        place=path,
        found=found,
        expected=expected,
        hint=hint,
    )
