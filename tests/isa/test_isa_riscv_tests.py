"""The command that runs riscv-tests, on small files of our own that end as those do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import riscv_tests

from nmpsim.bundle.assembly import assemble

TOHOST = 0x8000_1000
COMPILER = "riscv64-unknown-elf-gcc"
ENDINGS = {
    "passed": "li gp, 1\nsw gp, 0(t0)",
    "FAILED: reference case 3; compiled case 3": "li gp, 7\nsw gp, 0(t0)",
    "FAILED: reference unexpected trap 2 at 0x800000d4; "
    "compiled unexpected trap 2 at 0x800000d4": "csrw mtvec, t1\n.word 0",
    "FAILED: reference ended with trap; compiled ended with trap": "ebreak",
    "FAILED: reference no end; compiled no end": "",
}


def write_test(path: Path, ending: str, symbol: str = "tohost") -> None:
    """Write an ELF file that executes ``ending`` and reports handled traps as failures."""
    text = f"""
        .set {symbol}, {TOHOST:#x}
        _start: la t0, {TOHOST:#x}
        la t1, trapped
        {ending}
        end: j end
        trapped: ori gp, gp, 1337
        sw gp, 0(t0)
        j trapped
    """
    path.write_bytes(assemble(text).build_bundle())


@pytest.fixture(autouse=True)
def limit_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(riscv_tests, "MAX_LOOKS", 3)


@pytest.mark.parametrize("verdict", ENDINGS)
def test_each_ending_gives_its_verdict(
    verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_test(tmp_path / "rv32ui-p-mine", ENDINGS[verdict])
    code = riscv_tests.main([str(tmp_path)])
    passed = int(verdict == "passed")
    assert capsys.readouterr().out.splitlines() == [
        f"rv32ui-p-mine  {verdict}",
        f"rv32ui: {passed} of 1 passed, 0 left out, {1 - passed} failed",
    ]
    assert code == 1 - passed


def test_tests_of_missing_features_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_test(tmp_path / "rv32mi-p-pmpaddr", "li gp, 3\nsw gp, 0(t0)")
    assert riscv_tests.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "rv32mi-p-pmpaddr  left out: no memory protection" in said
    assert "rv32mi: 0 of 1 passed, 1 left out, 0 failed" in said
    write_test(tmp_path / "rv32mi-p-pmpaddr", ENDINGS["passed"])
    assert riscv_tests.main([str(tmp_path)]) == 1
    assert "passed, though it is listed as left out" in capsys.readouterr().out


def test_a_folder_without_tests_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        assert riscv_tests.main([str(folder)]) == 0
        assert capsys.readouterr().out.startswith("skipped: no built tests")


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"text"])
def test_invalid_files_are_errors(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rv32ui-p-mine").write_bytes(content)
    assert riscv_tests.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_file_without_tohost_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_test(tmp_path / "rv32ui-p-mine", ENDINGS["passed"], symbol="other")
    assert riscv_tests.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == "error: rv32ui-p-mine: no symbol tohost\n"


def test_a_bundle_cannot_be_linked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_test(tmp_path / "rv32ui-p-mine", ENDINGS["passed"])
    assert riscv_tests.main([str(tmp_path), "--link"]) == 2
    assert "the file is a bundle with metadata" in capsys.readouterr().err


def test_linked_tests_run_on_both_engines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which(COMPILER) is None:
        pytest.skip("GCC is not installed")
    source, folder = tmp_path / "mine.S", Path(riscv_tests.__file__).parent
    text = ".section .text.init\n.global _start\n_start: la t0, tohost\nli t1, %d\n"
    text += "sw t1, 0(t0)\n1: j 1b\n"
    data = '.section .tohost,"aw"\n.global tohost\ntohost: .dword 0\n'
    for name, value in (("rv32ui-p-right", 1), ("rv32ui-p-wrong", 7)):
        source.write_text(text % value + data)
        flags = ("-march=rv32im", "-mabi=ilp32", "-nostdlib", f"-T{folder / 'riscv_tests.ld'}")
        subprocess.run([COMPILER, *flags, str(source), "-o", str(tmp_path / name)], check=True)
    assert riscv_tests.main([str(tmp_path), "--link"]) == 1
    right, wrong, _ = capsys.readouterr().out.splitlines()
    assert right == "rv32ui-p-right  passed"
    assert wrong == "rv32ui-p-wrong  FAILED: reference case 3; compiled case 3"
