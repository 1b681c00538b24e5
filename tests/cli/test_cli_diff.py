"""``nmpsim diff`` on runs of the digits and on recorded runs of Glow."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a folder with the bundle, reports and layers of two digits."""
    import nmpsim
    from nmpsim.atomic import write_npz
    from nmpsim.bundle import parse_bundle
    from nmpsim.report.json import format_json, to_json

    folder = tmp_path_factory.mktemp("two runs")
    compiled = nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz")
    nmpsim.save(compiled, folder / "digits.bin")
    device = nmpsim.Device(engine="reference")
    for digit in ("7", "3"):
        image = np.load(DIGITS / "images" / f"{digit}.npy")
        bundle = parse_bundle(compiled.image)
        report = device.run(bundle, {"data": image}, save_layers=True)
        (folder / f"{digit}.json").write_text(format_json(to_json(report)))
        write_npz(folder / f"{digit}.npz", report.layer_outputs)
    return folder


def test_a_run_equals_itself(nmpsim_cli, runs):
    result = nmpsim_cli("diff", runs / "7.npz", runs / "7.npz")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("compared, all equal\n")
    assert "first" not in result.stdout
    assert "conv1" in nmpsim_cli("diff", runs / "7.npz", runs / "7.npz", "--all").stdout
    assert nmpsim_cli("diff", runs / "7.json", runs / "7.json").exit_code == 0


def test_one_wrong_element_is_found(nmpsim_cli, runs, tmp_path):
    with np.load(runs / "7.npz") as saved:
        layers = dict(saved)
    name = next(key for key in layers if layers[key].ndim == 4 and layers[key].size > 100)
    layers[name] = layers[name].copy()
    layers[name][0, 1, 2, 3] ^= 8
    np.savez(tmp_path / "wrong.npz", **layers)

    options = ("--bundle", runs / "digits.bin")
    result = nmpsim_cli("diff", runs / "7.npz", tmp_path / "wrong.npz", *options)
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.startswith(f"first difference: {name[5:]}, Int8 ")
    wrong, right = layers[name][0, 1, 2, 3], layers[name][0, 1, 2, 3] ^ 8
    assert f"at [0, 1, 2, 3]: {wrong}, not {right} (8 ulp)" in result.stdout
    within = nmpsim_cli("diff", runs / "7.npz", tmp_path / "wrong.npz", "--within", 8)
    assert within.exit_code == 0

    document = json.loads(
        nmpsim_cli(
            "diff", runs / "7.npz", tmp_path / "wrong.npz", *options, "--format", "json"
        ).stdout
    )
    assert (document["schema"], document["equal"]) == ("nmpsim-diff-4", False)
    assert document["first"] == document["worst"] == name[5:]
    wrong = next(one for one in document["tensors"] if one["differs"])
    assert (wrong["differing_elements"], wrong["worst_ulp"]) == (1, 8)
    assert wrong["first"]["at"] == [0, 1, 2, 3]
    assert wrong["first"]["first"] == right
    assert wrong["sqnr_db"] > 20


