"""Fixtures of the command-line tests: a stand-in session, bundles and runners."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "report")]

import stand_in  # noqa: E402 - found by the line above


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> stand_in.Session:
    """Return a session without a simulator."""
    import nmpsim

    session = stand_in.Session()
    monkeypatch.setitem(sys.modules, "nmpsim.session", session)
    monkeypatch.setattr(nmpsim, "session", session, raising=False)
    return session


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Return a bundle with the inputs data and mask, and two outputs."""
    path = tmp_path / "net.bin"
    path.write_bytes(stand_in.two_inputs_image())
    return path


@pytest.fixture
def one_input(tmp_path: Path) -> Path:
    """Return a bundle whose only input is data, Int8 1x4."""
    path = tmp_path / "one.bin"
    path.write_bytes(stand_in.one_input_image())
    return path


@pytest.fixture
def nmpsim_cli() -> Callable[..., Result]:
    """Return a function that runs a command line in this process."""
    from nmpsim.cli.app import app

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def command() -> Callable[..., list[str]]:
    """Return a function that makes the command of a process with the stand-in session."""

    def words(*arguments: object) -> list[str]:
        return [sys.executable, str(FOLDER / "stand_in.py"), *map(str, arguments)]

    return words


@pytest.fixture
def process(command: Callable[..., list[str]]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a command line as a process."""

    def run(*arguments: object, **more: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments), capture_output=True, text=True, timeout=60, check=False, **more
        )

    return run
