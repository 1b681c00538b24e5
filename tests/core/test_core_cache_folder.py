"""Where compiled kernels are kept when the usual folder cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def cache_folder(**environment: str) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", "from nmpsim.kernels import jit; print(jit.CACHE)"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return Path(done.stdout.strip())


def test_the_usual_folder(tmp_path: Path) -> None:
    assert cache_folder(NUMBA_CACHE_DIR=str(tmp_path)).parent == tmp_path


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    folder = cache_folder(NUMBA_CACHE_DIR=str(tmp_path / "file"))
    assert tmp_path not in folder.parents
    assert not folder.exists(), "it is gone with its process"
