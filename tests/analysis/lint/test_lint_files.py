"""Subjects from files: LIR with and without what belongs to it, bundles, references."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import nmpsim
from nmpsim.analysis.lint import ReferenceFiles, load_subject, run_rules
from nmpsim.diagnostics import UserError
from nmpsim.quantization import read_profile

DIGITS = Path(__file__).parents[3] / "programs/digits"
LIR, WEIGHTS = DIGITS / "digits.lir.txt", DIGITS / "digits.npz"
TENSORS, FLOATS = DIGITS / "digits.tensors.json", DIGITS / "float_weights.npz"
OLD, NEW = "i32[S:0.000039102 O:0]", "i32[S:0.013213338 O:0]"
"""Type of the first convolution's bias, and the same type with the result's scale."""


def get_error_code(error: pytest.ExceptionInfo[UserError]) -> str:
    return error.value.diagnostics[0].code


def find_rules(*arguments: object, **more: object) -> set[tuple[str, str]]:
    found = nmpsim.lint(*arguments, **more)
    return {(finding.severity, finding.rule) for finding in found}


@pytest.fixture
def edited_folder(tmp_path: Path) -> Path:
    """Write the digits program with a changed bias type and return its folder."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    text = LIR.read_text().replace(OLD, NEW, 1)
    assert text != LIR.read_text()
    (folder / "net.lir.txt").write_text(text)
    shutil.copy(WEIGHTS, folder / "net.npz")
    return folder


def test_the_digits_have_no_findings() -> None:
    assert find_rules(LIR, WEIGHTS) == {("note", "bias-loses-bits")}
    assert find_rules(str(LIR), str(WEIGHTS), float_weights=str(FLOATS)) == {
        ("note", "bias-loses-bits")
    }


def test_a_bundle_has_the_findings_of_its_lir(tmp_path: Path) -> None:
    compiled = nmpsim.compile(LIR, WEIGHTS)
    nmpsim.save(compiled, tmp_path / "net.bin")
    from_text = {(f.rule, f.message, f.facts.get("bits")) for f in nmpsim.lint(LIR, WEIGHTS)}
    for program in (tmp_path / "net.bin", nmpsim.load(tmp_path / "net.bin")):
        assert {(f.rule, f.message, f.facts.get("bits")) for f in nmpsim.lint(program)} == from_text


def test_a_bundle_needs_no_weights(tmp_path: Path) -> None:
    nmpsim.save(nmpsim.compile(LIR, WEIGHTS), tmp_path / "net.bin")
    with pytest.raises(UserError) as error:
        nmpsim.lint(tmp_path / "net.bin", WEIGHTS)
    assert get_error_code(error) == "ARG001"


# the type was changed in the text


def test_an_old_sidecar_reveals_the_change(edited_folder: Path) -> None:
    """It has the old type, and a digest of the payload, which is still the same."""
    found = nmpsim.lint(edited_folder / "net.lir.txt", edited_folder / "net.npz", TENSORS)
    (finding,) = (f for f in found if f.rule == "bias-payload")
    assert finding.facts["evidence"] == "original"
    assert finding.facts["original_scale"] == pytest.approx(0.000039102, rel=1e-4)
    assert finding.place.line == 3
    assert finding.place.file is not None and "a folder" in finding.place.file


def test_an_old_sidecar_and_a_new_payload_are_no_finding(edited_folder: Path) -> None:
    with np.load(WEIGHTS) as archive:
        arrays = dict(archive)
    scales = json.loads(TENSORS.read_text())
    old = scales["const/conv1_bias"]["scale"]
    real = arrays["conv1_bias"] * old
    arrays["conv1_bias"] = np.rint(real / 0.013213338).astype(np.int32)
    np.savez(edited_folder / "net.npz", **arrays)
    found = nmpsim.lint(edited_folder / "net.lir.txt", edited_folder / "net.npz", TENSORS)
    assert not any(f.rule == "bias-payload" for f in found)


def test_a_sidecar_that_differs_otherwise_is_refused(edited_folder: Path) -> None:
    text = (edited_folder / "net.lir.txt").read_text()
    (edited_folder / "net.lir.txt").write_text(
        text.replace("i8[S:0.000623185 O:-2]", "i8[S:0.5 O:-2]")
    )
    with pytest.raises(UserError) as error:
        nmpsim.lint(edited_folder / "net.lir.txt", edited_folder / "net.npz", TENSORS)
    assert get_error_code(error) == "CONST004"


