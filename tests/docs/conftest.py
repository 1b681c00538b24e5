"""Fixtures of the documentation tests."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "frontends")]


@pytest.fixture
def repository():
    """Return the repository's folder."""
    return Path(__file__).parents[2]


@pytest.fixture
def page(repository):
    """Return a function that reads a page by its path in the repository."""
    return lambda name: (repository / name).read_text(encoding="utf-8")


@pytest.fixture
def rows():
    """Return a function that splits all tables of a text into rows of cells."""

    def parse_rows(text):
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        return [line.strip("| ").split(" | ") for line in lines]

    return parse_rows
