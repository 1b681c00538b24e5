"""``NMPSIM_COMPILE_AHEAD``: whether a command has kernels compiled in the background."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from nmpsim.cli.guard import say

SETTING = "NMPSIM_COMPILE_AHEAD"
_NOT_BY_ITSELF = ("CI", "PYTEST_VERSION", "NUMBA_DISABLE_JIT")
"""Set where the next command finds nothing of it, or must not be disturbed by it."""

_PROCESSOR = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
"""Numba is told by these to compile for another one."""


def is_wanted(environment: Mapping[str, str]) -> bool:
    """1 asks for it and 0 forbids it; else it is done for people, not on machines for tests."""
    setting = environment.get(SETTING)
    if setting:
        return setting != "0"
    return not any(environment.get(name) for name in _NOT_BY_ITSELF)


def engine_for(asked: str, *, runs_often: bool = False) -> str:
    """The engine that is asked for; the compiled one if the choice is ours and it runs often.

    Where nmpsim chooses, what the next command will want is compiled meanwhile.
    """
    if asked == "auto" and runs_often:
        return "compiled"
    if asked == "auto" and is_wanted(os.environ):
        from nmpsim.core.background_compile import start_background_compile

        settings = [f"{name}={os.environ.get(name, '')}" for name in _PROCESSOR]
        is_started = start_background_compile(
            os.environ.get("NUMBA_CACHE_DIR", ""), " ".join(settings)
        )
        if is_started and sys.stderr is not None and sys.stderr.isatty():
            say(f"note: kernels are compiled in the background, once; {SETTING}=0 prevents it")
    return asked
