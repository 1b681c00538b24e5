"""Fixtures for all tests."""

import sys
from pathlib import Path

import pytest

# Test modules import helpers such as shared_files by name, whatever pytest's import mode is.
sys.path.insert(0, str(Path(__file__).parent))

from shared_files import shared_folder


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference files beside the repository; ``NMPSIM_SHARED`` overrides it."""
    folder = shared_folder()
    if not folder.is_dir():
        pytest.skip(f"no reference files at {folder}")
    return folder
