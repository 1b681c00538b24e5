"""Runs with a cache of kernels that is damaged, full, read-only, or filled by two at once.

Only the smallest of the kernels that every run needs is ever missing: to compile all would take
half a minute each time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nmpsim.bundle.assembly import assemble
from nmpsim.config import default_device
from nmpsim.core.compiled.issue import IS_JIT_DISABLED
from nmpsim.kernels.entries import CACHE

pytestmark = pytest.mark.skipif(
    IS_JIT_DISABLED or CACHE is None, reason="nothing is compiled, or nothing can be kept"
)
SMALL = "replay.execute_epochs-*"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program that halts at once, with its kernels in the user's cache."""
    path = tmp_path_factory.mktemp("program") / "halt.bin"
    path.write_bytes(
        assemble("_start: nmp.halt", "halt.s", default_device().settings()).build_bundle()
    )
    done = subprocess.run(words(path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return path


def words(program: Path) -> list[str]:
    return [sys.executable, "-m", "nmpsim", "run", "--engine", "compiled", str(program)]


def start(program: Path, cache: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words(program),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
    )


def finish(running: subprocess.Popen[str]) -> None:
    out, err = running.communicate(timeout=600)
    assert running.returncode == 0, err
    assert "cycles" in out
    assert "Traceback" not in err


def copy_cache(cache: Path) -> Path:
    """Copy the user's kernels to another cache and return their folder."""
    assert CACHE is not None
    return Path(shutil.copytree(CACHE.path, cache / CACHE.path.name))


def find_small_file(folder: Path) -> Path:
    (path,) = folder.glob(SMALL)
    return path


def empty_file(path: Path) -> None:
    path.write_bytes(b"")


def truncate_file(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def remove_file(path: Path) -> None:
    path.unlink()


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "damage",
    [pytest.param(empty_file, marks=SLOW), pytest.param(truncate_file, marks=SLOW), flip_bit],
)
def test_a_damaged_entry_is_compiled_again(
    program: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = find_small_file(copy_cache(tmp_path))
    size = path.stat().st_size
    damage(path)
    finish(start(program, tmp_path))
    assert path.stat().st_size == pytest.approx(size, rel=0.01)
    before = path.stat().st_mtime_ns
    finish(start(program, tmp_path))
    assert path.stat().st_mtime_ns == before, "it is used again"


@SLOW
def test_two_simultaneous_first_runs_succeed(program: Path, tmp_path: Path) -> None:
    folder = copy_cache(tmp_path)
    names = sorted(path.name for path in folder.iterdir())
    remove_file(find_small_file(folder))
    for running in [start(program, tmp_path) for _ in range(2)]:
        finish(running)
    assert sorted(path.name for path in folder.iterdir()) == names


@contextmanager
def mount_file_system(folder: Path, options: str) -> Iterator[None]:
    """Mount a separate file system, or skip the test if that is not possible."""
    command = ["mount", "-t", "tmpfs", "-o", options, "nmpsim-test", str(folder)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk_changes_no_result(program: Path, tmp_path: Path) -> None:
    with mount_file_system(tmp_path, "size=16m,mode=700"):
        folder = copy_cache(tmp_path)
        remove_file(find_small_file(folder))
        kept = sorted(folder.iterdir())
        filler = (tmp_path / "filler").open("wb", buffering=0)
        with filler, pytest.raises(OSError, match="space"):
            while True:
                filler.write(b"\0" * 4096)
        finish(start(program, tmp_path))
        assert sorted(folder.iterdir()) == kept


@pytest.mark.slow
def test_a_read_only_cache_changes_no_result(program: Path, tmp_path: Path) -> None:
    with mount_file_system(tmp_path, "size=16m,mode=700"):
        folder = copy_cache(tmp_path)
        remove_file(find_small_file(folder))
        kept = sorted(folder.iterdir())
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path)], check=True)
        finish(start(program, tmp_path))
        assert sorted(folder.iterdir()) == kept
