"""Test the folder of compiled kernels, and which of its files are executed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmpsim.kernels import cache_folder as cache_folder_module
from nmpsim.kernels.cache_folder import (
    CacheFolder,
    fcntl,
    is_trusted,
    open_cache_folder,
    try_lock_file,
)

needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away"
)
NOBODY = 65534


@pytest.fixture(autouse=True)
def _forget_folders() -> Iterator[None]:
    open_cache_folder.cache_clear()
    yield
    open_cache_folder.cache_clear()


@pytest.fixture
def folder(tmp_path: Path) -> CacheFolder:
    kept = CacheFolder(tmp_path / "kernels")
    kept.write("run-1", b"code")
    return kept


def open_folder(path: Path | str) -> CacheFolder | None:
    return open_cache_folder("kernels", str(path))


def test_a_stored_entry_is_found_again(folder: CacheFolder) -> None:
    assert folder.read("run-1") == b"code"
    assert folder.has_entry_with_prefix("run-")
    assert not folder.has_entry_with_prefix("load-")
    assert [path.name for path in folder.path.iterdir()] == ["run-1"]
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert (folder.path / "run-1").stat().st_mode & 0o777 == 0o600


def test_an_entry_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        kept = CacheFolder(tmp_path / "kernels")
        kept.write("run-1", b"code")
    finally:
        os.umask(before)
    assert kept.read("run-1") == b"code"


def test_no_damaged_entry_is_used(folder: CacheFolder) -> None:
    path = folder.path / "run-1"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert folder.read("run-1") is None, length
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert folder.read("run-1") is None, place
    path.write_bytes(whole + b"\0")
    assert folder.read("run-1") is None
    assert not folder.has_entry_with_prefix("run-")
    folder.write("run-1", b"made again")
    assert folder.read("run-1") == b"made again"


def test_an_entry_under_another_name_is_not_used(folder: CacheFolder) -> None:
    (folder.path / "run-1").rename(folder.path / "load-1")
    assert folder.read("load-1") is None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_an_entry_that_others_may_write_is_not_used(folder: CacheFolder, mode: int) -> None:
    (folder.path / "run-1").chmod(mode)
    assert folder.read("run-1") is None


@needs_root
def test_an_entry_of_somebody_else_is_not_used(folder: CacheFolder) -> None:
    os.chown(folder.path / "run-1", NOBODY, -1)
    assert folder.read("run-1") is None


def test_a_special_file_is_never_opened(folder: CacheFolder) -> None:
    os.mkfifo(folder.path / "run-2")
    (folder.path / "run-3").mkdir()
    (folder.path / "run-4").symlink_to("run-4")
    assert [folder.read(f"run-{n}") for n in (2, 3, 4)] == [None] * 3


def test_an_entry_replaces_a_pipe(folder: CacheFolder) -> None:
    entry = folder.path / "kernel"
    entry.unlink(missing_ok=True)
    os.mkfifo(entry)
    end = os.open(entry, os.O_RDWR | os.O_NONBLOCK)  # who writes to the pipe does not wait
    try:
        folder.write("kernel", b"code")
    finally:
        os.close(end)
    assert folder.read("kernel") == b"code"


def test_an_entry_replaces_a_link_and_keeps_its_target(folder: CacheFolder, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine")
    entry = folder.path / "kernel"
    entry.unlink(missing_ok=True)
    entry.symlink_to(mine)
    folder.write("kernel", b"code")
    assert mine.read_bytes() == b"mine"
    assert folder.read("kernel") == b"code"


def test_an_entry_replaces_a_folder_and_keeps_link_targets(
    folder: CacheFolder, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").write_bytes(b"mine")
    entry = folder.path / "kernel"
    (entry / "more").mkdir(parents=True)
    (entry / "more" / "file").write_bytes(b"")
    (entry / "link").symlink_to(mine)
    folder.write("kernel", b"code")
    assert folder.read("kernel") == b"code"
    assert (mine / "file").read_bytes() == b"mine"


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_may_write_is_not_used(folder: CacheFolder, mode: int) -> None:
    assert open_folder(folder.path.parent) is not None
    folder.path.chmod(mode)
    open_cache_folder.cache_clear()
    assert open_folder(folder.path.parent) is None
    folder.write("run-2", b"code")
    assert not (folder.path / "run-2").exists()


@needs_root
def test_a_folder_of_somebody_else_is_not_used(folder: CacheFolder) -> None:
    os.chown(folder.path, NOBODY, -1)
    assert open_folder(folder.path.parent) is None


@needs_root
def test_a_folder_inside_a_foreign_folder_is_not_used(folder: CacheFolder) -> None:
    os.chown(folder.path.parent, NOBODY, -1)
    assert open_folder(folder.path.parent) is None


def test_a_folder_inside_a_sticky_folder_is_used(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert not is_trusted(shared / "kernels")
    shared.chmod(0o1777)
    assert is_trusted(shared / "kernels"), "as /tmp, it keeps what others own"


def test_a_link_to_a_folder_is_checked_as_its_target(folder: CacheFolder, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "kernels"
    link.parent.mkdir()
    link.symlink_to(folder.path)
    assert open_folder(link.parent) is not None
    folder.path.chmod(0o777)
    open_cache_folder.cache_clear()
    assert open_folder(link.parent) is None


def test_an_impossible_folder_disables_the_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert open_folder(tmp_path / "file") is None


def test_the_folder_replaces_a_file(tmp_path: Path) -> None:
    (tmp_path / "kernels").write_text("no folder")
    kept = open_folder(tmp_path)
    assert kept is not None
    assert kept.read("run-1") is None
    assert not kept.has_entry_with_prefix("run-")
    kept.write("run-1", b"code")
    assert kept.read("run-1") == b"code"


def test_a_file_named_by_the_user_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    assert open_cache_folder("", str(tmp_path / "mine")) is None
    assert open_folder(tmp_path / "mine") is None


def test_a_user_without_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda _: "~/.cache/nmpsim")
    assert open_cache_folder("kernels", "") is None


def test_a_look_up_creates_no_folder(tmp_path: Path) -> None:
    assert open_folder(tmp_path / "a" / "b") is not None
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    kept = CacheFolder(tmp_path / "kernels")
    with monkeypatch.context() as patch:
        patch.setattr("os.fchmod", full)
        kept.write("run-1", b"code")
    assert list(kept.path.iterdir()) == []


def test_two_writers_of_one_entry_do_not_collide(tmp_path: Path) -> None:
    contents = {bytes([n]) * 200_000 for n in range(2)}
    kept = CacheFolder(tmp_path / "kernels")
    wrong: list[object] = []

    def write(mine: bytes) -> None:
        for _ in range(30):
            kept.write("run-1", mine)
            if kept.read("run-1") not in contents:
                wrong.append(kept.read("run-1"))

    threads = [threading.Thread(target=write, args=(one,)) for one in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert [path.name for path in kept.path.iterdir()] == ["run-1"]


def python(code: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    ).stdout.strip()


def test_the_default_folder_is_in_the_users_cache(tmp_path: Path) -> None:
    code = "from nmpsim.kernels import entries; print(entries.CACHE.path)"
    assert Path(python(code, NUMBA_CACHE_DIR=str(tmp_path))).parent == tmp_path


def test_settings_of_numba_stay_unchanged(tmp_path: Path) -> None:
    code = (
        "import numba; before = numba.config.CACHE_DIR\n"
        "import nmpsim.core.compiled.engine\n"
        "print(before == numba.config.CACHE_DIR == '')"
    )
    assert python(code, NUMBA_CACHE_DIR="", XDG_CACHE_HOME=str(tmp_path)) == "True"


@pytest.mark.skipif(fcntl is None, reason="there are no such locks here")
def test_one_process_at_a_time_writes_an_entry(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "kernels")

    def is_free() -> bool:
        with (folder.path / ".one.lock").open("ab") as file:
            return try_lock_file(file.fileno())

    with folder.lock_entry("one"), folder.lock_entry("two"):
        assert not is_free()
    assert is_free()
    with pytest.raises(KeyboardInterrupt), folder.lock_entry("one"):
        raise KeyboardInterrupt
    assert is_free()


@pytest.mark.skipif(fcntl is None, reason="there are no such locks here")
def test_a_process_that_waits_too_long_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_folder_module, "LOCK_SECONDS", 0.1)
    folder = CacheFolder(tmp_path / "kernels")
    with folder.lock_entry("one"), folder.lock_entry("one"):
        pass


def test_an_impossible_lock_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with CacheFolder(tmp_path / "file").lock_entry("one"):
        pass
