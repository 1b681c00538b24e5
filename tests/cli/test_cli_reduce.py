"""Test that ``nmpsim reduce`` writes a small program that fails like the original."""

import json
from pathlib import Path

import attrs
import numpy as np
import pytest
from click.testing import CliRunner

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.cli.app import app

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "programs" / "digits"
IMAGE = DIGITS / "images" / "7.npy"


def compile_changed(folder, text=None, constants=None):
    """Compile the digits program with changed text or constants."""
    (folder / "net.lir").write_text(text or (DIGITS / "digits.lir.txt").read_text())
    (folder / "net.tensors.json").write_text((DIGITS / "digits.tensors.json").read_text())
    with np.load(DIGITS / "digits.npz") as stored:
        arrays = {**stored, **(constants or {})}
    np.savez(folder / "net.npz", **arrays)
    tensors = folder / "net.tensors.json" if text is None else None
    if text is not None:
        (folder / "net.tensors.json").unlink()
    program = nmpsim.compile(folder / "net.lir", folder / "net.npz", tensors)
    nmpsim.save(program, folder / "net.bin")
    return folder / "net.bin"


def list_layers(bundle):
    device = nmpsim.Device(nmpsim.get_device(nmpsim.load(bundle)))
    return device.run(nmpsim.load(bundle), {"data": np.load(IMAGE)}, save_layers=True)


def rerun(folder):
    """Run the reduced part; return its report and the stored description."""
    checked = CliRunner().invoke(app, ["check", str(folder / "suite.toml")])
    assert checked.exit_code in (1, 4), checked.output + checked.stderr
    bundle = nmpsim.load(folder / "repro.bin")
    with np.load(folder / "inputs.npz") as stored:
        inputs = dict(stored)
    report = nmpsim.Device(nmpsim.get_device(bundle)).run(bundle, inputs, save_layers=True)
    return bundle, report, json.loads((folder / "repro.json").read_text())


def test_a_wrong_weight_is_reduced_to_its_layer(nmpsim_cli, tmp_path):
    with np.load(DIGITS / "digits.npz") as stored:
        key = next(k for k in stored if "conv2" in k and stored[k].ndim == 4)
        weights = stored[key].copy()
    (tmp_path / "good").mkdir()
    right = list_layers(compile_changed(tmp_path / "good"))
    weights.reshape(-1)[::7] ^= 64
    wrong = compile_changed(tmp_path, constants={key: weights})
    reference = {f"act/{k}:x": v for k, v in right.layer_outputs.items()}
    np.savez(tmp_path / "right.npz", **reference)

    folder = tmp_path / "a part"
    options = ("--input", IMAGE, "--reference", tmp_path / "right.npz", "-o", folder)
    result = nmpsim_cli("reduce", wrong, *options)
    assert result.exit_code == 0, result.stderr
    name = next(k for k in right.layer_outputs if k.endswith(":conv2__2"))
    good, bad = right.layer_outputs[name], list_layers(wrong).layer_outputs[name]
    at = tuple(np.argwhere(good != bad)[0])
    where = ", ".join(map(str, at))
    assert f"element [{where}] of layer conv2__2 on one core fails alike" in result.stderr

    bundle, report, facts = rerun(folder)
    assert [layer.name for layer in bundle.metadata.layers] == ["conv2__2"]
    assert facts["layers"] == ["conv2__2"]
    assert bundle.metadata.device["cores_count"] == 1
    (key,), (values,) = zip(*report.layer_outputs.items(), strict=True)
    assert values.item() == bad[at]
    with np.load(folder / "expected.npz") as expected:
        assert list(expected) == [key]
        assert expected[key].item() == good[at]
    with np.load(folder / "repro.npz") as constants:
        assert max(array.size for array in constants.values()) <= 9 * 16
    config = nmpsim.get_device(bundle)
    again = nmpsim.compile(folder / "repro.lir", folder / "repro.npz", device=config)
    (folder / "repro.bin").write_bytes(again.image)
    (values_again,) = rerun(folder)[1].layer_outputs.values()
    np.testing.assert_array_equal(values_again, values)
    # What the device gives is what is expected from here on: mended.
    np.savez(folder / "expected.npz", **{key: values})
    assert nmpsim_cli("check", folder / "suite.toml").exit_code == 0


