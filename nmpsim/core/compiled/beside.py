"""On a first run: what most programs need is compiled in a process beside, on another processor."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading

from nmpsim.children import keep_in_mind


class Beside:
    """The process, if there is one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to compile; without another process everything is compiled in this one."""
        if self._process is not None:
            return
        command = [sys.executable, "-m", "nmpsim.core.compiled.beside"]
        quiet, leash = subprocess.DEVNULL, subprocess.PIPE
        try:
            # Its standard input ends when this process does, however that ends.
            self._process = subprocess.Popen(command, stdin=leash, stdout=quiet, stderr=quiet)
        except OSError:
            return
        keep_in_mind(self._process)
        atexit.register(self._process.kill)

    def wait(self) -> None:
        """Until the process is done, well or not."""
        if self._process is not None:
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()


def _end_with_parent() -> None:
    """Nothing ever comes in: it ends when the parent does, however that ends."""
    os.read(0, 1)
    os._exit(1)


def _compile_what_is_mostly_needed() -> None:
    # Imported here: that takes seconds on a busy host, in which the parent may end.
    from nmpsim.core.compiled.apart import compiled_apart
    from nmpsim.core.compiled.contract import compile_check
    from nmpsim.core.compiled.pure import register_pure_functions
    from nmpsim.core.compiled.team import compile_follow
    from nmpsim.core.decode import OP
    from nmpsim.kernels.jit import uncollected

    register_pure_functions()
    with uncollected():
        for needed in (OP.nmp_conv, OP.nmp_load, OP.nmp_store, OP.nmp_maxpool):  # longest first
            compiled_apart(needed)
        compile_follow()
        compile_check()


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _compile_what_is_mostly_needed()
