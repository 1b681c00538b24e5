"""Parallel compilation at the first run: a second process compiles what most programs need."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading

from nmpsim.subprocesses import register_child


class Warmup:
    """Warmup process that compiles common kernels in parallel with the first run."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the compiling process, unless it was started before or the system refuses."""
        if self._process is not None:
            return
        command = [sys.executable, "-P", "-m", "nmpsim.core.compiled.warmup"]
        # -P: files of the current folder are none of our modules.
        quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
        try:
            # Its standard input ends when this process does.
            self._process = subprocess.Popen(command, stdin=pipe, stdout=quiet, stderr=quiet)
        except OSError:
            return
        register_child(self._process)
        atexit.register(self._process.kill)

    def wait(self) -> None:
        """Wait until the compiling process has ended; return immediately if there is none."""
        if self._process is not None:
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()


def _end_with_parent() -> None:
    """Exit when standard input ends, which means that the parent process has ended."""
    os.read(0, 1)
    os._exit(1)


def _compile_common_kernels() -> None:
    # Imported here, because it takes seconds in which the parent may end.
    from nmpsim.core.compiled.entries import KERNELS, prepare_contract_check
    from nmpsim.core.compiled.replay import prepare_replay
    from nmpsim.core.instruction_tables import OP
    from nmpsim.kernels.entries import pause_garbage_collection

    with pause_garbage_collection():
        for needed in (OP.nmp_conv, OP.nmp_load, OP.nmp_store, OP.nmp_maxpool):  # longest first
            KERNELS[needed].address()
        prepare_replay()
        prepare_contract_check()


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _compile_common_kernels()