def test_every_layer_of_the_digits_can_be_cut_out(nmpsim_cli, tmp_path):
    """With a reference that is wrong in that layer alone."""
    net = compile_changed(tmp_path)
    outputs = list_layers(net).layer_outputs
    for number, (key, values) in enumerate(outputs.items()):
        wrong = values.copy()
        wrong.reshape(-1)[0] += 1
        np.savez(tmp_path / "reference.npz", **{**outputs, key: wrong})
        folder = tmp_path / str(number)
        options = ("--input", IMAGE, "--reference", tmp_path / "reference.npz", "-o", folder)
        assert nmpsim_cli("reduce", net, *options).exit_code == 0
        _, report, facts = rerun(folder)
        (values_again,) = report.layer_outputs.values()
        count = values.size if key.endswith(":prob") else 1  # a softmax is kept whole
        np.testing.assert_array_equal(values_again.reshape(-1), values.reshape(-1)[:count])
        assert facts["parts_tried"] == (1 if count > 1 else 2)


def test_saturation_is_reduced_to_its_layer(nmpsim_cli, tmp_path):
    text = (DIGITS / "digits.lir.txt").read_text()
    line = next(x for x in text.splitlines() if "%conv1__2_res = alloc" in x)
    scale = line.partition("[S:")[2].partition(" ")[0]
    smaller = f"{float(scale) / 4:.9f}"
    net = compile_changed(tmp_path, text.replace(f"[S:{scale} ", f"[S:{smaller} "))
    cut = [layer for layer in list_layers(net).layers if layer.saturated]
    assert cut
    folder = tmp_path / "part"
    options = ("--input", IMAGE, "--saturates", cut[0].name, "-o", folder)
    result = nmpsim_cli("reduce", net, *options)
    assert result.exit_code == 0, result.stderr
    _, report, _ = rerun(folder)
    (layer,) = report.layers
    assert layer.name == cut[0].name
    assert (layer.saturated, layer.elements) == (1, 1)
    fine = next(x.name for x in list_layers(net).layers if not x.saturated)
    result = nmpsim_cli("reduce", net, "--input", IMAGE, "--saturates", fine, "-o", tmp_path / "no")
    assert result.exit_code == 1
    assert not (tmp_path / "no").exists()


def assemble_program(folder, text, cores=2):
    config = attrs.evolve(nmpsim.default_device(), cores_count=cores)
    path = folder / "net.bin"
    path.write_bytes(assemble(text, device=config.settings()).build_bundle())
    return path


def test_a_wrong_descriptor_is_reduced_to_its_instruction(nmpsim_cli, tmp_path):
    text = (ROOT / "programs" / "assembly" / "one_conv.s").read_text()
    assert "kernel_h=3" in text
    net = assemble_program(tmp_path, text.replace("kernel_h=3", "kernel_h=0"))
    image = np.zeros((5, 5, 4), np.int8)
    np.save(tmp_path / "x.npy", image)
    folder = tmp_path / "part"
    result = nmpsim_cli("reduce", net, "--input", tmp_path / "x.npy", "-o", folder)
    assert result.exit_code == 0, result.stderr
    assert "one instruction (nmp.conv t0) on one core fails alike" in result.stderr
    bundle, report, facts = rerun(folder)
    assert report.trap is not None
    assert "kernel_h is 0" in report.trap.message
    assert facts["trap"] == report.trap.message
    assert nmpsim_cli("asm", folder / "repro.s", "--help").exit_code == 0
    assert parse_bundle((folder / "repro.bin").read_bytes()).digest == bundle.digest
    assert "nmp.conv" in (folder / "repro.s").read_text()


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_wrong_code_of_any_compiler_is_reduced_to_an_instruction(nmpsim_cli, tmp_path, engine):
    """The program carries no LIR: its own code is what there is."""
    text = (ROOT / "programs" / "assembly" / "one_conv.s").read_text()
    image = np.random.default_rng(4).integers(-128, 128, (5, 5, 4), np.int8)
    np.save(tmp_path / "x.npy", image)
    run = ("--input", tmp_path / "x.npy", "--engine", engine)
    good = assemble_program(tmp_path, text)
    saved = ("--save-layers", tmp_path / "layers.npz", "--save-outputs", tmp_path / "right.npz")
    assert nmpsim_cli("run", good, *run, *saved).exit_code == 0
    with np.load(tmp_path / "right.npz") as outputs:
        right = outputs["result"]
    np.savez(tmp_path / "reference.npz", conv=right)
    assert "7, 1, -3, 2" in text
    wrong = assemble_program(tmp_path, text.replace("7, 1, -3, 2", "7, 1, -3, 9"))
    assert nmpsim_cli("run", wrong, *run, *saved).exit_code == 0
    with np.load(tmp_path / "right.npz") as outputs:
        at = tuple(np.argwhere(outputs["result"] != right)[0])
        value = outputs["result"][at]

    folder = tmp_path / "part"
    options = (*run, "--reference", tmp_path / "reference.npz", "-o", folder)
    result = nmpsim_cli("reduce", wrong, *options)
    assert result.exit_code == 0, result.stderr
    where = ", ".join(map(str, at))
    assert f"the instruction that computes element [{where}] of layer conv on one" in result.stderr
    _, report, _ = rerun(folder)
    assert report.outputs["result"].item() == value
    with np.load(folder / "expected.npz") as expected:
        assert expected["0000:conv"].item() == right[at]
    assert "nmp.conv" in (folder / "repro.s").read_text().splitlines()[0]


