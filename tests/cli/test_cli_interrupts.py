"""Test that Ctrl-C ends every command with exit code 130, without processes or partial files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import pytest

from nmpsim.bundle.assembly import assemble
from nmpsim.config import default_device
from nmpsim.core.compiled.issue import IS_JIT_DISABLED

pytestmark = pytest.mark.skipif(
    IS_JIT_DISABLED or not Path("/proc/self/stat").exists(),
    reason="needs kernels, and to see processes",
)
LOOP = "_start: j _start"
CLASSIFIER = """
    .input data, i8[S:0.5 O:0]<1 x 4>
    .output prob, float<1 x 6>
    _start: j _start
"""
# Says when the engine is at work, then is nmpsim.
TELLING = """
import sys
from pathlib import Path
{patch}
from nmpsim.cli import main
main()
"""
ENGINE_RUNS = """
import importlib
engine = importlib.import_module("nmpsim.core.{name}.engine").{kind}
run = engine.run
def telling(self, machine, costs, turns, *more):
    if turns:
        Path({ready!r}).touch()
    return run(self, machine, costs, turns, *more)
engine.run = telling
"""
ENGINES = {"compiled": "CompiledEngine", "reference": "ReferenceEngine"}


@pytest.fixture
def bundle(tmp_path: Path) -> Callable[[str], Path]:
    def make(text: str) -> Path:
        path = tmp_path / "program.bin"
        device = attrs.evolve(default_device(), limits_cycles=1 << 62)
        path.write_bytes(assemble(text, "program.s", device.settings()).build_bundle())
        return path

    return make


class Running:
    """Command that runs in a separate session."""

    def __init__(self, code: str, *words: object, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **environment},
            # What was started in the background may have been told to ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 500
        while not is_so():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def end(self, signal_number: int = signal.SIGINT) -> tuple[int, str]:
        """Wait until no process of the session is left; return the exit code and the output."""
        self.process.send_signal(signal_number)
        try:
            _, said = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise
        deadline = time.monotonic() + 60
        while left := self.processes():
            assert time.monotonic() < deadline, left
            time.sleep(0.02)
        return self.process.returncode, said

    def processes(self) -> list[str]:
        """Return the running processes of the session."""
        return [text for text in map(_stat, Path("/proc").glob("[0-9]*")) if self._is_ours(text)]

    def _is_ours(self, text: str) -> bool:
        fields = text.rpartition(")")[2].split()
        return bool(fields) and int(fields[3]) == self.process.pid and fields[0] != "Z"


def _stat(folder: Path) -> str:
    try:
        return (folder / "stat").read_text()
    except OSError:
        return ""


def make_script(engine: str, ready: Path) -> str:
    patch = ENGINE_RUNS.format(name=engine, kind=ENGINES[engine], ready=str(ready))
    return TELLING.format(patch=patch)


@pytest.mark.parametrize(
    ("engine", "threads"), [("compiled", 1), ("compiled", 3), ("reference", 1)]
)
def test_an_endless_program_is_interrupted(
    bundle: Callable[[str], Path], tmp_path: Path, engine: str, threads: int
) -> None:
    ready = tmp_path / "ready"
    options = ("--engine", engine, "--threads", threads, "--save-layers", tmp_path / "layers.npz")
    running = Running(make_script(engine, ready), "run", bundle(LOOP), *options)
    running.wait_until(ready.exists)
    code, said = running.end()
    assert (code, said.splitlines()[-1]) == (130, "interrupted")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.bin", "ready"]


REFUSED = """
import threading
from nmpsim.cli import main
def refuse(thread):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
main()
"""


def test_a_host_without_threads_is_interrupted() -> None:
    asked = [sys.executable, "-c", REFUSED, "--version"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


THREADLESS = """
import os, signal
import nmpsim.cli.app as app
from nmpsim.cli import interrupt, main
def refuse(*_):
    raise RuntimeError("can't start new thread")
interrupt.start_new_thread = refuse
app.check_import_memory = lambda: os.kill(os.getpid(), signal.SIGINT)
main()
"""


def test_a_library_without_threads_gives_an_error() -> None:
    """As OpenBLAS does while NumPy is imported."""
    asked = [sys.executable, "-c", THREADLESS, "run", "program.bin"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error[ENV002]: the system allows too few")


def test_endless_debugger_commands_are_interrupted(
    bundle: Callable[[str], Path], tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    running = Running(make_script("compiled", ready), "debug", bundle(LOOP), "-c", "continue")
    running.wait_until(ready.exists)
    assert running.end()[0] == 130


IN_LLVM = """
from numba.core.codegen import CPUCodeLibrary
optimize = CPUCodeLibrary._optimize_final_module
def telling(self):
    Path({ready!r}).touch()
    optimize(self)
