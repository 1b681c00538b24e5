"""Test the digest that names the folder of compiled kernels."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from nmpsim.kernels import sources
from nmpsim.kernels.formulas import SOURCE


def test_versions_are_those_that_are_installed() -> None:
    for package in sources.COMPILERS:
        assert f"-{version(package)}." in sources._installed_version(package)


def test_formulas_are_compiled_code() -> None:
    assert SOURCE in sources.list_compiled_sources()


def test_another_version_is_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "made_up_package"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sources, "COMPILERS", ("made_up_package",))
    digests = set()
    for number in ("1.0", "1.1"):
        folder = tmp_path / f"made_up_package-{number}.dist-info"
        folder.mkdir()
        digests.add(sources.compute_kernel_digest())
        folder.rmdir()
    assert len(digests) == 2


def test_a_package_without_such_a_folder_is_asked_for_its_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "made_up_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (tmp_path / "made_up_package.egg-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: made_up_package\nVersion: 3.5\n"
    (tmp_path / "made_up_package.egg-info" / "PKG-INFO").write_text(metadata)
    monkeypatch.syspath_prepend(tmp_path)
    assert sources._installed_version("made_up_package") == "3.5"
