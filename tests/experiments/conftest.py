"""Fixtures with the digits network, and one state of the sources for all results."""

import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from corpus import compile_image

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


@pytest.fixture
def digits():
    return DIGITS


@pytest.fixture
def seven():
    return np.load(DIGITS / "images" / "7.npy")


@pytest.fixture(scope="session")
def digits_bin(tmp_path_factory):
    path = tmp_path_factory.mktemp("digits") / "digits.bin"
    path.write_bytes(compile_image(DIGITS / "digits.lir.txt"))
    return path


@pytest.fixture
def cli():
    """Run a command line within this process; its workers are processes all the same."""
    from nmpsim.cli.app import app

    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def start():
    """Return the command line that starts nmpsim as a process."""
    return lambda *words: [sys.executable, "-m", "nmpsim", *map(str, words)]
