"""Functions that only compiled code calls, as parts of a function that Python calls.

Numba optimizes each function with all that it calls, and makes machine code of it; so the innermost
function goes through LLVM again for each level of calls. A part stays as it was lowered until it is
linked into a whole, which goes through LLVM once.
"""

from __future__ import annotations

from typing import Any

from numba.core.base import BaseContext
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering

_NEEDED = (
    BaseContext.insert_user_function,
    DefaultPassBuilder.define_nopython_pipeline,
    JITCodeLibrary._finalize_dynamic_globals,
    JITCodeLibrary._finalize_final_module,
    JITCodeLibrary._optimize_final_module,
    JITCodeLibrary.enable_object_caching,
    PassManager.add_pass,
)


class _PartLibrary(JITCodeLibrary):  # type: ignore[misc]  # Numba has no types
    """LLVM code that is linked into a whole later."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):  # type: ignore[misc]  # Numba has no types
    """Numba's lowering without machine code at the end."""

    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        library.enable_object_caching()
        state.library = library
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        # Callers identify a function by this object, which must be implemented in C.
        entry = [lowered.fndesc].copy
        state.targetctx.insert_user_function(entry, lowered.fndesc, [library])
        state["cr"] = lowered._replace(cfunc=entry)
        return True


class PartCompiler(CompilerBase):  # type: ignore[misc]  # Numba has no types
    """Numba compiler that lowers functions to LLVM IR for later linking, without machine code."""

    def define_pipelines(self) -> list[Any]:
        """Return Numba's usual passes, with a lowering pass that emits no machine code."""
        usual = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager = PassManager("part")
        for kind, description in usual.passes:
            is_lowering = kind is NativeLowering
            manager.add_pass(_PartLowering if is_lowering else kind, description)
        manager.finalize()
        return [manager]
