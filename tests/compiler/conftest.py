"""Make the helper modules of this folder and of the conformance tests importable by name."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]


@pytest.fixture(autouse=True)
def whole_layers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the number of runs before layers are proved to one."""
    monkeypatch.setattr("nmpsim.core.device.RUNS_BEFORE_PROOF", 1)