def test_a_scale_table_is_included(nmpsim_cli, tmp_path):
    """The fault is in what the descriptor points to."""
    text = (ROOT / "programs" / "assembly" / "one_conv.s").read_text()
    text = text.replace("kernel_h=3", "kernel_h=3, scales=SPM+0x8000", 1)
    if "SPM" not in text.partition("kernel_h")[0]:
        text = text.replace("SPM+0x8000", "0x20008000")
    fill = "0x7f"
    text = text.replace(
        "_start:",
        f"spoil: .descriptor fill, output=0x20008000, count=256, value={fill}\n_start:\n"
        "    csrr a0, mhartid\n    bnez a0, skip_spoil\n    la t0, spoil\n    nmp.fill t0\n"
        "    nmp.wait vector, 0\nskip_spoil:\n",
        1,
    )
    net = assemble_program(tmp_path, text)
    np.save(tmp_path / "x.npy", np.zeros((5, 5, 4), np.int8))
    folder = tmp_path / "part"
    result = nmpsim_cli("reduce", net, "--input", tmp_path / "x.npy", "-o", folder)
    assert result.exit_code == 0, result.stderr
    assert "one instruction" in result.stderr
    _, report, _ = rerun(folder)
    assert report.trap is not None
    assert "scales" in report.trap.message


@pytest.mark.parametrize(
    ("code", "instruction"),
    [
        ("    li a1, 0x20000001\n    li a2, 5\n    sw a2, 0(a1)\n", "sw a2, 0(a1)"),
        ("    li a1, 0x70000000\n    lw a2, 4(a1)\n", "lw a2, 4(a1)"),
        ("    .word 0xffffffff\n", ".word 0xffffffff"),
        ("    ebreak\n", "ebreak"),
        ("    li a1, 0x20000002\n    nmp.load a1\n", "nmp.load a1"),
    ],
)
def test_a_scalar_trap_is_reduced(nmpsim_cli, tmp_path, code, instruction):
    net = assemble_program(tmp_path, f"_start:\n{code}    nmp.halt\n")
    folder = tmp_path / "part"
    result = nmpsim_cli("reduce", net, "-o", folder)
    assert result.exit_code == 0, result.stderr
    _, report, _ = rerun(folder)
    assert report.trap is not None
    assert report.trap.instruction == instruction


TRANSFERS = """
.input from, i8[S:1.0 O:0]<256>
.output to, i8[S:1.0 O:0]<256>
.layer 0, copy, copy, to
get: .descriptor load, dram=from, spm=0x20000000, run_bytes=128, count_x=1, count_y=1
more: .descriptor load, dram=from, spm=0x20000800, run_bytes=128, count_x=1, count_y=1
use: .descriptor rescale, input=0x20000000, output=0x20000200, count=64, \\
 in_low=-128, in_high=127, out_mul=1, clip_low=-128, clip_high=127
put: .descriptor store, dram=to, spm=0x20000200, run_bytes=64, count_x=1, count_y=1
_start:
 csrr t2, mhartid
 bnez t2, end
"""


def issue(*names):
    """Return code that issues the named descriptors, and waits for unknown names."""
    kinds = {"get": "load", "more": "load", "use": "rescale", "put": "store"}
    lines = (
        f" la t0, {name}\n nmp.{kinds[name]} t0\n" if name in kinds else f" nmp.wait {name}, 0\n"
        for name in names
    )
    return "".join(lines)


