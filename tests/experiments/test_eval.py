"""The digits' accuracy, from every kind of data set; going on; what cannot be used."""

import csv
import json

import numpy as np
import pytest

import nmpsim
from nmpsim.cli import dataset
from nmpsim.experiments import accuracy, process_pool, worker


def test_accuracy_of_the_digits_equals_the_reference(cli, digits, digits_bin, tmp_path):
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
    assert f"450 of 450 samples were already in {out}" in text.stderr
    assert "98.0% (441 of 450)" in text.stdout


def test_results_equal_single_runs(digits, digits_bin):
    with np.load(digits / "testset.npz") as data:
        images, labels = data["x"][:3], data["labels"][:3]
    found = nmpsim.evaluate(digits_bin, {"data": images}, labels, jobs=1)
    bundle, device = nmpsim.load(digits_bin), nmpsim.Device()
    for answer, image in zip(found.predictions, images, strict=True):
        report = device.run(bundle, {"data": image[None]})
        assert answer.best == report.outputs["prob__1"].argmax()
        assert answer.cycles == report.cycles


@pytest.mark.parametrize(("jobs", "seconds"), [(None, 2.0), (1, 0.0), (None, 0.0), (2, 2.0)])
def test_little_work_starts_no_processes(monkeypatch, digits, digits_bin, jobs, seconds):
    class ProcessesError(Exception):
        """Others are started."""

    def start_processes(shared, workers):
        assert workers > 1
        raise ProcessesError

    monkeypatch.setattr(process_pool, "open_process_pool", start_processes)
    monkeypatch.setattr(process_pool, "count_available_processors", lambda: 2)
    monkeypatch.setattr(accuracy, "START_SECONDS", seconds)
    with np.load(digits / "testset.npz") as data:
        given = {"data": data["x"][:40]}, data["labels"][:40]
    if (jobs, seconds) in ((None, 0.0), (2, 2.0)):
        with pytest.raises(ProcessesError):
            nmpsim.evaluate(digits_bin, *given, jobs=jobs)
    else:
        found = nmpsim.evaluate(digits_bin, *given, jobs=jobs)
        assert [answer.index for answer in found.predictions] == list(range(40))
        assert worker._load_device.cache_info().currsize == 0, "it is released"


def test_samples_without_a_label_are_left_out(cli, digits, digits_bin, tmp_path):
    with np.load(digits / "testset.npz") as data:
        images, labels = data["x"][:6], data["labels"][:6].astype(np.int8)
    labels[[0, 4]] = -1
    np.savez(tmp_path / "some.npz", x=images, labels=labels)
    (tmp_path / "l.csv").write_text("".join(f"{label}\n" for label in labels))
    words = ("eval", digits_bin, "--jobs", 1, "--dataset", tmp_path / "some.npz", "--labels")
    found = json.loads(cli(*words, "labels", "--format", "json").stdout)
    assert found["answers"]["index"] == [1, 2, 3, 5]
    assert (found["dataset_samples"], found["samples"], found["unlabelled"]) == (6, 4, 2)
    assert json.loads(cli(*words, tmp_path / "l.csv", "--format", "json").stdout) == found
    assert "of 6 in the data set, 2 of them without a label" in cli(*words, "labels").stdout


