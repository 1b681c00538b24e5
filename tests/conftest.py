"""Fixtures for all tests, and settings that make test runs deterministic."""

import atexit
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# Test modules import helpers such as shared_files by name, whatever pytest's import mode is.
sys.path.insert(0, str(Path(__file__).parent))

import tiers
from shared_files import shared_folder

# pytest would compile each module of nmpsim again, for better messages of assertions, because it
# contains a plugin for pytest.
for finder in sys.meta_path:
    getattr(finder, "_must_rewrite", set()).discard("nmpsim")

settings.register_profile("ci", derandomize=True, database=None, deadline=None, print_blob=True)
# Explicit, because Hypothesis is deterministic by default if the variable CI is set.
settings.register_profile(
    "campaign", derandomize=False, database=None, deadline=None, print_blob=True
)
settings.load_profile("ci")

# Collected tests are a million objects that live to the end, and syntax trees are more. The
# garbage collector would visit all of them after each 700 new objects, and again at the exit.
gc.disable()
gc.set_threshold(50_000)
atexit.register(gc.freeze)

# Hypothesis also tries constants of the project's imported modules. Which modules are imported
# depends on the tests before, and with pytest-xdist on the worker.
providers.is_local_module_file = lambda path: False


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores SIGINT; processes that tests start would inherit this.
    signal.signal(signal.SIGINT, signal.default_int_handler)


COMPILE_ALL_KERNELS = """
import pathlib, sys
import nmpsim
from nmpsim.config import default_device
from nmpsim.core.engine_selection import make_compiled_engine
from nmpsim.core.load import make_empty_machine
from nmpsim.timing import get_costs
try:
    engine = make_compiled_engine()
    engine.run(make_empty_machine(), get_costs(default_device()), 0, False)
    engine.compile_all()
    nmpsim.compile(sys.argv[2])  # the kernels of the tiling search
finally:
    pathlib.Path(sys.argv[1]).touch()
"""
MODEL = Path(__file__).parent / "fuzz" / "corpus" / "tflite" / "small-int8.tflite"
WITHOUT_KERNELS = ("architecture", "interpreter", "kernels", "lir", "memory", "numerics")
"""Folders of tests that load no kernels from the kernel cache; they run first."""
_compiling: list["subprocess.Popen[bytes]"] = []
_corpora: list[str] = []
MAX_COLLECTION_SECONDS = 120
MAX_COMPILATION_SECONDS = 600


def pytest_configure(config: pytest.Config) -> None:
    """Compile all kernels in a process of its own if several workers run all tests.

    Otherwise each worker would compile the same kernels at the same time. Bytecode that must not
    be written to the sources is written to the session's folder.
    """
    tiers.run["slow"] = config.option.markexpr != "not slow"
    if hasattr(config, "workerinput"):
        return
    _corpora.append(tempfile.mkdtemp(prefix="nmpsim-tests-"))
    os.environ[tiers.FOLDER] = _corpora[-1]
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(_corpora[-1], "bytecode"))
    are_all = config.args_source == pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    compiled = _session_file("compiled")
    if not are_all or not config.getoption("numprocesses", None):
        compiled.touch()
    else:
        quiet = subprocess.DEVNULL  # the tests of the kernels report their errors
        command = [sys.executable, "-c", COMPILE_ALL_KERNELS, str(compiled), str(MODEL)]
        _compiling.append(subprocess.Popen(command, stdout=quiet, stderr=quiet))


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let the first worker collect before the others, which then find its bytecode.

    Rewriting the assertions of all test modules takes longer than anything else in a collection.
    """
    worker = getattr(session.config, "workerinput", {}).get("workerid", "gw0")
    if worker != "gw0":
        _wait_for_file("collected", MAX_COLLECTION_SECONDS)


def pytest_collection_finish() -> None:
    """Collect garbage from now on, and tell other workers that the bytecode of tests exists."""
    gc.freeze()
    gc.enable()
    _session_file("collected").touch()


def _session_file(name: str) -> Path:
    return Path(os.environ[tiers.FOLDER], name)


def _wait_for_file(name: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not _session_file(name).exists() and time.monotonic() < deadline:
        time.sleep(0.1)


def _needs_kernels(item: pytest.Item) -> bool:
    return item.path.parent.name not in WITHOUT_KERNELS


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Wait for the kernels before the first test that needs them."""
    if _needs_kernels(item):
        _wait_for_file("compiled", MAX_COMPILATION_SECONDS)


def pytest_unconfigure() -> None:
    """Stop all compilations and delete the corpus folders."""
    for process in _compiling:
        process.kill()
        process.wait()
    for folder in _corpora:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow tests first, because at the end one worker would wait for the other.

    Each worker begins with its share of the tests that need no kernels.
    """
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    groups = [[one for one in items if _needs_kernels(one) is needed] for needed in (False, True)]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    items[:] = [
        one
        for worker in range(workers)
        for group in groups
        for one in group[len(group) * worker // workers : len(group) * (worker + 1) // workers]
    ]


@pytest.fixture(autouse=True)
def numbers_begin_anew(request: pytest.FixtureRequest) -> None:
    """Reset the ``RNG`` of a test module, so that each test draws the same numbers in any order."""
    generator: Any = getattr(request.module, "RNG", None)
    if generator is not None:
        kept = vars(request.module).setdefault("_RNG_BEGIN", generator.bit_generator.state)
        generator.bit_generator.state = kept


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of reference files; skip the test if it does not exist."""
    folder = shared_folder()
    if not folder.is_dir():
        pytest.skip(f"no reference files at {folder}")
    return folder
