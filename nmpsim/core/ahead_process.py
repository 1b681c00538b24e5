"""The process that compiles all kernels ahead; see :mod:`nmpsim.core.ahead`."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from nmpsim.core.ahead import ahead


def compile_all_ahead(parent: str, host: str) -> None:
    """Compile what is missing, the event loop last: where it is kept, everything is."""
    known = ahead(parent, host)
    if known is None or known.is_done():
        return
    with known.alone() as is_alone:
        if is_alone:
            # Imported here: who is not alone ends at once.
            from nmpsim.config import default_device
            from nmpsim.core.compiled.engine import CompiledEngine
            from nmpsim.core.compiled.replay import prepare_replay
            from nmpsim.core.load import empty_machine
            from nmpsim.kernels.entries import CACHE
            from nmpsim.timing import costs_of

            engine = CompiledEngine()
            engine.compile_all()
            prepare_replay()
            engine.run(empty_machine(), costs_of(default_device()), 0, False)
            if CACHE is not None and engine.is_complete():
                known.folder.write(known.note, CACHE.path.name.encode())


def lower_priority() -> None:
    """Give this process the lowest priority.

    With ``sched_autogroup`` Linux schedules sessions rather than processes, and this process has
    a session of its own, so the priority of its group is lowered as well.
    """
    if sys.platform != "win32":
        os.nice(19)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("19", encoding="ascii")


if __name__ == "__main__":
    lower_priority()
    compile_all_ahead(*sys.argv[1:])
