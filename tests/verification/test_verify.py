"""Compare a program with a reference that a stand-in runtime runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import jsonschema
import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner, Result

import nmpsim
from nmpsim.bundle import Bundle
from nmpsim.cli.app import app
from nmpsim.references import live
from nmpsim.references.runtime import ReferenceInput
from nmpsim.report.data import RunReport

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "programs" / "digits"
IMAGE = DIGITS / "images" / "7.npy"
TFLITE = b"\x1c\0\0\0TFL3"
Tensors = dict[str, npt.NDArray[np.int8]]


class FakeRuntime:
    """Runtime that returns the results of a run of nmpsim, changed by a function."""

    name = "fake runtime 1.0"
    multiplies_pairs = True

    def __init__(self, bundle: Bundle, tensors: Tensors) -> None:
        (data,) = bundle.metadata.user_inputs
        (answer,) = bundle.metadata.outputs
        self.inputs = (ReferenceInput("another name", np.dtype(np.float32), data.shape),)
        self.output_names = (answer.name,)
        self.tensors = tensors
        self.given: Mapping[str, npt.NDArray[np.float32]] = {}

    def run(
        self, inputs: Mapping[str, npt.NDArray[np.float32]], float_names: Collection[str]
    ) -> Tensors:
        self.given = inputs
        return self.tensors

    def run_variants(self, inputs: Mapping[str, npt.NDArray[np.float32]]) -> dict[str, Tensors]:
        (name,) = self.output_names
        return {"other kernels": {name: self.tensors.get("variant", self.tensors[name])}}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "net.bin"
    nmpsim.save(nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz"), path)
    return path


@pytest.fixture(scope="module")
def bundle(program: Path) -> Bundle:
    return nmpsim.load(program)


@pytest.fixture(scope="module")
def report(bundle: Bundle) -> RunReport:
    return nmpsim.Device(threads=1).run(bundle, [np.load(IMAGE)], save_layers=True)


@pytest.fixture
def tensors(report: RunReport) -> Tensors:
    saved = {key.partition(":")[2]: one.copy() for key, one in report.layer_outputs.items()}
    return saved | {name: one.copy() for name, one in report.outputs.items()}


@pytest.fixture
def verify(
    bundle: Bundle,
    program: Path,
    tensors: Tensors,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Result]:
    """Return a function that runs the command with the tensors as those of the reference."""
    runtime = FakeRuntime(bundle, tensors)
    monkeypatch.setattr(live, "RuntimeProcess", lambda load, path, limits: runtime)
    model = tmp_path / "net.tflite"
    model.write_bytes(TFLITE)

    def run(
        *words: object,
        input: Path = IMAGE,
        command: str = "verify",
        options: Sequence[str] = ("--reference",),
    ) -> Result:
        given = (command, program, *options, model, "--input", input, *words)
        return CliRunner().invoke(app, list(map(str, given)))

    return run


def test_equal_runs_pass(verify: Callable[..., Result]) -> None:
    found = verify()
    assert found.exit_code == 0, found.stderr
    assert "fake runtime 1.0" in found.stdout
    assert "8 of 8 layers compared" in found.stdout
    assert "all equal to the bit" in found.stdout


def test_a_wrong_layer_is_found_in_isolation(
    verify: Callable[..., Result], tensors: Tensors
) -> None:
    tensors["conv2__2"][0, 1, 2, 3] += 2
    found = verify("--all")
    assert found.exit_code == 1, found.stderr
    assert "first layer wrong by itself: conv2__2\n" in found.stdout
    assert "  1 of 512 elements differ, at most 2 units:" in found.stdout
    assert "at [0, 1, 2, 3]" in found.stdout
    assert "answer: unchanged" in found.stdout


def test_the_document_follows_its_schema(verify: Callable[..., Result], tensors: Tensors) -> None:
    del tensors["pool1__2"]
    tensors["fc__1"][0, 3] -= 1
    tensors["prob__1"][0, 4] = 1
    found = verify("--format", "json")
    assert found.exit_code == 1, found.stderr
    document = json.loads(found.stdout)
    schema = json.loads((ROOT / "nmpsim" / "schemas" / "verify.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    (sample,) = document["samples"]
    assert (document["equal"], sample["compared"], sample["first_wrong"]) == (False, 7, "fc__1")
    assert sample["layers"][2]["problem"] == "not in the reference"
    assert [layer["name"] for layer in sample["layers"] if layer["difference"]][-2:] == [
        "fc__1_dequantize",
        "prob",
    ]
    assert (sample["outputs"][0]["best"], sample["outputs"][0]["reference_best"]) == (7, 4)


def test_differences_within_the_tolerance_are_equal(
    verify: Callable[..., Result], tensors: Tensors
) -> None:
    tensors["conv2__2"][0, 1, 2, 3] += 1
    assert verify("--within", 1).exit_code == 0


def test_layers_and_layout_can_be_chosen(verify: Callable[..., Result], tensors: Tensors) -> None:
    for name in tensors.keys() - {"prob__1", "conv2__2"}:
        del tensors[name]
    tensors["other"] = tensors["conv2__2"].transpose(0, 3, 1, 2)
    tensors["conv2__2"] = tensors["conv2__2"] + 2
    assert verify("--map", "other=conv2__2", "--layout", "nchw").exit_code == 0


def test_other_settings_of_the_runtime_are_compared(
    verify: Callable[..., Result], tensors: Tensors
) -> None:
    tensors["variant"] = tensors["prob__1"].copy()
    tensors["variant"][0, 1] += 2
    found = verify()
    assert found.exit_code == 0, found.stderr
    assert "note: fake runtime 1.0 with other kernels gives another answer: 1 of 10" in found.stdout
    assert "top-1 is 1, not 7" in found.stdout


def test_the_page_shows_program_and_reference_side_by_side(
    verify: Callable[..., Result], tensors: Tensors
) -> None:
    value = int(tensors["conv2__2"][0, 1, 2, 3])
    tensors["conv2__2"][0, 1, 2, 3] += 2
    found = verify("--format", "html")
    assert found.exit_code == 1, found.stderr
    assert "<h1>Verification of net.bin</h1>" in found.stdout
    assert '<p class="verdict">first layer wrong by itself: conv2__2</p>' in found.stdout
    assert f'data-value="{value}">{value}<' in found.stdout
    assert f'data-value="{value + 2}">{value + 2}<' in found.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("debug -c diverge --reference", "conv2__2 is the first layer that differs"),
        ("check --expect-layers", "conv2__2"),
    ],
)
def test_other_commands_run_a_model_as_reference(
    verify: Callable[..., Result], tensors: Tensors, program: Path, words: str, text: str
) -> None:
    tensors["conv2__2"][0, 1, 2, 3] += 2
    command, *options = words.split()
    found = verify(command=command, options=options)
    assert text in found.stdout, found.stderr


def test_reduce_runs_a_model_as_reference(
    verify: Callable[..., Result], tensors: Tensors, tmp_path: Path
) -> None:
    tensors["conv2__2"][0, 1, 2, 3] += 2
    found = verify("-o", tmp_path / "part", command="reduce", options=["--reference"])
    assert found.exit_code == 0, found.stderr
    assert "fails: conv2__2 differs" in found.stderr


def test_a_reference_of_another_network_is_refused(
    verify: Callable[..., Result], tensors: Tensors
) -> None:
    for name, values in tensors.items():
        tensors[name] = np.concatenate([values, values], -1)
    found = verify()
    assert found.exit_code == 2, found.stdout
    assert "error[DIFF001]" in found.stderr


def test_each_file_of_a_folder_is_verified(verify: Callable[..., Result], tmp_path: Path) -> None:
    """The reference has the results for the first file."""
    (tmp_path / "images").mkdir()
    for number in (7, 8):
        image = np.load(DIGITS / "images" / f"{number}.npy")
        np.save(tmp_path / "images" / f"{number}.npy", image)
    found = verify(input=tmp_path / "images")
    assert found.exit_code == 1, found.stderr
    assert "1 of 2 inputs equal to the bit, 1 different" in found.stdout
    assert "8.npy: first layer wrong by itself: conv1__6_quantize" in found.stdout


def test_a_bundle_alone_has_no_reference(program: Path) -> None:
    found = CliRunner().invoke(app, ["verify", str(program), "--input", str(IMAGE)])
    assert found.exit_code == 2
    assert "Pass the model from which it was made with --reference MODEL." in found.stderr
