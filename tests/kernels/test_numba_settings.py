"""Test messages for a missing Numba and for invalid Numba settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nmpsim.diagnostics import Place, UserError
from nmpsim.kernels import numba_settings, sources


@pytest.fixture(autouse=True)
def _nothing_is_known() -> Iterator[None]:
    numba_settings._config.cache_clear()
    yield
    numba_settings._config.cache_clear()


def test_numba_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba_settings, "find_spec", lambda _: None)
    with pytest.raises(UserError) as raised:
        numba_settings._config()
    assert raised.value.diagnostics[0].code == "PKG001"
    assert raised.value.diagnostics[0].found == "numba is not installed"
    assert raised.value.diagnostics[0].hint == "pip install numba"


def test_a_compiler_is_named_whose_version_is_missing() -> None:
    with pytest.raises(UserError, match="no_such_package_at_all") as raised:
        sources._installed_version("no_such_package_at_all")
    assert raised.value.diagnostics[0].found == "no_such_package_at_all is not installed"


@pytest.mark.parametrize("text", [": [}{", "- a\n"])
def test_a_file_of_settings_that_numba_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    pytest.importorskip("yaml")  # without it Numba reads no file
    (tmp_path / ".numba_config.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as raised:
        numba_settings._config()
    assert raised.value.diagnostics[0].code == "ENV001"
    assert raised.value.diagnostics[0].place == Place(file=".numba_config.yaml")


def test_yaml_is_imported_where_there_is_a_file_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("yaml")
    monkeypatch.chdir(tmp_path)
    assert not numba_settings._config()._HAVE_YAML
    numba_settings._config.cache_clear()
    (tmp_path / ".numba_config.yaml").write_text("cpu_name: made-up\n")
    assert numba_settings._config()._HAVE_YAML
    assert numba_settings._config().CPU_NAME == "made-up"
