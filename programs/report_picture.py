"""Draw the picture of an HTML report in the README: docs/pictures/mobilenet.png.

    python programs/report_picture.py                  # MobileNet from the reference files
    python programs/report_picture.py MODEL INPUTS.npy PICTURE.png

Needs nmpsim[tflite,html,image] and Chromium. The reference files are in ``shared`` beside the
repository, or in the folder that ``NMPSIM_SHARED`` names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import attrs
import numpy as np
from PIL import Image

import nmpsim
from nmpsim.views.html import make_html_page

REPOSITORY = Path(__file__).resolve().parents[1]
PICTURE = REPOSITORY / "docs" / "pictures" / "mobilenet.png"
SHARED = Path(os.environ.get("NMPSIM_SHARED", REPOSITORY.parent / "shared"))
MOBILENET = SHARED / "models" / "mobilenet_v1_0.5_160_quant"
WIDTH, HEIGHT = 1400, 846
COLOURS = 256
"""Colours of the picture's palette: a report has few."""


def make_page(model: Path, inputs: Path, title: str) -> str:
    """Run a model on the first sample of an array and return the HTML report."""
    bundle = nmpsim.load(model)
    sample = np.load(inputs)[:1]
    recorder = nmpsim.TimelineRecorder()
    device = nmpsim.Device(nmpsim.get_device(bundle))
    report = device.run(bundle, sample, save_layers=True, work=recorder)
    (name,) = (tensor.name for tensor in bundle.metadata.inputs)
    report = nmpsim.Shadow(bundle).evaluate(report, {name: sample})
    report = attrs.evolve(
        report,
        timeline=recorder.timeline(len(report.layers)),
        memory=nmpsim.memory_map(bundle),
        edges=nmpsim.layer_edges(bundle),
    )
    return make_html_page({title: report})


def take_screenshot(page: str, picture: Path, height: int = HEIGHT) -> None:
    """Write the top ``height`` pixels of a page as a PNG, with headless Chromium."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise SystemExit("Chromium is missing: apt-get install chromium")
    with tempfile.TemporaryDirectory() as name:
        source, drawn = Path(name, "report.html"), Path(name, "report.png")
        source.write_text(page, encoding="utf-8")
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
        size = f"--window-size={WIDTH},{height}"
        command = [browser, *options, size, f"--screenshot={drawn}", source.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        image = Image.open(drawn).convert("RGB")
        palette = image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        palette.save(picture, optimize=True)


def main(model: Path, inputs: Path, picture: Path, title: str) -> None:
    """Draw the report of a model's run."""
    take_screenshot(make_page(model, inputs, title), picture)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        model, inputs, picture = map(Path, sys.argv[1:])
        main(model, inputs, picture, model.stem)
    else:
        with tempfile.TemporaryDirectory() as name:
            named = Path(name, "mobilenet_v1_0.5_160_quant.tflite")
            shutil.copy(MOBILENET / "model.tflite", named)
            main(named, MOBILENET / "inputs.npy", PICTURE, "one image")
