"""Draw the picture of a verification: docs/pictures/verify.png.

    python programs/verify_picture.py

A kernel of a copy of the person detection network has its axes swapped; `nmpsim verify` compares
the copy with the network in LiteRT. Needs nmpsim[reference,tflite,html,image], Chromium, and the
reference files as ``report_picture.py`` does.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from report_picture import REPOSITORY, SHARED, take_screenshot

import nmpsim

PICTURE = REPOSITORY / "docs" / "pictures" / "verify.png"
NETWORK = SHARED / "models" / "vww96_int8"
LAYER = "depthwise_conv2d_12"
HEIGHT = 640


def swap_kernel_axes(model: Path, layer: str, changed: Path) -> None:
    """Write a copy of a TFLite model in which rows and columns of a layer's kernel are swapped."""
    bundle = nmpsim.load(model)
    (name,) = (one.name for one in bundle.metadata.layers if one.display_name == layer)
    module = bundle.module()
    (operation,) = (one for one in module.instructions if one.name == name)
    stored = module.constants[operation.operands[2].name]
    kernel = stored.transpose(3, 1, 2, 0)  # TFLite stores it as [1, rows, columns, channels]
    data = model.read_bytes()
    if data.count(kernel.tobytes()) != 1:
        raise SystemExit(f"{model}: the kernel of {layer} is not found once")
    changed.write_bytes(data.replace(kernel.tobytes(), kernel.swapaxes(1, 2).tobytes()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        swap_kernel_axes(NETWORK / "model.tflite", LAYER, folder / "board.tflite")
        (folder / "original.tflite").write_bytes((NETWORK / "model.tflite").read_bytes())
        np.save(folder / "photo.npy", np.load(NETWORK / "inputs.npy")[:1])
        command = "verify board.tflite --reference original.tflite --input photo.npy"
        command += " --format html -o verify.html"
        subprocess.run([sys.executable, "-m", "nmpsim", *command.split()], cwd=folder, check=False)
        take_screenshot((folder / "verify.html").read_text("utf-8"), PICTURE, HEIGHT)