@pytest.mark.parametrize(
    "references",
    [
        {},
        {"float_weights": FLOATS},
        {"original_weights": WEIGHTS},
        {"original_weights": WEIGHTS, "original_tensors": TENSORS},
    ],
    ids=["alone", "floats", "originals", "originals and their types"],
)
def test_a_changed_type_is_found_with_and_without_references(
    edited_folder: Path, references: dict[str, Path]
) -> None:
    found = nmpsim.lint(edited_folder / "net.lir.txt", edited_folder / "net.npz", **references)
    (finding,) = (f for f in found if f.rule == "bias-payload")
    assert (finding.severity, finding.tensor) == ("error", "conv1_bias")


def test_the_sidecar_of_the_original_is_used(edited_folder: Path, tmp_path: Path) -> None:
    original = tmp_path / "original.npz"
    shutil.copy(WEIGHTS, original)
    shutil.copy(TENSORS, tmp_path / "original.tensors.json")
    found = nmpsim.lint(
        edited_folder / "net.lir.txt", edited_folder / "net.npz", original_weights=original
    )
    (finding,) = (f for f in found if f.rule == "bias-payload")
    assert "original_scale" in finding.facts


def test_lost_digits_are_found_without_a_sidecar(tmp_path: Path) -> None:
    shutil.copy(LIR, tmp_path / "net.lir")
    found = nmpsim.lint(tmp_path / "net.lir", WEIGHTS)
    lost = {f.tensor: f.facts["digits"] for f in found if f.rule == "scales-lost-in-print"}
    assert lost["conv1_bias"] == 5
    assert "conv1__2_res" not in lost  # nine decimals are enough from about 0.0084 on
    assert {f.severity for f in found if f.rule == "scales-lost-in-print"} == {"warning"}


def test_powers_of_two_survive_print(shared: Path, tmp_path: Path) -> None:
    text = shared / "lir/lenet/i16_pow2_b16/nmp.lir.txt"
    shutil.copy(text, tmp_path / "net.lir")
    lost = [f for f in nmpsim.lint(tmp_path / "net.lir") if f.rule == "scales-lost-in-print"]
    assert [f.severity for f in lost] == ["note"]
    assert lost[0].facts["count"] >= 5
    assert not any(f.rule == "scales-lost-in-print" for f in nmpsim.lint(text))


def test_rules_without_weights_are_skipped() -> None:
    report = run_rules(load_subject(LIR))
    assert {one.rule for one in report.skipped} == {
        "bias-payload", "bias-saturates", "bias-loses-bits", "accumulator-overflow", "range-wasted",
        "not-compiled", "weights-differ", "bias-differs", "result-differs",
    }  # fmt: skip
    assert all("--weights" in one.reason for one in report.skipped)


def test_windows_line_ends_are_accepted(edited_folder: Path) -> None:
    text = (edited_folder / "net.lir.txt").read_bytes().replace(b"\n", b"\r\n")
    (edited_folder / "net.lir.txt").write_bytes(text)
    found = nmpsim.lint(edited_folder / "net.lir.txt", edited_folder / "net.npz")
    assert any(f.rule == "bias-payload" for f in found)


# reference files that cannot be used


