"""Test that kernels access only the machine's memory, with any number of threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nmpsim.core.compiled.issue import IS_JIT_DISABLED

HERE = Path(__file__).parent


@pytest.mark.skipif(IS_JIT_DISABLED, reason="nothing is compiled")
@pytest.mark.skipif(sys.platform == "win32", reason="needs mprotect")
def test_kernels_stay_inside_their_memory() -> None:
    command = [sys.executable, str(HERE / "core_guarded.py"), "1", "2", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "untouched\n"), done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs mprotect")
def test_an_access_to_a_guard_page_ends_the_process() -> None:
    code = (
        "import numpy, core_guarded as c; a = c.copy_guarded(numpy.zeros(5000, numpy.int8), {});"
        "import ctypes; ctypes.memset(a.ctypes.data + {}, 1, 1)"
    )
    for at_end, beside in ((True, 5000), (False, -1)):
        command = [sys.executable, "-c", code.format(at_end, beside)]
        done = subprocess.run(command, capture_output=True, cwd=HERE, check=False)
        assert done.returncode < 0, "a signal ends it"
