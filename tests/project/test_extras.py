"""Test the installation command in errors for missing packages."""

import json
from importlib import metadata
from pathlib import Path

import pytest

import nmpsim.extras
from nmpsim.diagnostics import UserError
from nmpsim.extras import get_install_command, require_extra

CLONE = Path(nmpsim.extras.__file__).parents[1]


class FakeDistribution:
    """Replacement of a distribution with pip's record of its origin."""

    def __init__(self, origin: dict[str, object] | None) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": "file:///a%20b/nmpsim", "dir_info": {}}, "pip install '/a b/nmpsim[tui]'"),
        (
            {"url": "file:///src/nmpsim", "dir_info": {"editable": True}},
            "pip install -e '/src/nmpsim[tui]'",
        ),
        (
            {"url": "file:///w/nmpsim-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install '/w/nmpsim-0.1.0-py3-none-any.whl[tui]'",
        ),
        (
            {"url": "https://e.org/nmpsim.whl", "archive_info": {}},
            "pip install 'nmpsim[tui] @ https://e.org/nmpsim.whl'",
        ),
        (
            {"url": "https://e.org/n.git", "vcs_info": {"vcs": "git", "commit_id": "12ab"}},
            "pip install 'nmpsim[tui] @ git+https://e.org/n.git@12ab'",
        ),
        (None, "pip install 'nmpsim[tui]'"),
    ],
)
def test_an_extra_is_installed_from_the_source_of_nmpsim(
    monkeypatch: pytest.MonkeyPatch, origin: dict[str, object] | None, command: str
) -> None:
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: FakeDistribution(origin))
    assert get_install_command("tui") == command


def test_sources_that_are_not_installed_name_their_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", none)
    assert get_install_command("tui") == f"pip install '{CLONE}[tui]'"


def test_an_error_names_package_command_and_alternative() -> None:
    with (
        pytest.raises(UserError) as raised,
        require_extra("tui", "it needs Textual", instead="use --plain"),
    ):
        raise ImportError(name="textual")
    (finding,) = raised.value.diagnostics
    assert (finding.code, finding.found) == ("PKG001", "textual is not installed")
    assert finding.hint == f"Run `{get_install_command('tui')}`, or use --plain."
