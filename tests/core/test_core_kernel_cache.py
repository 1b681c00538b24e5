"""Old folders of kernels are removed, but none that a process uses."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmpsim.core import kernel_cache
from nmpsim.core.kernel_cache import (
    MARK,
    MAX_UNUSED_FOLDERS,
    MAX_UNUSED_SECONDS,
    mark_folder_used,
    remove_unused_folders,
)
from nmpsim.kernels.cache_folder import CacheFolder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")


@pytest.fixture(autouse=True)
def _clear_marks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    marks: dict[Path, int] = {}
    monkeypatch.setattr(kernel_cache, "_marks", marks)
    yield
    for file in marks.values():
        os.close(file)


def make_kernel_folder(parent: Path, name: str, days: float, *, marked: bool = True) -> Path:
    """Create a folder of kernels that was last used ``days`` days ago."""
    folder = CacheFolder(parent / f"kernels-{name}")
    folder.write("run-1", b"code")
    when = time.time() - days * MAX_UNUSED_SECONDS
    if marked:
        (folder.path / MARK).touch()
        os.utime(folder.path / MARK, (when, when))
    os.utime(folder.path, (when, when))
    return folder.path


def names(parent: Path) -> set[str]:
    return {path.name.removeprefix("kernels-") for path in parent.iterdir()}


def test_the_first_user_of_a_new_folder_removes_old_ones(tmp_path: Path) -> None:
    for day in range(2, 9):
        make_kernel_folder(tmp_path, f"old{day}", day, marked=day % 2 == 0)
    make_kernel_folder(tmp_path, "today", 0.5)
    new = CacheFolder(make_kernel_folder(tmp_path, "new", 0, marked=False))
    mark_folder_used(new)
    left = {f"old{day}" for day in range(2, 2 + MAX_UNUSED_FOLDERS)}
    assert names(tmp_path) == {"new", "today", *left}
    assert new.read("run-1") == b"code"
    make_kernel_folder(tmp_path, "older", 30)
    mark_folder_used(CacheFolder(new.path))
    assert "older" in names(tmp_path), "it looks only once"


def test_a_folder_that_a_process_uses_stays(tmp_path: Path) -> None:
    folders = [make_kernel_folder(tmp_path, f"old{day}", day) for day in range(2, 9)]
    script = (
        "import sys, pathlib; from nmpsim.core import kernel_cache;"
        "from nmpsim.kernels.cache_folder import CacheFolder;"
        "kernel_cache.mark_folder_used(CacheFolder(pathlib.Path(sys.argv[1])));"
        "print('used', flush=True); input()"
    )
    command = [sys.executable, "-c", script, str(folders[-1])]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == "used\n"
        long_ago = time.time() - 30 * MAX_UNUSED_SECONDS
        os.utime(folders[-1] / MARK, (long_ago, long_ago))
        remove_unused_folders(tmp_path)
        assert folders[-1].is_dir()
        user.communicate("\n")
    remove_unused_folders(tmp_path)
    assert not folders[-1].exists()


def test_other_folders_stay(tmp_path: Path) -> None:
    parent, elsewhere = tmp_path / "cache", tmp_path / "else"
    elsewhere.mkdir()
    for day in range(10, 10 + MAX_UNUSED_FOLDERS):
        make_kernel_folder(parent, f"old{day}", day)
    (elsewhere / "mine").write_text("mine")
    (parent / "kernels-link").symlink_to(elsewhere)
    (parent / "kernels-file").touch()
    (parent / "complete-1").touch()
    old = make_kernel_folder(parent, "shared", 40)
    old.chmod(0o777)
    left = names(parent)
    remove_unused_folders(parent)
    assert names(parent) == left
    assert (elsewhere / "mine").exists()


def test_a_partly_removed_folder_is_removed(tmp_path: Path) -> None:
    make_kernel_folder(tmp_path, "old", 9).rename(tmp_path / "removing-kernels-old")
    remove_unused_folders(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_not_created(tmp_path: Path) -> None:
    mark_folder_used(CacheFolder(tmp_path / "kernels-1"))
    mark_folder_used(None)
    assert not list(tmp_path.iterdir())
