"""The engines by their names."""

from __future__ import annotations

from nmpsim.core.engine import Engine
from nmpsim.core.kernel_cache import mark_kernel_cache_used
from nmpsim.diagnostics import fail

ENGINES = ("compiled", "reference")
AUTO = "auto"
"""Whichever of them suits."""


def make_engine(name: str, threads: int = 1) -> Engine:
    """The engine of this name; raises ``UserError`` (ARG001) if there is none.

    ``threads`` of the host share the work of the compiled one; nothing else depends on it.
    """
    if name not in (AUTO, *ENGINES):
        expected = " or ".join((AUTO, *ENGINES))
        raise fail("ARG001", "there is no such engine", found=repr(name), expected=expected)
    if name == "reference":
        from nmpsim.core.reference.engine import ReferenceEngine

        return ReferenceEngine()
    if name == AUTO:
        from nmpsim.core.engine_selection import AutoEngine

        return AutoEngine(threads)
    from nmpsim.core.compiled.engine import CompiledEngine

    mark_kernel_cache_used()
    return CompiledEngine(threads)
