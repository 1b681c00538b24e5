"""Fixtures with a user's project: the digits network, a suite and its baselines."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import nmpsim

FOLDER = Path(__file__).parent
PROGRAMS = FOLDER.parents[1] / "programs"
DIGITS = PROGRAMS / "digits"
sys.path[:0] = [str(FOLDER)]

from user_project import SUITE, Project, run_cli  # noqa: E402 - found by the line above


@pytest.fixture(scope="session")
def good_project(tmp_path_factory) -> Path:
    """Return a compiled project with a baseline, which tests must not change."""
    folder = tmp_path_factory.mktemp("good project")
    shutil.copytree(DIGITS / "images", folder / "images")
    for name in ("digits.lir.txt", "digits.npz", "digits.tensors.json"):
        shutil.copy(DIGITS / name, folder)
    project = Project(folder)
    project.write('name = "nmp"', "board.toml")
    project.write(SUITE)
    project.compile()
    done = project.check("--update-baseline")
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def project(good_project, tmp_path) -> Project:
    """Copy the project to a folder with a space in its name and return the copy."""
    folder = tmp_path / "a project"
    shutil.copytree(good_project, folder)
    return Project(folder)


@pytest.fixture
def cli():
    """Run a command line within this process."""
    return run_cli


@pytest.fixture
def expected(project) -> dict:
    """Return the digits network's outputs for the image of a 7."""
    bundle = nmpsim.load(project.folder / "digits.bin")
    x = np.load(project.folder / "images" / "7.npy")
    report = nmpsim.Device().run(bundle, {"data": x}, save_layers=True)
    return {"outputs": dict(report.outputs), "layers": dict(report.layer_outputs)}


@pytest.fixture
def repository_page():
    """Return a function that reads a page by its path in the repository."""
    return lambda name: (FOLDER.parents[1] / name).read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def racing(good_project, tmp_path_factory) -> bytes:
    """Return the digits program without one of its wait instructions."""
    sys.path.insert(0, str(PROGRAMS / "debugging"))
    try:
        from make import missing_wait
    finally:
        sys.path.remove(str(PROGRAMS / "debugging"))
        sys.modules.pop("make", None)
    with np.load(good_project / "digits.npz") as file:
        arrays = dict(file)
    tensors = json.loads((good_project / "digits.tensors.json").read_text())
    return missing_wait(tmp_path_factory.mktemp("racing"), arrays, tensors)
