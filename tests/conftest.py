"""Fixtures for all tests, and settings that make test runs deterministic."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# Test modules import helpers such as shared_files by name, whatever pytest's import mode is.
sys.path.insert(0, str(Path(__file__).parent))

import tiers
from corpus import FOLDER
from shared_files import shared_folder

settings.register_profile("ci", derandomize=True, database=None, deadline=None, print_blob=True)
# Explicit, because Hypothesis is deterministic by default if the variable CI is set.
settings.register_profile(
    "campaign", derandomize=False, database=None, deadline=None, print_blob=True
)
settings.load_profile("ci")

# Hypothesis also tries constants of the project's imported modules. Which modules are imported
# depends on the tests before, and with pytest-xdist on the worker.
providers.is_local_module_file = lambda path: False


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores SIGINT; processes that tests start would inherit this.
    signal.signal(signal.SIGINT, signal.default_int_handler)


COMPILE_EVENT_LOOP = """
from nmpsim.config import default_device
from nmpsim.core.engine_selection import make_compiled_engine
from nmpsim.core.load import make_empty_machine
from nmpsim.timing import get_costs
make_compiled_engine().run(make_empty_machine(), get_costs(default_device()), 0, False)
"""
COMPILE_OTHER_KERNELS = """
from nmpsim.core.engine_selection import make_compiled_engine
make_compiled_engine().compile_all()
"""
_compiling: list["subprocess.Popen[bytes]"] = []
_corpora: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """Compile all kernels in two processes if several workers run all tests.

    Otherwise each worker would compile the same kernels at the same time.
    """
    tiers.run["slow"] = config.option.markexpr != "not slow"
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        _corpora.append(tempfile.mkdtemp(prefix="nmpsim-tests-"))
        os.environ[FOLDER] = _corpora[-1]
    are_all = config.args_source == pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    if are_all and not is_worker and config.getoption("numprocesses", None):
        quiet = subprocess.DEVNULL  # the tests of the kernels report their errors
        _compiling.extend(
            subprocess.Popen([sys.executable, "-c", code], stdout=quiet, stderr=quiet)
            for code in (COMPILE_EVENT_LOOP, COMPILE_OTHER_KERNELS)
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished() -> None:
    """Wait for the kernels before xdist distributes the first test."""
    for process in _compiling:
        process.wait()


def pytest_unconfigure() -> None:
    """Stop all compilations and delete the corpus folders."""
    for process in _compiling:
        process.kill()
        process.wait()
    for folder in _corpora:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow tests first: at the end one worker would wait for the other."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


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
