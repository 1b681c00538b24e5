"""The process that compiles kernels during a first run ends with that run, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PARENT = """
import time
from nmpsim.core.compiled.warmup import Warmup
warmup = Warmup()
warmup.start()
print(warmup._process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks /proc")
def test_the_compiling_process_ends_with_its_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
    )
    assert parent.stdout is not None
    status = Path(f"/proc/{int(parent.stdout.readline())}/status")
    assert "State:" in status.read_text()
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    while status.exists() and "zombie" not in status.read_text():
        time.sleep(0.05)  # without the cure for as long as compiling takes, and then it is cached
    assert not list(tmp_path.rglob("*.nbc"))
