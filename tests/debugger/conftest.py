"""Fixtures with programs to debug; make the helpers of tests/core importable."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from corpus import compiled

from nmpsim.bundle import Bundle
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.shell import Shell

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
sys.path.insert(0, str(Path(__file__).parents[1] / "core"))


@pytest.fixture(scope="session")
def digits() -> Bundle:
    return compiled(DIGITS / "digits.lir.txt")


@pytest.fixture(scope="session")
def seven() -> dict[str, npt.NDArray[np.float32]]:
    return {"data": np.load(DIGITS / "images" / "7.npy")}


@pytest.fixture
def debugger(digits: Bundle, seven: dict[str, npt.NDArray[np.float32]]) -> Debugger:
    return Debugger(digits, seven)


@pytest.fixture
def shell(debugger: Debugger) -> Shell:
    """Return a shell on the digits network; it cannot open files."""
    return Shell(debugger, lambda path: pytest.fail(f"nobody reads {path}"))