@pytest.mark.parametrize(
    ("code", "kept", "hazard"),
    [
        (("more", "load", "get", "use", "vector", "load", "put", "store"), "the program with 2 of",
         "missing synchronization: input of nmp.rescale after nmp.load"),
        (("get", "load", "use", "put", "vector", "store"), "the whole program",
         "missing synchronization: spm of nmp.store after nmp.rescale"),
        (("get", "more", "load", "use", "vector", "put"), "the program with 3 of",
         "missing synchronization: tensor of the host after nmp.store"),
    ],
)  # fmt: skip
def test_a_hazard_is_preserved(nmpsim_cli, tmp_path, code, kept, hazard):
    net = assemble_program(tmp_path, f"{TRANSFERS}{issue(*code)}end: nmp.halt\n")
    np.save(tmp_path / "x.npy", np.zeros(256, np.int8))
    options = ("--input", tmp_path / "x.npy", "-o", tmp_path / "part")
    result = nmpsim_cli("reduce", net, *options)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith(f"fails: {hazard}\n")
    assert f"/part: {kept}" in result.stderr
    before = nmpsim.Device(nmpsim.get_device(nmpsim.load(net)))
    violation = before.run(nmpsim.load(net), {"from": np.zeros(256, np.int8)}).contract.violation
    _, report, facts = rerun(tmp_path / "part")
    assert facts["failure"] == hazard
    found = report.contract.violation
    assert (found.case, found.core, found.pc) == (violation.case, violation.core, violation.pc)
    assert (found.other_core, found.other_pc) == (violation.other_core, violation.other_pc)


def test_a_wrong_result_after_a_violation_is_found(nmpsim_cli, tmp_path):
    code = issue("get", "use", "vector", "put", "store")
    net = assemble_program(tmp_path, f"{TRANSFERS}{code}end: nmp.halt\n")
    np.save(tmp_path / "x.npy", np.zeros(256, np.int8))
    np.savez(tmp_path / "right.npz", copy=np.ones(256, np.int8))
    folder = tmp_path / "part"
    options = ("--input", tmp_path / "x.npy", "--reference", tmp_path / "right.npz", "-o", folder)
    result = nmpsim_cli("reduce", net, *options)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith("fails: copy differs from the reference\n")


def test_a_deadlock_keeps_the_whole_program(nmpsim_cli, tmp_path):
    text = "_start:\n    li t0, 0\n    li t1, 3\n    nmp.barrier t0, t1\n    nmp.halt\n"
    net = assemble_program(tmp_path, text)
    result = nmpsim_cli("reduce", net, "-o", tmp_path / "part")
    assert result.exit_code == 0, result.stderr
    assert "the whole program fails alike" in result.stderr
    assert (tmp_path / "part" / "repro.bin").read_bytes() == net.read_bytes()


def test_a_correct_program_writes_nothing(nmpsim_cli, tmp_path):
    net = compile_changed(tmp_path)
    result = nmpsim_cli("reduce", net, "--input", IMAGE, "-o", tmp_path / "part")
    assert result.exit_code == 1
    assert result.stderr.endswith("the program does not fail: there is nothing to reduce\n")
    assert not (tmp_path / "part").exists()
    for folder, extra in (
        (tmp_path, ()),
        (tmp_path / "a" / "b", ()),
        ("-", ()),
        (tmp_path / "part", ("--reference", net, "--saturates", "conv1")),
        (tmp_path / "part", ("--reference", net)),
    ):
        result = nmpsim_cli("reduce", net, "--input", IMAGE, "-o", folder, *extra)
        assert result.exit_code == 2, (folder, extra)
        assert "error[" in result.stderr


@pytest.mark.parametrize("limit", [50, 1500])
def test_a_cycle_limit_is_reported(nmpsim_cli, tmp_path, limit):
    """Layers that are fast enough alone are no answer: more of them are taken."""
    net = compile_changed(tmp_path)
    (tmp_path / "device.toml").write_text(f"[limits]\ncycles = {limit}\n")
    folder = tmp_path / "part"
    options = ("--input", IMAGE, "--device", tmp_path / "device.toml", "-o", folder)
    result = nmpsim_cli("reduce", net, *options)
    assert result.exit_code == 0, result.stderr
    note, _, rest = result.stderr.partition("\n")
    assert "compiled the program again without chains" in note
    assert rest.startswith("fails: cycle limit\ntrying layer ")
    _, report, facts = rerun(folder)
    assert report.trap is not None
    assert report.trap.kind == "cycle_limit"
    assert facts["trap"] == report.trap.message
