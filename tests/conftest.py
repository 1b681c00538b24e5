"""Fixtures for all tests, and what makes two runs of them the same."""

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
# Said aloud, as Hypothesis's own default is to repeat itself where the variable CI is set.
settings.register_profile(
    "campaign", derandomize=False, database=None, deadline=None, print_blob=True
)
settings.load_profile("ci")

# Hypothesis also tries the constants of whatever modules of the project happen to be imported. That
# depends on the tests before, and under pytest-xdist on which worker was free.
providers.is_local_module_file = lambda path: False


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a job that a shell runs in the background: what tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


KERNELS = """
from nmpsim.experiments.worker import compile_kernels
compile_kernels(None, None)
"""
_compiling: list["subprocess.Popen[bytes]"] = []
_corpora: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """All tests in several workers: kernels are compiled once, while the workers look for tests.

    Each worker would compile the same ones for itself, all at the same time.
    """
    tiers.run["slow"] = config.option.markexpr != "not slow"
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        _corpora.append(tempfile.mkdtemp(prefix="nmpsim-tests-"))
        os.environ[FOLDER] = _corpora[-1]
    are_all = config.args_source == pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    if are_all and not is_worker and config.getoption("numprocesses", None):
        quiet = subprocess.DEVNULL  # what is wrong with kernels their tests will say
        _compiling.append(
            subprocess.Popen([sys.executable, "-c", KERNELS], stdout=quiet, stderr=quiet)
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished() -> None:
    """No test is handed out before."""
    for process in _compiling:
        process.wait()


def pytest_unconfigure() -> None:
    """An interrupted session leaves no process and no file behind."""
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
    """A test module's ``RNG`` gives a test the same numbers whichever tests ran before it."""
    generator: Any = getattr(request.module, "RNG", None)
    if generator is not None:
        kept = vars(request.module).setdefault("_RNG_BEGIN", generator.bit_generator.state)
        generator.bit_generator.state = kept


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference files beside the repository; ``NMPSIM_SHARED`` overrides it."""
    folder = shared_folder()
    if not folder.is_dir():
        pytest.skip(f"no reference files at {folder}")
    return folder
