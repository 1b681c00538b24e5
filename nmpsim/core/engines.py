"""The engines by their names."""

from __future__ import annotations

from nmpsim.core.engine import Engine
from nmpsim.diagnostics import fail

ENGINES = ("compiled", "reference")


def make_engine(name: str, threads: int = 1) -> Engine:
    """The engine of this name; raises ``UserError`` (ARG001) if there is none.

    ``threads`` of the host share the work of the compiled one; nothing else depends on it.
    """
    if name not in ENGINES:
        expected = " or ".join(ENGINES)
        raise fail("ARG001", "there is no such engine", found=repr(name), expected=expected)
    if name == "reference":
        from nmpsim.core.reference.engine import ReferenceEngine

        return ReferenceEngine()
    from nmpsim.core.compiled.engine import CompiledEngine

    return CompiledEngine(threads)