CPUCodeLibrary._optimize_final_module = telling
"""


def test_a_first_compilation_is_interrupted(bundle: Callable[[str], Path], tmp_path: Path) -> None:
    ready, cache = tmp_path / "ready", tmp_path / "cache"
    code = TELLING.format(patch=IN_LLVM.format(ready=str(ready)))
    words = ("run", bundle(LOOP), "--engine", "compiled")
    running = Running(code, *words, NUMBA_CACHE_DIR=str(cache))
    running.wait_until(ready.exists)
    code_, said = running.end()
    assert (code_, said.splitlines()[-1]) == (130, "interrupted")
    assert not list(cache.rglob("*.tmp"))


STUCK = """
import ctypes
from nmpsim.atomic import open_new_file
import nmpsim.cli.commands.run as command
def stuck(request, *_):
    with open_new_file(request.output) as file:
        file.write(b"half")
        Path({ready!r}).touch()
        mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
        while True:
            libc.pthread_mutex_lock(mutex)  # the second time it waits for itself, signals or not
command._run = stuck
"""


def test_a_call_outside_python_is_interrupted(
    bundle: Callable[[str], Path], tmp_path: Path
) -> None:
    ready, out = tmp_path / "ready", tmp_path / "out"
    out.mkdir()
    code = TELLING.format(patch=STUCK.format(ready=str(ready)))
    running = Running(code, "run", bundle(LOOP), "-o", out / "report")
    running.wait_until(ready.exists)
    assert len(list(out.iterdir())) == 1
    assert running.end() == (130, "interrupted\n")
    assert list(out.iterdir()) == [], "what was half-written is gone"


@pytest.mark.slow
def test_an_endless_evaluation_is_interrupted(
    bundle: Callable[[str], Path], tmp_path: Path
) -> None:
    np.savez(tmp_path / "set.npz", data=np.zeros((8, 1, 4), np.int8), labels=np.zeros(8, int))
    words = ("eval", bundle(CLASSIFIER), "--dataset", tmp_path / "set.npz", "--labels", "labels")
    running = Running(TELLING.format(patch=""), *words, "--jobs", 2)

    def workers_compute() -> bool:
        """Return whether worker processes compute; the main process is soon idle."""
        times = [int(one.rpartition(")")[2].split()[11]) for one in running.processes()]
        return sum(ticks > 3 * os.sysconf("SC_CLK_TCK") for ticks in times) >= 2

    running.wait_until(workers_compute)
    code, said = running.end()
    assert (code, said.splitlines()[-1]) == (130, "interrupted")


NOW = """
import atexit, signal, time
import nmpsim.cli.commands.device as command
from nmpsim.cli import interrupt
def now(*_):
    signal.raise_signal(signal.SIGINT)
class Half:
    def __del__(self):
        raise AttributeError("it was never made")
class Interrupted:
    def __del__(self):
        now()
def command_(request):
{body}
command.command.callback = lambda **_: command_(None)
"""
WHILE_IT_IS_TOLD = """
    words = interrupt._watcher.message
    def slowly():
        said = words()
        now()
        time.sleep(0.3)
        return said
    interrupt._watcher.message = slowly
    now()
"""
WITH_HALF_AN_OBJECT = """
    half = Half()
    now()
"""
WHILE_AN_OBJECT_ENDS = """
    Interrupted()
    time.sleep(10)
"""
WHILE_THE_GUARD_ENDS_IT = """
    end = interrupt._watcher.end
    def twice():
        interrupt._watcher.end = end
        now()
    interrupt._watcher.end = twice
    now()
"""
AS_ANOTHER_ERROR = """
    try:
        now()
    except KeyboardInterrupt as error:
        raise RuntimeError("Error calling __set_name__") from error
"""  # as Python up to 3.11 raises it where a class is made
AT_ONCE = NOW.format(body=AS_ANOTHER_ERROR) + "interrupt.watch_interrupts = lambda: command_(0)"


@pytest.mark.parametrize(
    "patch",
    [
        NOW.format(body=WHILE_IT_IS_TOLD),
        NOW.format(body=WITH_HALF_AN_OBJECT),
        NOW.format(body=WHILE_AN_OBJECT_ENDS),
        NOW.format(body=WHILE_THE_GUARD_ENDS_IT),
        NOW.format(body=AS_ANOTHER_ERROR),
        AT_ONCE,
    ],
    ids=["again", "half", "object", "guard", "other", "at once"],
)
def test_only_one_message_is_printed(patch: str) -> None:
    running = Running(TELLING.format(patch=patch), "device")
    _, said = running.process.communicate(timeout=60)
    assert (running.process.returncode, said) == (130, "interrupted\n")


def test_a_finished_command_prints_no_message() -> None:
    body = "    atexit.register(now)"
    running = Running(TELLING.format(patch=NOW.format(body=body)), "device")
    _, said = running.process.communicate(timeout=60)
    assert (running.process.returncode, said) in ((0, ""), (130, "interrupted\n"))