@pytest.mark.parametrize("option", ["float_weights", "original_weights", "ranges"])
def test_a_missing_reference_is_an_error(option: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        nmpsim.lint(LIR, WEIGHTS, **{option: tmp_path / "no.npz"})
    assert get_error_code(error) == "FILE001"


@pytest.mark.parametrize("option", ["float_weights", "original_weights", "ranges"])
@pytest.mark.parametrize("content", [b"", b"nothing of the kind\n", b"\xff\xfe\x00"])
def test_an_unsuitable_reference_is_an_error(option: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(UserError) as error:
        nmpsim.lint(LIR, WEIGHTS, **{option: tmp_path / "x.npz"})
    assert get_error_code(error) == "CONST001"


@pytest.mark.parametrize("option", ["float_weights", "original_weights"])
def test_a_reference_of_another_network_is_an_error(option: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", bias=np.ones(3, np.float32), conv1_bias=np.ones(3, np.int32))
    with pytest.raises(UserError) as error:
        nmpsim.lint(LIR, WEIGHTS, **{option: tmp_path / "x.npz"})
    assert get_error_code(error) == "CONST002"


def test_nan_values_are_refused_as_reference(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", conv1_bias=np.full(16, np.nan, np.float32))
    with pytest.raises(UserError) as error:
        load_subject(LIR, WEIGHTS, references=ReferenceFiles(float_weights=tmp_path / "x.npz"))
    assert get_error_code(error) == "CONST002"


def test_a_profile_is_read(shared: Path, tmp_path: Path) -> None:
    path = shared / "lir/lenet/profile.tsv"
    ranges = read_profile(path)
    assert ranges["conv1__2"].high == pytest.approx(1.86443853)
    (tmp_path / "p.tsv").write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_profile(tmp_path / "p.tsv") == ranges


def test_a_profile_shows_a_wasted_range(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("conv1__2:0\t0\t0.1\nfc__1:0\t-10\t12\n")
    found = nmpsim.lint(LIR, WEIGHTS, ranges=tmp_path / "p.tsv")
    (finding,) = (f for f in found if f.rule == "range-wasted")
    assert (finding.layer, finding.severity) == ("conv1__2", "warning")


@pytest.mark.parametrize(
    "line", ["a:0 1 2", "a:0\t1", "a:0\tx\t2", "a:0\t3\t2", "a:0\tnan\t2", "a:0\t-inf\t2"]
)
def test_an_invalid_range_is_an_error(line: str, tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text(f"b:0\t1\t2\n\n{line}\n")
    with pytest.raises(UserError) as error:
        read_profile(tmp_path / "p.tsv")
    assert get_error_code(error) == "CONST001"
    assert error.value.diagnostics[0].place.line == 3


@pytest.mark.parametrize("config", ["i8_pow2_b8", "i16_pow2_b16"])
def test_rescaled_biases_give_no_finding(config: str, shared: Path, tmp_path: Path) -> None:
    text = (
        shared / "lir_real/resnet8" / config / ("cpu.lir.txt" if "i8" in config else "nmp.lir.txt")
    )
    weights = text.with_name(text.name.replace(".lir.txt", ".npz"))
    compiled = nmpsim.compile(text, weights, numerics="nmp", rescale_biases=True)
    nmpsim.save(compiled, tmp_path / "net.bin")
    subject = load_subject(tmp_path / "net.bin")
    assert subject.program.numerics == "nmp"
    assert all(bias.is_on_result_scale for bias in subject.biases)
    report = run_rules(subject)
    assert not any(finding.severity != "note" for finding in report.findings)


def test_layers_of_a_bundle_keep_their_profiles(shared: Path, tmp_path: Path) -> None:
    """One layer is nmp's: it alone must have powers of two."""
    compiled = nmpsim.compile(LIR, WEIGHTS, layer_numerics={"pool1__2": "nmp", "fc__1": "q31"})
    nmpsim.save(compiled, tmp_path / "net.bin")
    subject = load_subject(tmp_path / "net.bin")
    assert {subject.get_numerics(op) for op in subject.operations} >= {"glow-int", "q31"}
    assert load_subject(tmp_path / "net.bin", numerics="nmp").program.layer_numerics == {}


@pytest.mark.parametrize(
    "name",
    [
        "lir_real/resnet8/i8_asym_b32_channelwise/cpu",
        "lir/minires/i8_asym_b32_channelwise/interp",
        "lir_real/resnet8/i8_pow2_b8/cpu",
    ],
)
def test_a_program_as_its_original_gives_no_finding(
    name: str, shared: Path, tmp_path: Path
) -> None:
    """Also where each channel has a scale in a table, and the type's own has no meaning."""
    text, weights = shared / f"{name}.lir.txt", shared / f"{name}.npz"
    subject = load_subject(text, weights, references=ReferenceFiles(original_weights=weights))
    assert subject.original is not None
    assert all(one.scales is not None and one.scales.all() for one in subject.original.values())
    assert not any(f.rule == "bias-payload" for f in run_rules(subject).findings)


def test_a_changed_table_of_scales_is_found(shared: Path, tmp_path: Path) -> None:
    folder = shared / "lir/minires/i8_asym_b32_channelwise"
    with np.load(folder / "interp.npz") as archive:
        arrays = {key: archive[key] for key in archive if key.startswith("const/")}
    (first, *_) = load_subject(folder / "interp.lir.txt", folder / "interp.npz").biases
    table = first.op.operands[6].buffer.name
    arrays[f"const/{table}"] = np.full_like(arrays[f"const/{table}"], first.result_scale)
    np.savez(tmp_path / "w.npz", **arrays)
    found = nmpsim.lint(
        folder / "interp.lir.txt", tmp_path / "w.npz", original_weights=folder / "interp.npz"
    )
    errors = [f for f in found if f.rule == "bias-payload"]
    assert [(f.tensor, f.facts["evidence"]) for f in errors] == [(first.view.name, "original")]
