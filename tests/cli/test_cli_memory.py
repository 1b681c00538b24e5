"""Test ``--max-memory``, files with very large contents, and exhausted memory."""

from __future__ import annotations

import errno
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import compile_image

from nmpsim.cli.guard import run_guarded

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
SEVEN = DIGITS / "images" / "7.npy"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits") / "digits.bin"
    path.write_bytes(compile_image(DIGITS / "digits.lir.txt"))
    return path


def bomb(path: Path, count: int, *shape: int, **labels: Any) -> Path:
    """Write ``count`` samples of zeros, compressed to a thousandth of their size."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {(count, *shape)}, }}\n".encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("data.npy", "w", force_zip64=True) as member:
            member.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
            for _ in range(count):
                member.write(bytes(4 * int(np.prod(shape))))
        for name, values in labels.items():
            data = io.BytesIO()
            np.save(data, values)
            archive.writestr(f"{name}.npy", data.getvalue())
    return path


def commands(bundle: Path, folder: Path) -> dict[str, list[object]]:
    np.savez(
        folder / "set.npz", data=np.zeros((4, 1, 1, 8, 8), np.float32), labels=np.zeros(4, int)
    )
    seven = ["--input", SEVEN]
    return {
        "run": ["run", bundle, *seven],
        "check": ["check", bundle, *seven, "--cycles", 1_000_000],
        "debug": ["debug", bundle, *seven, "-c", "where"],
        "eval": ["eval", bundle, "--dataset", folder / "set.npz", "--labels", "labels"],
        "sweep": ["sweep", bundle, *seven, "--set", "cores.count=32", "-o", folder / "r.csv"],
    }


@pytest.mark.parametrize("name", ["run", "check", "debug", "eval", "sweep"])
def test_a_limit_refuses_before_anything_runs(
    name: str, digits: Path, tmp_path: Path, nmpsim_cli: Any
) -> None:
    done = nmpsim_cli(*commands(digits, tmp_path)[name], "--max-memory", "300kB")
    assert done.exit_code == 2, done.output
    assert "MEM001" in done.output
    assert not (tmp_path / "r.csv").exists()


def test_a_fitting_program_runs(digits: Path, nmpsim_cli: Any) -> None:
    done = nmpsim_cli("run", digits, "--input", SEVEN, "--max-memory", "0.5GiB")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("size", ["0", "-1", "1X", "1e9", "", "1.5", "0.0000001k", "GB"])
def test_invalid_sizes_are_refused(size: str, digits: Path, nmpsim_cli: Any) -> None:
    done = nmpsim_cli("run", digits, "--input", SEVEN, "--max-memory", size)
    if size == "1.5":  # one byte and a half is one byte
        assert "MEM001" in done.stderr
    else:
        assert "ARG001" in done.stderr
    assert done.exit_code == 2


@pytest.mark.parametrize(
    ("size", "nbytes"),
    [("1k", 1000), ("1KiB", 1024), ("2M", 2_000_000), ("1.5GiB", 3 << 29), ("1 TB", 10**12)],
)
def test_sizes_are_parsed(size: str, nbytes: int) -> None:
    from nmpsim.cli.options import _Size

    assert _Size().convert(size, None, None) == nbytes


def test_a_decompression_bomb_is_refused(digits: Path, tmp_path: Path, nmpsim_cli: Any) -> None:
    path = bomb(tmp_path / "d.npz", 200_000, 1, 1, 8, 8, labels=np.zeros(200_000, np.int64))
    assert path.stat().st_size < 600_000
    words = ["eval", digits, "--dataset", path, "--labels", "labels", "--max-memory", "100MB"]
    done = nmpsim_cli(*words)
    assert done.exit_code == 2
    assert "d.npz: error[MEM001]: reading the file needs more memory than allowed" in done.stderr
    assert "including 154 MB for the array 'data'" in done.stderr
    done = nmpsim_cli(*words, "--limit", 2)
    assert done.exit_code == 0, done.stderr


def test_a_data_set_with_a_huge_claim_is_refused(
    digits: Path, tmp_path: Path, nmpsim_cli: Any
) -> None:
    text = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,), }\n"
    labels = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    path = bomb(tmp_path / "d.npz", 2, 1, 1, 8, 8)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("labels.npy", labels)
    done = nmpsim_cli("eval", digits, "--dataset", path, "--labels", "labels")
    assert done.exit_code == 2
    assert "MEM001" in done.stderr


def test_other_compressions_are_refused(digits: Path, tmp_path: Path, nmpsim_cli: Any) -> None:
    """LZMA's header says how much memory unpacking takes: up to 4 GB."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("data.npy", SEVEN.read_bytes())
    done = nmpsim_cli("run", digits, "--input", tmp_path / "x.npz")
    assert done.exit_code == 2
    assert "an unsupported compression method" in done.stderr


def test_too_large_constants_are_refused(tmp_path: Path, nmpsim_cli: Any) -> None:
    lir, weights = tmp_path / "n.lir", tmp_path / "w.npz"
    text = (DIGITS / "digits.lir.txt").read_text()
    np.savez(weights)
    large = [f"  %huge{n} = WeightVar float<2000000000> const\n" for n in range(500)]
    text = text.replace("declare {\n", "declare {\n" + "".join(large), 1)
    lir.write_text(text.replace("size = 6560 bytes", "size = 4000000006560 bytes"))
    done = nmpsim_cli("compile", lir, "--weights", weights, "-o", tmp_path / "o.bin")
    assert done.exit_code == 2, done.output
    assert "MEM001" in done.stderr
    assert "found: 4 TB, including 8 GB for %huge0" in done.stderr


def test_exhausted_memory_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        raise MemoryError("Unable to allocate 9.00 TiB for an array")

    assert run_guarded(command, debug=False) == 2
    assert capsys.readouterr().err.splitlines()[:2] == [
        "error[MEM002]: there is not enough memory",
        "  found: Unable to allocate 9.00 TiB for an array",
    ]


@pytest.mark.parametrize(
    "error",
    [
        *(OSError(one, os.strerror(one)) for one in (errno.EMFILE, errno.ENFILE, errno.EAGAIN)),
        RuntimeError("can't start new thread"),
    ],
)
def test_too_few_files_or_processes_are_user_errors(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        raise error

    assert run_guarded(command, debug=False) == 2
    assert capsys.readouterr().err.startswith("error[ENV002]: the system allows too few")


def test_an_exception_of_a_rust_library_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    class PanicException(BaseException):
        """Copy of the exception that PyO3 defines."""

    def command() -> None:
        raise PanicException("called `unwrap()` on an error")

    assert run_guarded(command, debug=False) == 3
    assert capsys.readouterr().err.startswith("internal error: PanicException: called")
