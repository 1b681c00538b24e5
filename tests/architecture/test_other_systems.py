"""Test nmpsim without features that only some systems have, removing one in each test."""

from __future__ import annotations

import builtins
import importlib
import os
import signal
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import pytest

from nmpsim import atomic, host_memory, subprocesses
from nmpsim.core.limits import count_available_processors
from nmpsim.experiments import process_pool
from nmpsim.kernels import cache_folder


@pytest.fixture
def no_module(monkeypatch: pytest.MonkeyPatch):
    """Return a function that makes the import of a module fail."""
    real = builtins.__import__

    def without(name: str) -> None:
        def importing(wanted: str, *more: object, **others: object):
            if wanted == name:
                raise ModuleNotFoundError(name)
            return real(wanted, *more, **others)

        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setattr(builtins, "__import__", importing)
        monkeypatch.setattr(
            importlib, "import_module", lambda wanted, package=None: importing(wanted)
        )

    return without


@pytest.fixture
def no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "_read", lambda path: None)


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate Windows, which has no ``fcntl`` and cannot rename an open file."""
    monkeypatch.setattr(atomic, "fcntl", None)
    monkeypatch.setattr(os, "dup", lambda descriptor: pytest.fail("a second descriptor"))
    atomic._remove_left_over.cache_clear()


def test_processors_are_counted_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert count_available_processors() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert count_available_processors() == 1


def test_memory_without_proc_comes_from_psutil(
    no_proc: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    psutil = SimpleNamespace(virtual_memory=lambda: SimpleNamespace(available=8_000))
    monkeypatch.setitem(sys.modules, "psutil", psutil)
    assert host_memory.get_available_memory() == 8_000
    assert host_memory.get_default_memory_limit() == 7_000


def test_memory_without_psutil_comes_from_the_c_library(
    no_proc: None, no_module, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_module("psutil")
    monkeypatch.setattr(os, "sysconf_names", {"SC_AVPHYS_PAGES": 86}, raising=False)
    told = {"SC_AVPHYS_PAGES": 3, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", told.__getitem__, raising=False)
    assert host_memory.get_available_memory() == 12_288


@pytest.mark.parametrize("lacks", ["sysconf_names", "name", "number"])
def test_unknown_memory_is_assumed(
    no_proc: None, no_module, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """Windows has no ``sysconf``, macOS no such name, and a number may be -1."""
    no_module("psutil")
    if lacks == "number":
        told = {"SC_AVPHYS_PAGES": -1, "SC_PAGE_SIZE": 4096}
        monkeypatch.setattr(os, "sysconf", told.__getitem__, raising=False)
    elif lacks == "name":
        monkeypatch.delitem(os.sysconf_names, "SC_AVPHYS_PAGES", raising=False)
    else:
        monkeypatch.delattr(os, "sysconf_names", raising=False)
    assert host_memory.get_available_memory() == host_memory.ASSUMED_BYTES
    host_memory.check_compile_memory()
    host_memory.check_import_memory()


def test_files_are_written_without_locks(no_locks: None, tmp_path: Path) -> None:
    target = tmp_path / "out"
    for contents in (b"old", b"new"):
        atomic.write_file(target, lambda file, it=contents: file.write(it))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("out", b"new")]


def test_a_failed_write_without_locks_leaves_nothing(no_locks: None, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        atomic.write_file(tmp_path / "out", lambda file: 1 // 0)
    assert list(tmp_path.iterdir()) == []


def test_without_locks_only_old_files_are_left_over(no_locks: None, tmp_path: Path) -> None:
    young, old = (tmp_path / f".nmpsim-{12 * digit}.tmp" for digit in "ab")
    folder = tmp_path / f".nmpsim-{12 * 'c'}.tmp"
    folder.mkdir()
    for path, age in ((young, 60), (old, 2 * atomic.LEFT_OVER_SECONDS)):
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age,) * 2)
    os.utime(folder, (0, 0))
    atomic.write_file(tmp_path / "out", lambda file: file.write(b"whole"))
    assert young.exists() and folder.exists() and not old.exists()


@pytest.mark.parametrize("name", ["con", "NUL", "aux.conv", "COM1", "lpt9.a.b"])
def test_names_of_windows_devices_name_files(name: str) -> None:
    found = atomic.make_file_name(name)
    assert found.startswith(f"_{name}-")
    assert found != atomic.make_file_name(f"_{name}")
    assert atomic.make_file_name(f"{name[0]}_{name}") == f"{name[0]}_{name}"


def test_kernels_are_cached_without_file_owners(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("geteuid", "fchmod", "O_NONBLOCK"):
        monkeypatch.delattr(os, name, raising=False)
    folder = cache_folder.CacheFolder(tmp_path / "kernels")
    folder.write("name", b"code")
    assert folder.read("name") == b"code"
    assert cache_folder.is_trusted(folder.path)


def test_a_pool_starts_without_blocked_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "pthread_sigmask", raising=False)
    with subprocesses.block_interrupts():
        pass


def test_a_pool_has_at_most_61_processes_on_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert process_pool.choose_jobs(500, 1000) == 500
    monkeypatch.setattr(process_pool, "sys", SimpleNamespace(platform="win32"))
    assert [process_pool.choose_jobs(n, 1000) for n in (500, 61, 3)] == [61, 61, 3]
    assert process_pool.choose_jobs(500, 5) == 5


@pytest.mark.parametrize("how", ["closed", "broken"])
def test_a_process_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The end of the parent is the end of a file, or on Windows an error."""

    class EndedError(Exception):
        pass

    def end(code: int) -> None:
        raise EndedError(code)

    class Broken:
        def poll(self, timeout: object) -> None:
            raise BrokenPipeError

    reading, writing = Pipe(duplex=False)
    writing.close()
    monkeypatch.setattr(process_pool.os, "_exit", end)
    with pytest.raises(EndedError, match="1"):
        process_pool._end_with_parent(Broken() if how == "broken" else reading)
    reading.close()


def test_completion_works_without_readline(no_module) -> None:
    from nmpsim.cli.commands import debug

    no_module("readline")
    debug._enable_completion(SimpleNamespace())


@pytest.mark.parametrize(
    ("library", "binding"),
    [("GNU readline", "tab: complete"), ("libedit readline", "bind ^I rl_complete")],
)
def test_completion_works_with_each_library(
    monkeypatch: pytest.MonkeyPatch, library: str, binding: str
) -> None:
    from nmpsim.cli.commands import debug

    bound: list[str] = []
    module = SimpleNamespace(
        __doc__=library,
        set_completer_delims=lambda text: None,
        set_completer=lambda function: None,
        parse_and_bind=bound.append,
    )
    monkeypatch.setitem(sys.modules, "readline", module)
    debug._enable_completion(SimpleNamespace())
    assert bound == [binding]


INTERRUPTED = """
import os, signal, sys, threading
sys.modules["termios"] = None  # there is none on Windows
from nmpsim.cli import interrupt
interrupt.WAITS_FOR_SOCKETS_ONLY = True
interrupt.os.pipe = lambda: sys.exit("a pipe")
interrupt.watch_interrupts()
signal.signal(signal.SIGINT, lambda *_: None)  # Python does not come to it
signal.raise_signal(signal.SIGINT)
threading.Event().wait(60)
"""


def test_interrupts_arrive_by_socket() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
