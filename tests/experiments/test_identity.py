"""The digest of nmpsim's sources: of those that make results, however they were checked out."""

import re
from pathlib import Path

import pytest

import nmpsim
from nmpsim.experiments.identity import compute_source_digest, get_code_version

PACKAGE = Path(nmpsim.__file__).parent
SEEN_ONLY = (
    "checking/case.py",
    "ckit/generate.py",
    "cli/app.py",
    "debugger/debugger.py",
    "gdbserver/server.py",
    "pytest_plugin.py",
    "runtime/onnx_session.py",
    "torch_backend.py",
    "tui/__init__.py",
    "verification/compare.py",
    "views/run_text.py",
)
MAKES_RESULTS = ("core/device.py", "kernels/jit.py", "session.py", "nmp.toml", "timing/__init__.py")


@pytest.fixture
def sources(tmp_path):
    """Write source files to a folder; return the folder and their digest."""
    for name in (*SEEN_ONLY, *MAKES_RESULTS):
        assert (PACKAGE / name).is_file(), name
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x = 1\ny = 2\n")
    return tmp_path, compute_source_digest(tmp_path)


@pytest.mark.parametrize("name", SEEN_ONLY)
def test_presentation_code_is_excluded_from_the_digest(sources, name):
    folder, before = sources
    (folder / name).write_bytes(b"x = 2\n")
    assert compute_source_digest(folder) == before


@pytest.mark.parametrize("name", MAKES_RESULTS)
def test_code_that_computes_results_is_in_the_digest(sources, name):
    folder, before = sources
    (folder / name).write_bytes(b"x = 2\ny = 2\n")
    changed = compute_source_digest(folder)
    (folder / name).unlink()
    assert len({before, changed, compute_source_digest(folder)}) == 3


def test_line_ends_do_not_change_the_digest(sources):
    folder, before = sources
    for path in folder.rglob("*.*"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert compute_source_digest(folder) == before


def test_computing_code_imports_no_excluded_module():
    left_out = {name.split("/")[0].removesuffix(".py") for name in SEEN_ONLY}
    wanted = re.compile(rf"^\s*(from|import) nmpsim\.({'|'.join(left_out)})\b", re.M)
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if own in left_out | {"__init__", "__main__"}:
            continue
        assert not wanted.search(path.read_text(encoding="utf-8")), path


def test_results_contain_the_digest():
    assert get_code_version() == f"{nmpsim.__version__}+{compute_source_digest(PACKAGE)[:8]}"