def test_float_activations_are_matched_by_model_names(nmpsim_cli, runs, tmp_path):
    import nmpsim

    layers = nmpsim.load(runs / "digits.bin").metadata.layers
    with np.load(runs / "7.npz") as saved:
        real = {
            f"/net/{one.name}": one.output.scale * (saved[key] - np.float32(one.output.offset))
            for key in saved.files
            for one in layers
            if one.name == key[5:] and one.output.scale is not None
        }
    np.savez(tmp_path / "float.npz", **real)
    pairs = "".join(f"{name} = {name[5:]}\r\n" for name in real)
    (tmp_path / "a map").write_text(f"# model = program\r\n\r\n{pairs}", newline="")
    words = ["diff", tmp_path / "float.npz", runs / "7.npz", "--bundle", runs / "digits.bin"]
    result = nmpsim_cli(*words, "--map", tmp_path / "a map")
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"{len(real)} tensors compared, all equal" in result.stdout
    np.savez(tmp_path / "float.npz", **{name: 1.01 * values for name, values in real.items()})
    loose = ("--rtol", 0.011, "--atol", 0.001, "--map", tmp_path / "a map")
    assert nmpsim_cli(*words, *loose).exit_code == 0
    off = nmpsim_cli(*words, *loose[2:], "--format", "json")
    document = json.loads(off.stdout)
    assert (off.exit_code, document["rtol"], document["atol"]) == (1, 0.0, 0.001)
    assert all(one["compared_as_real"] for one in document["tensors"])

    for given, said in (
        ("conv1", "--map requires a pair of names"),
        ("a=b=", "--map requires a pair of names"),
        ("no=where", "that the reference does not have"),
        ("n" * 5000 + "=where", "that the reference does not have"),
    ):
        bad = nmpsim_cli(*words, "--map", given)
        assert (bad.exit_code, said in bad.stderr) == (2, True), bad.stderr


def test_two_reports_are_compared(nmpsim_cli, runs, tmp_path):
    result = nmpsim_cli("diff", runs / "7.json", runs / "3.json")
    assert result.exit_code == 1
    assert "first difference: prob__1" in result.stdout

    report = json.loads((runs / "7.json").read_text())
    report["cycles"] += 5
    report["layers"][2]["cycles"] += 5
    report["layers"][2]["saturation"].append(
        {"stage": "result", "side": "high", "count": 3, "elements": 99, "worst": 1,
         "first": [0, 0, 0, 0], "channels": [[0, 3]]}
    )  # fmt: skip
    report["device"]["dram_latency_cycles"] = 41
    report["host_seconds"] = 9.0
    (tmp_path / "slower.json").write_text(json.dumps(report))
    result = nmpsim_cli("diff", runs / "7.json", tmp_path / "slower.json", "--format", "json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["kind"], document["equal"]) == (1, "reports", False)
    facts = {fact["what"]: fact["second"] - fact["first"] for fact in document["facts"]}
    assert facts == {"cycles": 5, "device dram_latency_cycles": 1}
    (layer,) = document["layers"]
    assert layer["index"] == 2
    assert [(c["what"], c["second"] - c["first"]) for c in layer["changes"]] == [
        ("cycles", 5),
        ("saturated at result high", 3),
    ]
    text = nmpsim_cli("diff", runs / "7.json", tmp_path / "slower.json").stdout
    assert "    saturated at result high: 0 -> 3\n" in text
    assert f"cycles: {report['cycles'] - 5:,} -> {report['cycles']:,} (+" in text


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ("7.npz", "7.json", "ARG001"),
        ("7.npz", "digits.bin", "ARG001"),
        ("7.npz", "none.npz", "FILE001"),
        ("7.npz", "empty", "DUMP002"),
        ("7.npz", "nothing", "ARG001"),
        ("7.npz", "cut.npz", "INPUT003"),
        ("7.json", "cut.json", "REPORT001"),
        ("7.npz", "other.npz", "DIFF001"),
    ],
)
def test_incomparable_files_are_refused(nmpsim_cli, runs, tmp_path, first, second, code):
    (tmp_path / "empty").mkdir()
    (tmp_path / "nothing").write_bytes(b"")
    (tmp_path / "cut.npz").write_bytes((runs / "7.npz").read_bytes()[:700])
    (tmp_path / "cut.json").write_bytes((runs / "7.json").read_bytes()[:700])
    np.savez(tmp_path / "other.npz", x=np.zeros(3, np.int8))
    other = runs / second if (runs / second).exists() else tmp_path / second
    result = nmpsim_cli("diff", runs / first, other)
    assert result.exit_code == 2
    assert f"error[{code}]" in result.stderr
    assert str(other) in result.stderr or code == "DIFF001" or second == "7.json"


