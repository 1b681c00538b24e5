"""Test the contents of sdist and wheel, and that the installed wheel works."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import nmpsim

ROOT = Path(__file__).parents[2]
VERSION = nmpsim.__version__
DATA = (
    "nmp.toml",
    "dram.toml",
    "py.typed",
    "schemas/report.json",
    "tui/app.tcss",
    "tui/keys.toml",
    "tui/layouts.toml",
    "views/schemas.toml",
    "views/check.md.jinja",
    "views/html/page.html.jinja",
    "views/html/figures.json.jinja",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an sdist and a wheel from it, and return their folder."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def run(*words: object, folder: Path = ROOT) -> str:
    """Return the output of a command that cannot import this repository by PYTHONPATH."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_sdist_contains_everything_for_development(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    top = f"nmpsim-{VERSION}"
    assert path.name == f"{top}.tar.gz"
    with tarfile.open(path) as archive:
        names = {Path(name).relative_to(top).as_posix() for name in archive.getnames()}
    files = run("git", "ls-files", "-z").split("\0")[:-1] if (ROOT / ".git").exists() else []
    assert [name for name in files if (ROOT / name).is_file() and name not in names] == []
    expected = ("LICENSE", "README.md", "pyproject.toml", "mkdocs.yml", ".ci/run", "PKG-INFO")
    assert set(expected) < names
    folders = {name.split("/")[0] for name in names}
    assert {"nmpsim", "tests", "docs", "programs", "benchmarks", "traces"} < folders
    assert not folders & {".venv", "build", "dist", "site"}


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    described = {name for name in names if name.startswith(f"nmpsim-{VERSION}.dist-info/")}
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "nmpsim").rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".nbi", ".nbc")
    }
    assert names - described == package
    assert {f"nmpsim/{name}" for name in DATA} < package


def test_the_wheel_names_its_licence(wheel: Path) -> None:
    information = f"nmpsim-{VERSION}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        metadata = Parser().parsestr(archive.read(f"{information}/METADATA").decode())
        licence = archive.read(f"{information}/licenses/LICENSE")
    assert licence == (ROOT / "LICENSE").read_bytes()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    # PEP 639: an expression takes the place of the old classifiers.
    assert not [c for c in metadata.get_all("Classifier") or [] if c.startswith("License ::")]


@pytest.mark.slow
def test_the_wheel_can_be_installed(wheel: Path, tmp_path: Path) -> None:
    """Its dependencies are those that this environment has: they take too long to install."""
    place = tmp_path / "venv"
    venv.create(place, symlinks=os.name != "nt")
    commands = place / ("Scripts" if os.name == "nt" else "bin")
    python = commands / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index",
        wheel)  # fmt: skip
    names = {"base": str(place), "platbase": str(place)}
    packages = Path(sysconfig.get_path("purelib", "venv", vars=names))
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")

    command = commands / "nmpsim"
    assert run(command, "--version", folder=tmp_path) == f"nmpsim {VERSION}\n"
    assert "Usage: nmpsim" in run(command, "--help", folder=tmp_path)
    assert "bytes_per_cycle" in run(command, "device", folder=tmp_path)
    code = "import nmpsim; print(nmpsim.__file__)"
    assert Path(run(python, "-c", code, folder=tmp_path).strip()).parent == packages / "nmpsim"
