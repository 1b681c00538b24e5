"""Several files that fill one batch."""

from __future__ import annotations

import io
import json
from pathlib import Path

import attrs
import numpy as np
import pytest
from PIL import Image
from report_samples import sample_report
from rich.console import Console

from nmpsim.bundle import Tensor
from nmpsim.cli.inputs import find_samples
from nmpsim.cli.samples import InputSample, ProgramInputs
from nmpsim.diagnostics import UserError
from nmpsim.views.batch_text import RunSummary, make_runs_document, print_batch

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
BATCH = Tensor("data", "ui8", (2, 2, 4, 3), 0, 0.5, 128)
MASK = Tensor("mask", "float", (2, 3), 0)


def runs(*arguments: object, tensors: tuple[Tensor, ...] = (BATCH,)) -> list[InputSample]:
    inputs = ProgramInputs({tensor.name: tensor for tensor in tensors})
    return find_samples([str(one) for one in arguments], inputs)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Return a folder of four images that differ by their number."""
    for number in range(4):
        Image.fromarray(PIXELS + np.uint8(number)).save(tmp_path / f"{number}.png")
    return tmp_path


def test_images_fill_batches_in_the_order_of_their_names(images: Path) -> None:
    for argument in (images, images / "*.png"):
        found = runs(argument)
        assert [[Path(file).name for file in one.files] for one in found] == [
            ["0.png", "1.png"],
            ["2.png", "3.png"],
        ]
        for number, one in enumerate(found):
            expected = [PIXELS + np.uint8(2 * number), PIXELS + np.uint8(2 * number + 1)]
            assert np.array_equal(one.load()["data"], np.stack(expected))


def test_arrays_and_raw_values_fill_batches(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", PIXELS)
    np.save(tmp_path / "1.npy", PIXELS[None] + np.uint8(1))
    (tmp_path / "2.bin").write_bytes((PIXELS + np.uint8(2)).tobytes())
    Image.fromarray(PIXELS + np.uint8(3)).save(tmp_path / "3.png")
    values = [one.load()["data"][:, 0, 0, 0].tolist() for one in runs(tmp_path / "*")]
    assert values == [[0, 1], [2, 3]]


def test_an_archive_may_hold_an_item_of_each_input(images: Path) -> None:
    for number in range(2):
        np.savez(images / f"{number}.npz", data=PIXELS, mask=np.full(3, number, np.float32))
    (one,) = runs(images / "*.npz", tensors=(BATCH, MASK))
    assert one.load()["mask"].tolist() == [[0, 0, 0], [1, 1, 1]]
    np.save(images / "mask.npy", np.zeros((2, 3), np.float32))
    found = runs(f"mask={images}/mask.npy", f"data={images}/*.png", tensors=(BATCH, MASK))
    assert [len(one.files) for one in found] == [2, 2]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (
            "[012].png",
            ("3 files with one item each", "a multiple of 2", "Leave out the last 1, or"),
        ),
        (
            "0.png",
            ("1 file with one item each", "Pass 2 files with a folder or a pattern in quotes."),
        ),
        ("[ab].npy", ("2 files per run for input 'data'", "1 file per run, as for")),
        ("[cd].npy", ("have different types", "float32")),
        ("[ef].npz", ("have different inputs", "'mask'")),
        ("g.npy", ("does not have the size", "2x2x4x3, 48 values")),
    ],
)
def test_an_incomplete_batch_is_refused(images: Path, pattern: str, words: tuple[str, ...]) -> None:
    np.save(images / "a.npy", np.zeros((2, 2, 4, 3), np.uint8))
    np.save(images / "b.npy", PIXELS)
    np.save(images / "c.npy", PIXELS)
    np.save(images / "d.npy", PIXELS.astype(np.float32))
    np.savez(images / "e.npz", data=PIXELS)
    np.savez(images / "f.npz", mask=np.zeros(3, np.float32))
    np.save(images / "g.npy", np.zeros(7, np.uint8))
    tensors = (BATCH, MASK) if "npz" in pattern else (BATCH,)
    with pytest.raises(UserError) as error:
        [one.load() for one in runs(images / pattern, tensors=tensors)]
    for word in words:
        assert word in str(error.value)


def test_each_item_has_a_line() -> None:
    report = sample_report()
    scores = attrs.evolve(
        report.output_reports[0], values=np.array([[1, 5, 2], [9, 0, 3]], np.float32), scale=None
    )
    whole = attrs.evolve(scores, name="norm", values=np.ones(3, np.float32))
    report = attrs.evolve(report, output_reports=(scores, whole))
    found = [
        RunSummary.from_report(("a.png", "b.png"), report),
        RunSummary.from_report(("c.png", "d.png"), report),
    ]
    document = make_runs_document("net", found, bundle="digest")
    assert [run["input"] for run in document["runs"]] == ["a.png", "c.png"]
    items = document["runs"][0]["items"]
    assert [one["input"] for one in items] == ["a.png", "b.png"]
    best = [[top["index"] for top in one["outputs"][scores.name]["top"]] for one in items]
    assert best == [[1, 2, 0], [0, 2, 1]]
    assert "norm" not in items[0]["outputs"]
    text = io.StringIO()
    print_batch("net", found, Console(file=text, width=120))
    lines = text.getvalue().splitlines()
    assert lines[0] == "net: 4 inputs in 2 runs"
    counted = [f"{report.cycles:,}" in line for line in lines if ".png" in line]
    assert counted == [True, False, True, False]


def test_a_run_on_one_file_has_its_cycles_and_saturated_values() -> None:
    report = sample_report()
    found = [RunSummary.from_report((name,), report) for name in ("a.png", "b.png")]
    text = io.StringIO()
    print_batch("net", found, Console(file=text, width=120))
    lines = [line for line in text.getvalue().splitlines() if ".png" in line]
    saturated = sum(layer.saturated for layer in report.layers)
    assert [line.split()[-2:] for line in lines] == [[f"{report.cycles:,}", f"{saturated:,}"]] * 2


def test_one_batch_has_a_line_for_each_file(fake, nmpsim_cli, bundle: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.int8))
    for number in range(2):
        np.save(tmp_path / f"m{number}.npy", np.full(3, number, np.float32))
    words = ("run", bundle, "--input", f"data={tmp_path}/x.npy", "--input", f"mask={tmp_path}/m*")
    result = nmpsim_cli(*words, "--format", "json")
    assert result.exit_code == 0, result.stderr
    (run,) = json.loads(result.stdout)["runs"]
    assert [Path(one["input"]).name for one in run["items"]] == ["m0.npy", "m1.npy"]
    assert fake.calls[-1]["inputs"]["mask"].tolist() == [[0, 0, 0], [1, 1, 1]]
    refused = nmpsim_cli(*words, "--shadow")
    assert (refused.exit_code, "an .npy file can contain a whole batch" in refused.stderr) == (
        2,
        True,
    )
