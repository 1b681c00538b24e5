"""On a first run: what most programs need is compiled in a process beside, on another processor."""

from __future__ import annotations

import atexit
import subprocess
import sys

from nmpsim.core.compiled.apart import compiled_apart
from nmpsim.core.compiled.team import compile_follow
from nmpsim.core.decode import OP
from nmpsim.kernels.jit import uncollected

MOSTLY_NEEDED = (OP.nmp_conv, OP.nmp_load, OP.nmp_store, OP.nmp_maxpool)
"""The longest one first."""


class Beside:
    """The process, if there is one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to compile; without another process everything is compiled in this one."""
        if self._process is not None:
            return
        command = [sys.executable, "-m", "nmpsim.core.compiled.beside"]
        quiet = subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
        except OSError:
            return
        atexit.register(self._process.kill)

    def wait(self) -> None:
        """Until the process is done, well or not."""
        if self._process is not None:
            self._process.wait()


if __name__ == "__main__":
    with uncollected():
        for needed in MOSTLY_NEEDED:
            compiled_apart(needed)
        compile_follow()
