"""Test that files appear completely or not at all, and that temporary files are removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from nmpsim import atomic
from nmpsim.atomic import open_new_file, write_file

WRITER = """
import sys, time
from pathlib import Path
from nmpsim.atomic import open_new_file
with open_new_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def fresh() -> None:
    atomic._remove_left_over.cache_clear()


@pytest.fixture
def writer(tmp_path: Path):
    """Start a process that is writing a file."""
    started = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "out")], stdout=subprocess.PIPE
    )
    assert started.stdout is not None
    assert started.stdout.readline() == b"ready\n"
    yield started
    started.kill()
    started.communicate()


def left_over(folder: Path) -> list[Path]:
    return sorted(folder.glob(".nmpsim-*.tmp"))


def test_files_of_a_killed_process_are_removed(tmp_path: Path, writer) -> None:
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert len(left_over(tmp_path)) == 1
    write_file(tmp_path / "other", lambda file: file.write(b"whole"))
    assert left_over(tmp_path) == []
    assert (tmp_path / "other").read_bytes() == b"whole"
    assert not (tmp_path / "out").exists()


def test_files_of_another_process_stay(tmp_path: Path, writer) -> None:
    assert len(left_over(tmp_path)) == 1
    write_file(tmp_path / "other", lambda file: file.write(b"whole"))
    assert len(left_over(tmp_path)) == 1


def test_files_of_this_process_stay(tmp_path: Path) -> None:
    with open_new_file(tmp_path / "a") as a:
        a.write(b"a")
        atomic._remove_left_over.cache_clear()
        write_file(tmp_path / "b", lambda file: file.write(b"b"))
        a.close()
        atomic._remove_left_over.cache_clear()
        write_file(tmp_path / "c", lambda file: file.write(b"c"))
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"a": "a", "b": "b", "c": "c"}


def test_only_temporary_files_of_nmpsim_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".nmpsim-000000000000.tmp").symlink_to(tmp_path / "precious")
    (tmp_path / "precious").write_text("kept")
    (tmp_path / ".nmpsim-notours.tmp").write_text("kept")
    (tmp_path / ".nmpsim-0123456789ab.tmp").mkdir()
    os.mkfifo(tmp_path / ".nmpsim-0123456789ac.tmp")
    write_file(tmp_path / "out", lambda file: file.write(b"x"))
    assert (tmp_path / "precious").read_text() == "kept"
    assert (tmp_path / ".nmpsim-notours.tmp").read_text() == "kept"
    assert (tmp_path / ".nmpsim-0123456789ab.tmp").is_dir()


def test_a_file_system_without_locks_keeps_new_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def refused(*_: object) -> None:
        raise OSError("no locks here")

    stale = tmp_path / ".nmpsim-0123456789ab.tmp"
    stale.write_text("whose?")
    monkeypatch.setattr(fcntl, "flock", refused)
    write_file(tmp_path / "out", lambda file: file.write(b"x"))
    assert (tmp_path / "out").read_bytes() == b"x"
    assert stale.exists()


def test_names_stay_in_the_folder(tmp_path: Path) -> None:
    keys = [
        "0010:conv",
        "input/data",
        "../../evil",
        "/etc/evil",
        "a/../../b",
        "..\\x",
        "C:\\x",
        "..",
    ]
    folder = tmp_path / "unpacked"
    atomic.write_npz(tmp_path / "o.npz", {key: np.zeros(1) for key in keys})
    with zipfile.ZipFile(tmp_path / "o.npz") as archive:
        names = archive.namelist()
    assert names[:2] == ["0010:conv.npy", "input/data.npy"]
    assert len(set(names)) == len(keys)
    for name in names:
        path = Path(os.path.normpath(folder / name))
        assert path.is_relative_to(folder)
        assert "\\" not in name


@pytest.mark.parametrize(
    "text", ["../x", "..", "/etc/passwd", "a/b", "a\\b", "", "\x00", "x" * 999]
)
def test_any_text_gives_a_file_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / f"{atomic.make_file_name(text)}.core"
    assert Path(os.path.normpath(path)).parent == tmp_path
    path.write_bytes(b"")
