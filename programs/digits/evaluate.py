"""Accuracy of the quantized network on the simulated device, over the test set.

python programs/digits/evaluate.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import nmpsim

FOLDER = Path(__file__).parent


def count_right(folder: Path = FOLDER) -> tuple[int, int]:
    """Test images that the device names as their label, and all test images."""
    compiled = nmpsim.compile(folder / "digits.lir.txt", folder / "digits.npz")
    with np.load(folder / "testset.npz") as testset, tempfile.TemporaryDirectory() as scratch:
        images, labels = testset["x"], testset["labels"]
        path = Path(scratch) / "digits.bin"
        nmpsim.save(compiled, path)
        bundle, device = nmpsim.load(path), nmpsim.Device()
        answers = [
            int(device.run(bundle, {"data": image[None]}).outputs["prob__1"].argmax())
            for image in images
        ]
    return int((np.array(answers) == labels).sum()), len(labels)


if __name__ == "__main__":
    right, total = count_right()
    print(f"device: {right}/{total} = {100 * right / total:.2f} %")