def test_classes_have_names_and_confusions(cli, digits, digits_bin, tmp_path):
    with np.load(digits / "testset.npz") as data:
        np.savez(tmp_path / "d.npz", x=data["x"][:8], labels=[3, 3, 3, 3, 3, 3, 3, 1])
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "=8*1", "größe"]
    (tmp_path / "names.txt").write_bytes("\r\n".join(names).encode())
    words = ["eval", digits_bin, "--jobs", 1, "--dataset", tmp_path / "d.npz"]
    words += ["--labels", "labels", "--classes", tmp_path / "names.txt"]
    table = tmp_path / "a b.csv"
    found = json.loads(cli(*words, "--confusion", table, "--format", "json").stdout)
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    shown = [name.replace("=8*1", "'=8*1") for name in names]  # no formula of a spreadsheet
    assert rows[0] == ["class", *shown]
    assert [row[0] for row in rows[1:]] == shown
    matrix = np.array([row[1:] for row in rows[1:]], int)
    assert matrix.sum(1)[[1, 3]].tolist() == [1, 7]
    for best in found["answers"]["best"][:7]:
        matrix[3, best] -= 1
    matrix[1, found["answers"]["best"][7]] -= 1
    assert not matrix.any()
    text = cli(*words).stdout.partition("most frequent mistakes")[2]
    assert "three" in text

    (tmp_path / "names.txt").write_text("one\n\n")
    done = cli(*words)
    assert done.exit_code == 2
    assert "names.txt: error[DATA001]" in done.stderr
    assert "2 lines, line 2 is empty" in done.stderr
    assert "10 lines" in done.stderr
    for content, said in (
        (b"\xff", "the file of classes is not UTF-8 text"),
        (None, "error[FILE001]"),
    ):
        path = tmp_path / "names.txt"
        path.unlink() if content is None else path.write_bytes(content)
        done = cli(*words)
        assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


def test_an_endless_text_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset, "MAX_TEXT_BYTES", 8)
    (tmp_path / "l.csv").write_text("1\n" * 5)
    with pytest.raises(nmpsim.UserError, match=r"DATA001.*file of classes is too large"):
        dataset.read_class_names(tmp_path / "l.csv", 5)


def test_folders_are_data_sets(cli, digits, digits_bin, tmp_path):
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
        ("nothing", "an existing file, or an array of the data set"),
        ("x", "the labels are not integers"),
        (None, "the samples have no labels"),
        ("short.csv", "the number of labels differs from the number of samples"),
        ("high.npy", "is not a class of the program"),
        ("none.npy", "no sample has a label"),
    ],
)
def test_unusable_labels_are_refused(cli, digits, digits_bin, tmp_path, labels, message):
    (tmp_path / "short.csv").write_text("1\n2\n")
    np.save(tmp_path / "high.npy", np.full(450, 10))
    np.save(tmp_path / "none.npy", np.full(450, -1))
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
    assert "the data set has no samples" in cli(
        "eval", digits_bin, "--dataset", tmp_path / "none.npz", "--labels", "labels"
    ).stderr  # fmt: skip


def test_an_unusable_sample_is_named(cli, digits, digits_bin, tmp_path):
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


def test_a_foreign_results_file_is_not_changed(cli, digits, digits_bin, tmp_path):
    out = tmp_path / "out.json"
    out.write_text('{"schema": "another"}')
    words = ("--dataset", digits / "testset.npz", "--labels", "labels", "-o", out)
    done = cli("eval", digits_bin, *words)
    assert done.exit_code == 2
    assert "RESULT001" in done.stderr
    assert out.read_text() == '{"schema": "another"}'


def test_results_of_other_layers_are_refused(cli, digits, digits_bin, tmp_path):
    out, samples = tmp_path / "out.json", tmp_path / "one.npz"
    with np.load(digits / "testset.npz") as data:
        np.savez(samples, x=data["x"][:1], labels=data["labels"][:1])
    words = ("eval", digits_bin, "--jobs", 1, "--dataset", samples, "--labels", "labels", "-o", out)
    assert cli(*words).exit_code == 0
    document = json.loads(out.read_text())
    name = document["layers"][1]["name"]
    document["layers"][1]["name"] = "other"
    out.write_text(json.dumps(document))
    done = cli(*words)
    assert done.exit_code == 2
    assert f"found: layer 1, other\n  expected: layer 1, {name}\n" in done.stderr


def test_a_batch_is_refused_with_its_cause(digits):
    batch = nmpsim.compile(digits / "digits.lir.txt", digits / "digits.npz", images_per_core=1)
    with np.load(digits / "testset.npz") as data, pytest.raises(nmpsim.UserError) as refused:
        nmpsim.evaluate(batch, {"data": data["x"][:2]}, data["labels"][:2], jobs=1)
    assert "without --batch-cores" in str(refused.value)