def test_a_pipe_is_refused(nmpsim_cli, runs, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    (dumps / "instrument-debug.info").write_text(
        "Format: bin\nName: prob\n[0] Dest: data0000.bin float<1 x 10>\n"
    )
    os.mkfifo(dumps / "data0000.bin")
    for given in (tmp_path / "pipe", dumps):
        result = nmpsim_cli("diff", runs / "7.npz", given)
        assert (result.exit_code, "error[FILE001]" in result.stderr) == (2, True)


def test_a_run_equals_glows_recording(nmpsim_cli, shared, tmp_path):
    """Every layer of a network as Glow's own kernels computed it."""
    folder = shared / "lir" / "lenet" / "i8_asym_b32"
    net, layers = tmp_path / "lenet.bin", tmp_path / "layers.npz"
    lir, weights = folder / "cpu.lir.txt", folder / "cpu.npz"
    assert nmpsim_cli("compile", lir, "--weights", weights, "-o", net).exit_code == 0
    assert nmpsim_cli("run", net, "--input", weights, "--save-layers", layers).exit_code == 0
    result = nmpsim_cli("diff", weights, layers, "--bundle", net, "--all")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith(" tensors compared, all equal\n")


def test_layers_of_only_one_run_have_a_separate_state(nmpsim_cli, runs, tmp_path):
    with np.load(runs / "7.npz") as saved:
        layers = dict(saved)
    layers.pop(next(iter(layers)))
    np.savez(tmp_path / "fewer.npz", **layers)
    for pair in (
        (runs / "7.npz", tmp_path / "fewer.npz"),
        (tmp_path / "fewer.npz", runs / "7.npz"),
    ):
        assert nmpsim_cli("diff", *pair).exit_code == 0
        assert nmpsim_cli("diff", *pair, "--strict").exit_code == 5
    assert nmpsim_cli("diff", runs / "7.npz", runs / "7.npz", "--strict").exit_code == 0
    assert nmpsim_cli("diff", runs / "3.npz", tmp_path / "fewer.npz", "--strict").exit_code == 1


def test_the_cause_of_the_first_wrong_layer_is_named(nmpsim_cli, runs, tmp_path):
    """The kernel of one convolution is transposed in the program of run B."""
    import nmpsim

    with np.load(DIGITS / "digits.npz") as saved:
        constants = dict(saved)
    name = next(key for key, one in constants.items() if one.ndim == 4 and one.shape[0] > 1)
    constants[name] = constants[name].transpose(0, 2, 1, 3).copy()
    np.savez(tmp_path / "wrong_weights.npz", **constants)
    compiled = nmpsim.compile(DIGITS / "digits.lir.txt", tmp_path / "wrong_weights.npz")
    nmpsim.save(compiled, tmp_path / "wrong.bin")
    image = DIGITS / "images" / "7.npy"
    layers = tmp_path / "layers.npz"
    run = nmpsim_cli("run", tmp_path / "wrong.bin", "--input", image, "--save-layers", layers)
    assert run.exit_code == 0, run.stderr
    words = ("diff", runs / "7.npz", layers, "--bundle", tmp_path / "wrong.bin")
    result = nmpsim_cli(*words, "--input", image)
    assert (result.exit_code, result.stderr) == (1, "")
    assert "likely cause: with the kernel's two axes swapped, all" in result.stdout
    document = json.loads(nmpsim_cli(*words, "--input", image, "--format", "json").stdout)
    assert document["first_wrong"] == document["first"]
    assert "the kernel's two axes swapped" in document["causes"][0]
    assert json.loads(nmpsim_cli(*words, "--format", "json").stdout)["causes"] == []


def test_inputs_without_a_program_are_refused(nmpsim_cli, runs):
    image = DIGITS / "images" / "7.npy"
    result = nmpsim_cli("diff", runs / "7.npz", runs / "3.npz", "--input", image)
    assert result.exit_code == 2
    assert "--input requires --bundle" in result.stderr
