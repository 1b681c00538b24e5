"""Images as inputs of a run."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
from PIL import Image

from nmpsim.bundle.metadata import Tensor
from nmpsim.cli.options import ImageOptions
from nmpsim.cli.samples import ProgramInputs

from ..target import Target, allow_errors, write_file

_SHAPE = (1, 4, 5, 3)
_INPUTS = ProgramInputs(
    {"x": Tensor("x", "float", _SHAPE, 0)}, ImageOptions(mode="0to1", resize=True)
)


def run(data: bytes) -> None:
    """Read an image with the shape of an input."""
    with allow_errors("INPUT", "FILE001"):
        values = _INPUTS.read_image("x", write_file(data, "image.png"))
        assert values.shape == _SHAPE
        assert np.isfinite(values).all()


def seeds() -> Iterator[bytes]:
    """Yield images of each supported file format and pixel format."""
    for kind in ("RGB", "L", "RGBA", "P", "1", "I;16"):
        for name in ("PNG", "JPEG", "BMP"):
            made = io.BytesIO()
            try:
                Image.new(kind, (5, 4)).save(made, name)
            except OSError:
                continue  # a format without this kind
            yield made.getvalue()


TARGET = Target(run, seeds, most_bytes=1 << 13)
