"""Test the compilation of kernels in the background."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nmpsim.cli.environment import BACKGROUND_SETTING, choose_engine, is_background_compile_enabled
from nmpsim.core import background_compile as module
from nmpsim.core.background_compile import RETRY_SECONDS, KernelCacheStatus, get_kernel_cache_status
from nmpsim.core.compiled.engine import CompiledEngine
from nmpsim.kernels.cache_folder import open_cache_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing is compiled ahead here")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    open_cache_folder.cache_clear()
    yield tmp_path / "cache"
    open_cache_folder.cache_clear()


@pytest.fixture
def popen_calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the recorded calls of ``Popen``, which starts no process."""
    calls: list[dict[str, Any]] = []

    class Nothing:
        def __init__(self, command: list[str], **how: Any) -> None:
            calls.append({"command": command, **how})

    monkeypatch.setattr(subprocess, "Popen", Nothing)
    return calls


def start_background_compile(host: str = "") -> None:
    module.start_background_compile(os.environ["NUMBA_CACHE_DIR"], host)


def compile_all_kernels() -> None:
    module.compile_all_kernels(os.environ["NUMBA_CACHE_DIR"], "")


def get_status() -> KernelCacheStatus:
    found = get_kernel_cache_status(os.environ["NUMBA_CACHE_DIR"], "")
    assert found is not None
    return found


def test_background_compilation_is_off_in_ci_unless_requested() -> None:
    assert is_background_compile_enabled({})
    assert not any(
        is_background_compile_enabled({name: "1"})
        for name in ("CI", "PYTEST_VERSION", "NUMBA_DISABLE_JIT")
    )
    assert is_background_compile_enabled({BACKGROUND_SETTING: "1", "CI": "true"})
    assert not is_background_compile_enabled({BACKGROUND_SETTING: "0"})
    assert is_background_compile_enabled({BACKGROUND_SETTING: "", "CI": ""})


def test_only_automatic_selection_starts_a_process(
    popen_calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BACKGROUND_SETTING, "1")
    assert [choose_engine(name) for name in ("compiled", "reference")] == ["compiled", "reference"]
    assert choose_engine("auto", runs_often=True) == "compiled"
    assert popen_calls == []
    assert choose_engine("auto") == "auto"
    assert len(popen_calls) == 1
    monkeypatch.setenv(BACKGROUND_SETTING, "0")
    assert choose_engine("auto") == "auto"
    assert len(popen_calls) == 1


def test_the_process_is_silent_and_survives_the_command(popen_calls: list[dict[str, Any]]) -> None:
    start_background_compile()
    (how,) = popen_calls
    assert how["start_new_session"]
    assert {how["stdin"], how["stdout"], how["stderr"]} == {subprocess.DEVNULL}
    assert "-P" in how["command"], "files of the folder at hand are no modules"


def test_no_process_starts_if_all_kernels_are_cached(
    cache: Path, popen_calls: list[dict[str, Any]]
) -> None:
    (cache / "kernels-1").mkdir(parents=True, mode=0o700)
    cache.chmod(0o700)
    get_status().folder.write(get_status().note, b"kernels-1")
    start_background_compile()
    assert popen_calls == []
    (cache / "kernels-1").rmdir()
    start_background_compile()
    assert len(popen_calls) == 1


def test_kernels_of_another_processor_do_not_count(
    cache: Path, popen_calls: list[dict[str, Any]]
) -> None:
    (cache / "kernels-1").mkdir(parents=True, mode=0o700)
    cache.chmod(0o700)
    get_status().folder.write(get_status().note, b"kernels-1")
    start_background_compile(host="another")
    assert len(popen_calls) == 1


def test_one_process_runs_at_a_time(
    popen_calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiles(_: object) -> None:
        raise AssertionError("it is not alone")

    monkeypatch.setattr(CompiledEngine, "compile_all", compiles)
    with get_status().try_lock() as is_locked:
        assert is_locked
        with get_status().try_lock() as other:
            assert not other
        compile_all_kernels()
        start_background_compile()
    assert popen_calls == []
    start_background_compile()
    assert popen_calls == [], "one that failed is not tried at once again"
    long_ago = time.time() - RETRY_SECONDS - 1
    os.utime(get_status().lock, (long_ago, long_ago))
    start_background_compile()
    assert len(popen_calls) == 1


def test_no_process_starts_without_a_writable_cache(
    cache: Path, popen_calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "access", lambda *_: False)  # as for a file system that is read
        start_background_compile()
    cache.mkdir(mode=0o700)
    cache.chmod(0o777)  # anybody could put code there
    open_cache_folder.cache_clear()
    start_background_compile()
    assert popen_calls == []


def test_a_system_without_processes_raises_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", none)
    start_background_compile()


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_complete_cache_is_marked(is_complete: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(CompiledEngine, "compile_all", lambda _: done.append("kernels"))
    monkeypatch.setattr(CompiledEngine, "run", lambda *_: done.append("loop"))
    monkeypatch.setattr(CompiledEngine, "is_complete", lambda _: is_complete)
    monkeypatch.setattr("nmpsim.core.compiled.replay.prepare_replay", lambda: done.append("replay"))
    from nmpsim.kernels import entries

    folder = open_cache_folder("kernels-1", str(get_status().folder.path))
    assert folder is not None
    folder.write("run", b"code")
    monkeypatch.setattr(entries, "CACHE", folder)
    compile_all_kernels()
    assert done == ["kernels", "replay", "loop"], "whoever finds the loop finds all"
    assert get_status().is_complete() is is_complete
    compile_all_kernels()
    assert len(done) == (3 if is_complete else 6)


def test_no_process_starts_if_memory_is_short(
    popen_calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "get_available_memory", lambda: 999_999_999)
    start_background_compile()
    assert popen_calls == []


def test_a_terminal_shows_a_notice(
    popen_calls: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(BACKGROUND_SETTING, "1")
    choose_engine("auto")
    assert capsys.readouterr().err == "", "standard error is no terminal"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    choose_engine("auto")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("note: kernels are being compiled in the background")
    assert len(popen_calls) == 2
