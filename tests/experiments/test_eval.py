"""The digits' accuracy, from every kind of data set; going on; what cannot be used."""

import json

import numpy as np
import pytest

import nmpsim


def test_the_digits_are_as_right_as_their_reference(cli, digits, digits_bin, tmp_path):
    out = tmp_path / "out.json"
    words = ("eval", digits_bin, "--dataset", digits / "testset.npz", "--labels", "labels")
    part = cli(*words, "--limit", 20, "-o", out, "--jobs", 2)
    assert part.exit_code == 0, part.stderr
    assert len(json.loads(out.read_text())["answers"]["index"]) == 20
    done = cli(*words, "-o", out, "--jobs", 2, "--format", "json")
    found = json.loads(done.stdout)
    assert found == json.loads(out.read_text())
    assert found["right"] == {"1": 441, "5": 450}
    assert found["cycles"]["min"] == found["cycles"]["max"]
    assert found["answers"]["index"] == list(range(450))
    cut = {layer["name"]: (layer["saturated"], layer["elements"]) for layer in found["layers"]}
    assert cut["fc__1"] == (1, 4500)
    text = cli(*words, "-o", out)
    assert f"450 of 450 samples were in {out} already" in text.stderr
    assert "98.0% (441 of 450)" in text.stdout


def test_answers_are_those_of_single_runs(digits, digits_bin):
    with np.load(digits / "testset.npz") as data:
        images, labels = data["x"][:3], data["labels"][:3]
    found = nmpsim.evaluate(digits_bin, {"data": images}, labels, jobs=1)
    bundle, device = nmpsim.load(digits_bin), nmpsim.Device()
    for answer, image in zip(found.answers, images, strict=True):
        report = device.run(bundle, {"data": image[None]})
        assert answer.best == report.outputs["prob__1"].argmax()
        assert answer.cycles == report.cycles


def test_folders(cli, digits, digits_bin, tmp_path):
    by_class, flat = tmp_path / "by class", tmp_path / "flat"
    flat.mkdir()
    for digit in (3, 8):
        (by_class / str(digit)).mkdir(parents=True)
        image = np.load(digits / "images" / f"{digit}.npy")
        np.save(by_class / str(digit) / "one.npy", image)
        np.savez(flat / f"{digit}.npz", **{"input/data": image[0]})
    words = ("eval", digits_bin, "--jobs", 1, "--format", "json", "--top", 1, "--dataset")
    found = json.loads(cli(*words, by_class).stdout)
    assert [(one["label"], one["samples"]) for one in found["classes"]] == [(3, 1), (8, 1)]
    labels = tmp_path / "labels.csv"
    labels.write_bytes(b"file,label\r\n8.npz,8\r\n3.npz,3\r\n")
    assert json.loads(cli(*words, flat, "--labels", labels).stdout)["right"] == found["right"]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("nothing", "no such array in the data set"),
        ("x", "whole numbers"),
        (None, "does not say what its samples are"),
        ("short.csv", "not one label for each sample"),
        ("high.npy", "is no class of the program"),
    ],
)
def test_labels_that_cannot_be_used(cli, digits, digits_bin, tmp_path, labels, message):
    (tmp_path / "short.csv").write_text("1\n2\n")
    np.save(tmp_path / "high.npy", np.full(450, 10))
    words = ["eval", digits_bin, "--dataset", digits / "testset.npz"]
    if labels is not None:
        words += ["--labels", tmp_path / labels if "." in labels else labels]
    done = cli(*words)
    assert done.exit_code == 2
    assert "DATA001" in done.stderr
    assert message in done.stderr


def test_errors_name_the_file_of_the_labels(cli, digits, digits_bin, tmp_path):
    with np.load(digits / "testset.npz") as data:
        np.savez(tmp_path / "wrong.npz", x=data["x"][:2], labels=data["labels"][:2] - 100)
        np.savez(tmp_path / "none.npz", x=data["x"][:0], labels=data["labels"][:0])
    (tmp_path / "short.csv").write_text("1\n")
    for words in (
        (tmp_path / "wrong.npz", "--labels", "labels"),
        (tmp_path / "none.npz", "--labels", "labels"),
        (digits / "testset.npz", "--labels", tmp_path / "short.csv"),
    ):
        done = cli("eval", digits_bin, "--dataset", *words)
        assert done.exit_code == 2
        place = words[0] if words[-1] == "labels" else words[-1]
        assert done.stderr.startswith(f"{place}: error[DATA001]")
    assert "there are no samples" in cli(
        "eval", digits_bin, "--dataset", tmp_path / "none.npz", "--labels", "labels"
    ).stderr  # fmt: skip


def test_a_sample_that_no_run_takes_is_named(cli, digits, digits_bin, tmp_path):
    with np.load(digits / "testset.npz") as data:
        images, labels = data["x"][:4].copy(), data["labels"][:4]
    images[2, 0, 0, 0] = np.nan
    np.savez(tmp_path / "nan.npz", x=images, labels=labels)
    words = ("eval", digits_bin, "--jobs", 1, "--dataset")
    done = cli(*words, tmp_path / "nan.npz", "--labels", "labels")
    assert done.exit_code == 2
    assert "sample 2 (counted from 0): error[INPUT002]" in done.stderr
    (tmp_path / "by class" / "7").mkdir(parents=True)
    np.save(tmp_path / "by class" / "7" / "seven.npy", np.zeros((3, 8, 8), np.float32))
    done = cli(*words, tmp_path / "by class")
    assert done.exit_code == 2
    assert "seven.npy: error[INPUT002]" in done.stderr


def test_a_file_of_something_else_stays(cli, digits, digits_bin, tmp_path):
    out = tmp_path / "out.json"
    out.write_text('{"schema": "another"}')
    words = ("--dataset", digits / "testset.npz", "--labels", "labels", "-o", out)
    done = cli("eval", digits_bin, *words)
    assert done.exit_code == 2
    assert "RESULT001" in done.stderr
    assert out.read_text() == '{"schema": "another"}'
